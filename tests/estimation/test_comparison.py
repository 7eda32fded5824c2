"""Held-out scores: the formula, what is scored, honest click rates, and intervals that hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation import CPBM, PBM, compare_models
from clickharvest.harvesting import Interventions
from clickharvest.model import Propensities
from samples import fixed_curve, simulated_interventions


def law(steepness: float, positions: int = 4, **options: float) -> Propensities:
    """The model p_k = k^{−steepness}."""
    return fixed_curve({k: -steepness * np.log(k) for k in range(1, positions + 1)}, **options)  # type: ignore[arg-type]


def by_hand() -> Interventions:
    """Two queries: a unit at 1, 2 and 3, one at 1 and 2, one at 2 and 3."""
    return Interventions(
        unit=np.array([0, 0, 0, 1, 1, 2, 2]), query=np.array(list("aaabbbb")), position=np.array([1, 2, 3, 1, 2, 2, 3]),
        exposure=np.array([5.0, 4.0, 6.0, 9.0, 3.0, 7.0, 2.0]), clicks=np.array([3, 1, 1, 4, 1, 2, 1]),
        impressions=np.array([5, 4, 6, 9, 3, 7, 2]),
    )  # fmt: skip


def share(interventions: Interventions, rates: dict[str, dict[int, float]]) -> dict[str, float]:
    """Σ C log π of each query, its propensities given, row by row."""
    sums = dict.fromkeys(rates, 0.0)
    for i, query in enumerate(interventions.query):
        own = interventions.unit == interventions.unit[i]
        p = [rates[query][int(k)] for k in interventions.position[own]]
        whole = (interventions.exposure[own] * p).sum()
        part = interventions.exposure[i] * rates[query][int(interventions.position[i])]
        sums[str(query)] += interventions.clicks[i] * np.log(part / whole)
    return sums


def test_scores_and_intervals_by_hand() -> None:
    interventions = replace(by_hand(), query=np.array(list("aaabbcc")))
    found = compare_models({"steep": law(1.5, 3)}, interventions, level=0.9)
    steep, naive = (share(interventions, {query: {k: k**-e for k in (1, 2, 3)} for query in "abc"}) for e in (1.5, 1.0))
    assert found.scores["steep"] == pytest.approx(sum(steep.values()) / 13)
    assert found.scores["1/k"] == pytest.approx(sum(naive.values()) / 13)
    gain = found.gains[1]
    assert (gain.name, gain.over) == ("steep", "1/k")
    clicks = {"a": 5, "b": 5, "c": 3}
    difference = {q: steep[q] - naive[q] for q in clicks}
    assert gain.per_click == pytest.approx(sum(difference.values()) / 13)
    without = [sum(difference[o] for o in clicks if o != q) / (13 - clicks[q]) for q in clicks]
    se = np.sqrt(2 / 3 * np.sum((np.array(without) - gain.per_click) ** 2))
    assert found.effective_queries == pytest.approx(13**2 / (25 + 25 + 9))
    quantile = student.ppf(0.95, found.effective_queries - 1)
    assert (gain.lower, gain.upper) == pytest.approx((gain.per_click - quantile * se, gain.per_click + quantile * se))


def test_too_few_queries_have_no_interval() -> None:
    found = compare_models({"m": law(2.0, 3)}, by_hand())
    assert found.queries == 2
    assert found.effective_queries == pytest.approx(13**2 / (5**2 + 8**2))
    assert all(gain.lower is None and gain.upper is None and gain.found == "unclear" for gain in found.gains)
    assert found.findings[-1].startswith("No intervals: 2 queries with clicks, as good as 1.9 of equal size")


def test_click_rates_leave_out_the_query_that_they_score() -> None:
    interventions = by_hand()
    others = {
        "a": {1: 4.5 / 10, 2: 3.5 / 11, 3: 1.5 / 3},
        "b": {1: 3.5 / 6, 2: 1.5 / 5, 3: 1.5 / 7},
    }
    found = compare_models({"m": law(1.0, 3)}, interventions).scores["click rates"]
    assert found == pytest.approx(sum(share(interventions, others).values()) / 13)
    whole = {1: (10, 30), 2: (6, 30), 3: (4, 20)}
    others = {
        "a": {1: 7.5 / 26, 2: 5.5 / 27, 3: 3.5 / 15},
        "b": {1: 6.5 / 22, 2: 3.5 / 21, 3: 3.5 / 19},
    }
    found = compare_models({"m": law(1.0, 3)}, interventions, rates=whole).scores["click rates"]
    assert found == pytest.approx(sum(share(interventions, others).values()) / 13)
    with pytest.raises(InputError, match="fewer clicks than the interventions"):
        compare_models({"m": law(1.0, 3)}, interventions, rates={1: (1, 30), 2: (6, 30), 3: (4, 20)})


def test_click_rates_may_come_from_another_log() -> None:
    found = compare_models({"m": law(1.0, 3)}, by_hand(), rates=law(1.5, 3))
    assert found.scores["click rates"] == compare_models({"m": law(1.5, 3)}, by_hand()).scores["m"]


def test_only_positions_that_all_have_are_scored_and_the_rest_is_told() -> None:
    narrow = fixed_curve({1: 0.0, 2: -0.5})
    found = compare_models({"wide": law(1.0, 3), "narrow": narrow}, by_hand())
    assert (found.positions, found.clicks, found.queries) == ((1, 2), 9, 2)
    assert list(found.left_out.values()) == [2, 2]


def test_the_anchor_does_not_matter() -> None:
    log_p = {1: 0.0, 2: -0.4, 3: -1.0}
    models = {f"from {anchor}": fixed_curve(log_p, anchor=anchor) for anchor in log_p}
    found = compare_models(models, by_hand())
    assert [found.scores[name] for name in models] == pytest.approx([found.scores["from 1"]] * 3)


def test_a_model_differs_from_itself_by_exactly_nothing() -> None:
    model = law(0.7)
    found = compare_models({"one": model, "two": model}, simulated_interventions(60, seed=1, steepness={"a": 1.0}))
    gain = found.gains[-1]
    assert (gain.name, gain.over, gain.found) == ("two", "one", "same")
    assert (gain.per_click, gain.lower, gain.upper) == (0.0, 0.0, 0.0)
    assert found.findings[-1] == "two explains these clicks exactly as one."


def test_the_truth_beats_one_over_k_and_context_beats_none() -> None:
    steepness = {"desktop": 0.4, "mobile": 1.6}
    interventions = simulated_interventions(600, seed=3, steepness=steepness)
    first = interventions.query < 300
    training, other = interventions.take(first), interventions.take(~first)
    models = {
        "pbm": PBM(intervals=None).fit(training).propensities_,
        "cpbm": CPBM(curve="linear", penalty=1.0, intervals=None).fit(training).propensities_,
    }
    found = compare_models(models, other)
    verdicts = {(gain.name, gain.over): gain.found for gain in found.gains}
    assert verdicts["cpbm", "pbm"] == verdicts["cpbm", "1/k"] == verdicts["cpbm", "click rates"] == "better"
    assert found.trained_on == ()
    seen = compare_models(models, training)
    assert seen.trained_on == ("pbm", "cpbm")
    assert seen.findings[0] == "pbm was fitted on these very clicks: its score is not a held-out one."
    # Nothing tells that they have seen a part of these: docs and help say so.
    assert compare_models(models, interventions).trained_on == ()
    flat = simulated_interventions(400, seed=4, steepness={"all": 0.5})
    assert compare_models({"truth": law(0.5)}, flat).gains[1].found == "better"
    assert compare_models({"worse": law(2.5)}, flat).gains[1].found == "worse"


def test_intervals_cover_the_difference_of_two_curves() -> None:
    """The expected difference is that of a log many times as large; 40 logs of 25 queries of unequal traffic."""
    models = {"one": law(0.6), "two": law(1.2)}
    steepness = {"a": 0.5, "b": 1.5}
    expected = compare_models(models, simulated_interventions(20_000, seed=99, steepness=steepness)).gains[-1].per_click
    covered = 0
    for seed in range(40):
        gain = compare_models(models, simulated_interventions(25, seed=seed, steepness=steepness)).gains[-1]
        assert gain.lower is not None
        assert gain.upper is not None
        covered += gain.lower <= expected <= gain.upper
    assert covered >= 35  # of 40 at 95 %: fewer with probability .003


def test_contexts_inside_a_unit_are_scored_apart() -> None:
    """How much a context clicks in general must not count: mobile clicks ten times as often, whatever the position."""
    unit, position = np.zeros(4, dtype=int), np.array([1, 1, 2, 2])
    clicks = np.array([40, 4, 20, 2])
    interventions = Interventions(
        unit=unit, query=unit, position=position, exposure=np.full(4, 100.0), clicks=clicks,
        impressions=np.full(4, 100), contexts={"device": np.array(["mobile", "desktop"] * 2)}, unit_kind="query",
    )  # fmt: skip
    apart = replace(interventions.take(np.array([0, 2, 1, 3])), unit=np.array([0, 0, 1, 1]), unit_kind="context")
    many = simulated_interventions(50, seed=0, steepness={"mobile": 1.0, "desktop": 0.5}, positions=2)
    model = CPBM(curve="linear", penalty=1.0, intervals=None).fit(many).propensities_
    found, expected = (compare_models({"m": model}, own).scores for own in (interventions, apart))
    assert found == pytest.approx(expected)


def test_what_cannot_be_compared_is_told() -> None:
    interventions = simulated_interventions(30, seed=0, steepness={"a": 1.0, "b": 0.5})
    model = CPBM(curve="linear", penalty=1.0, intervals=None).fit(interventions).propensities_
    with pytest.raises(InputError, match="lack the context column device of m: found none"):
        compare_models({"m": model}, replace(interventions, contexts={}))
    with pytest.raises(NotIdentifiedError, match=r"two positions that all models and the log have \(none\)"):
        compare_models({"m": fixed_curve({7: 0.0, 8: -0.1}, anchor=7)}, interventions)
    with pytest.raises(NotIdentifiedError, match="no clicked unit"):
        compare_models({"m": law(1.0)}, replace(interventions, clicks=0 * interventions.clicks))
    with pytest.raises(InputError, match="no model to compare"):
        compare_models({}, interventions)
    with pytest.raises(InputError, match="a model is named '1/k'"):
        compare_models({"1/k": law(1.0)}, interventions)
    with pytest.raises(InputError, match="level of an interval is 95"):
        compare_models({"m": law(1.0)}, interventions, level=95)


def test_contexts_that_a_model_never_had_are_told() -> None:
    """Such a model is scored by what it makes of other contexts, which is not what its file claims to know."""
    trained = simulated_interventions(150, seed=0, steepness={"phone": 1.5, "desk": 0.7})
    model = CPBM(curve="power", penalty=1.0, intervals=None).fit(trained).propensities_
    other = simulated_interventions(60, seed=1, steepness={"tv": 1.0})
    found = compare_models({"model": model}, other)
    assert found.unseen == {"model": found.clicks}
    assert (
        f"model has no data on the contexts of {found.clicks:,} of these {found.clicks:,} clicks" in found.findings[0]
    )
    known = compare_models({"model": model}, simulated_interventions(60, seed=2, steepness={"desk": 0.7}))
    assert (known.unseen, any("no data" in sentence for sentence in known.findings)) == ({}, False)
