from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, kstest

from clickharvest.diagnosis.findings import ALARM, Finding
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation.estimators import CPBM
from clickharvest.estimation.model_checks import check_model, context_matters, transitivity
from clickharvest.estimation.score_tests import LEFT_OUT
from clickharvest.estimation.trust_bias import _halves, trust_bias
from clickharvest.harvesting.interventions import Interventions
from samples import simulated_sample

Check = Callable[[Interventions], Finding]


def simulate(
    seed: int,
    *,
    queries: int = 80,
    docs: int = 5,
    sessions: int = 60,
    steeper: float = 0.0,
    adjacent: float = 0.0,
    trust: float = 0.0,
    unlike: float = 0.0,
    own_steepness: float = 0.0,
) -> Interventions:
    """Simulate pages of three rankings per query, p_k = 1/k, with dependent clicks.

    Users of a page click little or much, documents of a query are good or bad together, and each query has its own
    random preference for positions (`unlike`: 1 ± that, mean 1, so that the PBM holds for the sums of clicks).

    Args:
        seed: seed of all randomness.
        queries: number of queries.
        docs: documents, and positions, of each.
        sessions: pages of each query.
        steeper: context effect: p_k(x) = k^{−exp(steeper · x)}.
        adjacent: added to log p_2 of documents that also stand at position 3.
        trust: chance that a user takes an irrelevant document for relevant at position 1; trust / k at k.
        unlike: spread of the queries' preferences for positions.
        own_steepness: p_k = k^{−s} with a log s of each query that has this standard deviation.
    """
    random = np.random.default_rng(seed)
    rankings = random.permuted(np.tile(np.arange(docs), (queries, 3, 1)), axis=2)
    query = np.repeat(np.arange(queries), sessions)
    place = rankings[query, random.integers(0, 3, len(query))]
    x = random.uniform(-1.7, 1.7, size=queries)
    relevance = 1 / (1 + np.exp(0.5 - random.normal(size=(queries, 1)) - random.normal(size=(queries, docs))))[query]
    at_both = (rankings == 1).any(axis=1) & (rankings == 2).any(axis=1)
    log_p = -np.log(place + 1) * np.exp(steeper * x)[query, None] + adjacent * (at_both[query] & (place == 1))
    attraction = relevance + (1 - relevance) * trust / (place + 1)
    mood = random.choice([0.3, 1.7], size=(len(query), 1))
    taste = random.choice([1 - unlike, 1 + unlike], size=(queries, docs))[query[:, None], place]
    log_p *= np.exp(own_steepness * np.random.default_rng([seed, 1]).normal(size=queries))[query, None]
    clicked = random.random(place.shape) < 0.4 * np.exp(log_p) * attraction * mood * taste
    cell = ((query[:, None] * docs + np.arange(docs)) * docs + place).ravel()
    shown = np.bincount(cell, minlength=queries * docs * docs)
    clicks = np.bincount(cell, weights=clicked.ravel(), minlength=len(shown)).astype(np.int64)
    cells = np.flatnonzero(shown)
    unit = cells // docs
    cells = cells[np.bincount(unit)[unit] > 1]
    unit, shown, clicks = cells // docs, shown[cells], clicks[cells]
    contexts = {"x": x[unit // docs]}
    return Interventions(unit, unit // docs, cells % docs + 1, shown.astype(np.float64), clicks, shown, contexts)


def one_click_units(counts: dict[tuple[str, int, int, int], int]) -> Interventions:
    """Return units of two positions and one click, each its own query: (context, k, k', clicked) → how many."""
    rows = [
        (label, k, int(k == clicked))
        for (label, *pair, clicked), count in counts.items()
        for _ in range(count)
        for k in pair
    ]
    label, position, clicks = (np.array(column) for column in zip(*rows, strict=True))
    unit = np.arange(len(rows)) // 2
    ones = np.ones(len(rows), dtype=np.int64)
    return Interventions(unit, unit, position, ones.astype(np.float64), clicks, ones, {"device": label})


@pytest.mark.parametrize(
    ("check", "settings"),
    [
        (context_matters, {"unlike": 0.6}),
        (transitivity, {"unlike": 0.6}),
        (trust_bias, {}),
        (trust_bias, {"own_steepness": 0.6}),
    ],
    ids=["context", "transitivity", "trust", "trust, queries of their own steepness"],
)
def test_p_values_are_uniform_when_all_is_well(check: Check, settings: dict[str, float]) -> None:
    findings = [check(simulate(seed, **settings)) for seed in range(200)]
    p_values = np.array([finding.p_value for finding in findings], dtype=np.float64)
    assert np.isfinite(p_values).all()
    assert kstest(p_values, "uniform").pvalue > 0.001
    assert 0.02 <= np.mean(p_values < 0.05) <= 0.09
    assert np.mean(p_values < ALARM) <= 0.01


def test_queries_with_curves_of_any_shape_are_no_trust_bias() -> None:
    """In logs large enough to see them. With one curve for all, relevance would be read off queries' own tastes."""
    findings = [trust_bias(simulate(seed, queries=300, sessions=300, unlike=0.6)) for seed in range(25)]
    p_values = np.array([finding.p_value for finding in findings], dtype=np.float64)
    assert kstest(p_values, "uniform").pvalue > 0.01


def moody(seed: int, queries: int, pages: int, docs: int = 3) -> Interventions:
    """Every page has results in random order; half of the pages are not clicked at all, p_k = 1 / k on the others."""
    random = np.random.default_rng(seed)
    place = random.permuted(np.tile(np.arange(docs), (queries, pages, 1)), axis=2)
    mood = random.choice([0.0, 2.0], (queries, pages, 1))
    clicked = random.random(place.shape) < random.uniform(0.2, 0.5, (queries, 1, docs)) * mood / (place + 1)
    cell = ((np.arange(queries)[:, None, None] * docs + np.arange(docs)) * docs + place).ravel()
    shown = np.bincount(cell, minlength=queries * docs * docs)
    clicks = np.bincount(cell, clicked.ravel(), len(shown)).astype(np.int64)
    at = np.flatnonzero(shown)
    at = at[np.bincount(at // docs)[at // docs] > 1]
    unit = at // docs
    return Interventions(unit, unit // docs, at % docs + 1, shown[at].astype(np.float64), clicks[at], shown[at])


def test_pages_that_are_clicked_much_or_not_at_all_are_no_trust_bias() -> None:
    """By clicks per examination, relevant results would fall more steeply, by .07 a standard deviation."""
    found = [trust_bias(moody(seed, queries=4_000, pages=10)) for seed in range(8)]
    values = np.array([finding.value for finding in found], dtype=np.float64)
    assert abs(values.mean()) < 0.045
    assert all(finding.status != "warning" for finding in found)


def test_steeper_curves_of_relevant_results_are_told_and_no_warning() -> None:
    found = trust_bias(simulate(0, queries=300, sessions=400, trust=-0.8))
    assert found.p_value is not None
    assert found.p_value < ALARM
    assert (found.status, "looks the same here" in found.sentence) == ("note", True)


def test_one_query_with_most_of_the_clicks_does_not_outvote_all_others() -> None:
    """Phones are steeper in all queries but one, which has two thirds of the clicks; in full it would hide that."""
    queries, random = 60, np.random.default_rng(0)
    phone = np.arange(queries) % 2 == 0
    first, ratio = np.full(queries, 30), np.where(phone, 0.3, 0.7)
    first[0], ratio[0] = 3_000, 0.75
    clicks = np.stack([first, random.binomial(first, ratio)], axis=1).ravel()
    unit, shown = np.arange(2 * queries) // 2, np.full(2 * queries, 100_000)
    contexts = {"device": np.where(phone, "phone", "desk")[unit]}
    position = np.tile([1, 2], queries)
    found = context_matters(Interventions(unit, unit, position, shown.astype(np.float64), clicks, shown, contexts))
    assert found.p_value is not None
    assert found.p_value < ALARM


def test_the_likelihood_ratio_alone_would_cry_wolf_where_clicks_are_dependent() -> None:
    gains = [context_matters(simulate(seed, unlike=0.6)).value for seed in range(30)]
    assert np.mean(np.array(gains, dtype=np.float64) > 9.49) > 0.3  # χ² of 4 df at 5 %


@pytest.mark.parametrize(
    ("check", "violation", "words"),
    [
        (context_matters, {"steeper": 0.5}, "a CPBM tells contexts apart"),
        (transitivity, {"adjacent": 1.0}, "most so p_3 / p_2"),
        (trust_bias, {"trust": 0.8}, "trust top results"),
    ],
    ids=["context", "transitivity", "trust"],
)
def test_violations_are_found(check: Check, violation: dict[str, Any], words: str) -> None:
    findings = [check(simulate(seed, queries=300, sessions=400, **violation)) for seed in range(5)]
    assert all(finding.p_value is not None and finding.p_value < ALARM for finding in findings)
    assert all(finding.status != "ok" for finding in findings)
    assert sum(words in finding.sentence for finding in findings) >= 4


def test_single_documents_tell_nothing_of_trust() -> None:
    """One document a query: what it differs by from its query is rounding alone."""
    unit = np.repeat(np.arange(400), 2)
    first = np.random.default_rng(0).random(400) < 0.6
    clicks = np.stack([first, ~first], axis=1).astype(np.int64).ravel()
    shown = np.ones(800, dtype=np.int64)
    interventions = Interventions(unit, unit, np.tile([1, 2], 400), shown / 3, clicks, shown, exposure_kind="design")
    found = trust_bias(interventions)
    assert found.status == "note"
    assert "cannot be tested" in found.sentence
    assert found.value is None


def test_a_context_effect_is_no_trust_bias_and_no_intransitivity() -> None:
    findings = check_model(simulate(1, queries=300, sessions=100, steeper=0.3))
    assert {finding.name: finding.status for finding in findings} == {
        "context matters": "note",
        "transitivity": "ok",
        "heterogeneity of pairs": "ok",
        "trust bias": "ok",
    }


def test_context_test_equals_the_two_by_two_table() -> None:
    clicks = np.array([[70, 30], [55, 45]])
    counts = {(d, 1, 2, k): int(clicks[i, k - 1]) for i, d in enumerate("ab") for k in (1, 2)}
    finding = context_matters(one_click_units(counts))
    expected = clicks.sum(axis=1, keepdims=True) * clicks.sum(axis=0) / clicks.sum()
    assert finding.value == pytest.approx(2 * np.sum(clicks * np.log(clicks / expected)), rel=1e-4)
    # Contexts are half and half: the efficient score of a unit is ±½ (click at 2 − share of 2).
    share = clicks[:, 1].sum() / clicks.sum()
    scores = np.repeat([0 - share, 1 - share, share, share - 1], clicks.ravel())
    # One of 200 queries has a leverage of 1/200 on the null fit.
    statistic = scores.sum() ** 2 / np.sum(scores**2) * (1 - 1 / 200)
    effective = 3 / np.sum((scores**2 / np.sum(scores**2)) ** 2) - 2
    tails = [beta.sf(statistic / q, 0.5, (q - 1) / 2) for q in (effective, clicks.sum())]
    assert finding.p_value == pytest.approx(max(tails), rel=1e-3)


def test_transitivity_of_a_cycle_by_hand() -> None:
    # 1 beats 2, 2 beats 3 and 3 beats 1, 60 : 40. The fitted curve is flat, scores around the cycle are ±½.
    counts = {("a", k, other, k): 60 for k, other in ((1, 2), (2, 3))} | {("a", 1, 3, 1): 40, ("a", 1, 3, 3): 60}
    counts |= {("a", k, other, other): 40 for k, other in ((1, 2), (2, 3))}
    finding = transitivity(replace(one_click_units(counts), contexts={}))
    # The fit of two ratios to 300 queries has the leverage 2/300 in each; that of LEFT_OUT queries counts.
    statistic = (180 - 120) ** 2 / np.sum(np.where(np.arange(300) < LEFT_OUT, 1 / (1 - 2 / 300), 1.0))
    assert finding.value == pytest.approx(statistic, rel=1e-4)
    effective = 3 * 300 - 2
    assert finding.p_value == pytest.approx(
        max(beta.sf(statistic / q, 0.5, (q - 1) / 2) for q in (effective, 300)), rel=1e-3
    )


def test_heterogeneity_of_a_cycle_by_hand() -> None:
    """The cycle of the test above: clicks are independent, so that I = V, and Q = T."""
    counts = {("a", k, other, k): 60 for k, other in ((1, 2), (2, 3))} | {("a", 1, 3, 1): 40, ("a", 1, 3, 3): 60}
    counts |= {("a", k, other, other): 40 for k, other in ((1, 2), (2, 3))}
    units = replace(one_click_units(counts), contexts={})
    own = next(f for f in check_model(units) if f.name == "heterogeneity of pairs")
    assert own.value == pytest.approx((180 - 120) ** 2 / 300, rel=1e-3)
    assert (own.status, own.p_value) == ("note", None)


def test_contexts_that_matter_only_together_are_found() -> None:
    """The sign of x · y steepens the curve; x or y alone do nothing."""
    found = []
    for seed in range(5):
        base = simulate(seed, queries=120, sessions=100)
        random = np.random.default_rng(seed)
        one, two = random.choice([-1, 1], (2, 120))
        log_p = -0.8 * (one * two)[base.query] * np.log(base.position)
        kept = random.binomial(base.clicks, np.exp(log_p - np.log(5) * 0.8))
        contexts = {"x": one[base.query].astype(str), "y": two[base.query].astype(str)}
        found.append(context_matters(replace(base, clicks=kept, contexts=contexts)))
    assert all(finding.p_value is not None and finding.p_value < 0.01 for finding in found)
    assert any("x, y, taken together" in finding.sentence for finding in found)


def test_a_strong_effect_in_few_queries_is_no_reason_to_withdraw() -> None:
    """Most clicks in a handful of queries: signs are drawn where their effective number is too small for the law."""
    base, random = simulate(5, queries=60, sessions=300, steeper=0.8), np.random.default_rng(0)
    share = 1 / (1 + base.query)
    shown = random.binomial(base.impressions, share)
    clicks = np.minimum(shown, random.binomial(base.clicks, share))
    thin = replace(base, impressions=shown, exposure=shown.astype(np.float64), clicks=clicks)
    finding = context_matters(thin.take(np.flatnonzero(shown)))
    assert finding.p_value is not None
    assert finding.p_value < ALARM


def test_nothing_says_no_sign_with_a_small_p_value() -> None:
    findings = [finding for seed in range(40) for finding in check_model(simulate(seed, unlike=0.6, trust=0.3))]
    tested = [finding for finding in findings if finding.p_value is not None]
    assert {finding.status for finding in tested if finding.p_value >= 0.05} == {"ok"}
    weak = [finding for finding in tested if ALARM <= finding.p_value < 0.05]
    assert weak
    assert all(finding.status == "note" and finding.sentence.startswith("Weak sign") for finding in weak)


def test_likelihood_ratio_is_that_of_the_estimators() -> None:
    interventions = simulate(1, steeper=0.3)
    linear = CPBM(curve="linear", penalty=0.0, intervals=None).fit(interventions).propensities_
    constant = CPBM(curve="constant", penalty=0.0, intervals=None).fit(interventions).propensities_
    gain = 2 * (linear.info["log_likelihood"] - constant.info["log_likelihood"])
    assert context_matters(interventions).value == pytest.approx(gain, abs=0.02)


@pytest.mark.parametrize("positions", [2, 3])
def test_all_of_the_context_is_tested_with_four_queries_for_every_parameter(positions: int) -> None:
    """A device is one column, so that there are K − 1 parameters; a unit of one click is a query here."""
    pairs = [(k, other) for k in range(1, positions) for other in range(k + 1, positions + 1)]
    counts = {(d, *pair, k): 3 for d in "ab" for pair in pairs for k in pair}
    assert sum(counts.values()) >= 4 * 2 * (positions - 1)
    assert "steepness alone" not in context_matters(one_click_units(counts)).sentence


@pytest.mark.parametrize("realised", [True, False])
def test_halves_share_impressions_clicks_and_realised_exposures(realised: bool) -> None:
    sample = simulated_sample(queries=30)
    halves = _halves(sample, realised, seed=1)
    one, other = (
        {name: getattr(halves, name)[rows] for name in ("clicks", "impressions", "exposure", "position", "cluster")}
        for rows in (slice(None, len(sample.unit)), slice(len(sample.unit), None))
    )
    for name in ("clicks", "impressions"):
        assert np.array_equal(one[name] + other[name], getattr(sample, name))
    assert (one["clicks"] <= one["impressions"]).all()
    assert (other["clicks"] <= other["impressions"]).all()
    assert 0.4 < one["impressions"].sum() / sample.impressions.sum() < 0.6
    for half in (one, other):
        assert np.array_equal(half["position"], sample.position)
        assert np.array_equal(half["cluster"], sample.cluster)
        share = half["impressions"] / sample.impressions if realised else 1.0
        assert half["exposure"] == pytest.approx(sample.exposure * share)
    assert halves.unit.tolist() == [*sample.unit.tolist(), *(sample.unit + sample.n_units).tolist()]


def test_few_queries_test_steepness_alone_or_nothing() -> None:
    assert "steepness alone" in context_matters(simulate(0, queries=18)).sentence
    findings = check_model(simulate(0, queries=3, sessions=200))
    assert [finding.p_value for finding in findings] == [None] * 3
    assert all(finding.status == "note" and "Too few queries" in finding.sentence for finding in findings)


def test_columns_of_one_value_are_no_lack_of_queries() -> None:
    simulated = simulate(0, queries=100)
    n = len(simulated)
    rounded = np.where(np.arange(n) % 2, 0.3, 0.1 + 0.2)
    constant: dict[str, Any] = {"const": np.full(n, "x", dtype=object), "none": np.full(n, None), "sum": rounded}
    found = context_matters(replace(simulated, contexts=constant), kinds={"const": "categorical"})
    assert found.sentence == "const, none, sum: one value in all clicked units, on which examination cannot depend."
    assert (found.status, found.p_value) == ("note", None)
    alone = context_matters(simulated)
    beside = context_matters(replace(simulated, contexts={**constant, **simulated.contexts}))
    assert beside == alone


def test_nothing_to_compare_in_two_ways_is_no_test_of_transitivity() -> None:
    pairs = [(1, 2), (2, 3), (3, 4)]
    counts = {("a", k, other, clicked): 50 for k, other in pairs for clicked in (k, other)}
    assert transitivity(replace(one_click_units(counts), contexts={})).p_value is None


def test_design_exposures_and_contexts_inside_units() -> None:
    whole = simulate(5)
    shown = np.bincount(whole.unit, weights=whole.impressions)[whole.unit]
    design = replace(whole, exposure=whole.impressions / shown, exposure_kind="design")
    assert len(check_model(replace(design, contexts={}))) == 3
    split = replace(
        whole.take(np.repeat(np.arange(len(whole)), 2)),
        impressions=np.stack([whole.impressions, whole.impressions], axis=1).ravel(),
        clicks=np.stack([whole.clicks, np.random.default_rng(0).binomial(whole.clicks, 0.5)], axis=1).ravel(),
        contexts={"evening": np.tile([False, True], len(whole))},
        unit_kind="query",
    )
    assert [finding.status for finding in check_model(split)] == ["ok"] * 4


def test_the_same_seed_gives_the_same_split() -> None:
    interventions = simulate(2)
    assert trust_bias(interventions, seed=7) == trust_bias(interventions, seed=7)
    assert trust_bias(interventions, seed=7) != trust_bias(interventions, seed=8)


def test_what_cannot_be_tested_is_refused() -> None:
    interventions = simulate(2)
    with pytest.raises(InputError, match="no context columns"):
        context_matters(replace(interventions, contexts={}))
    with pytest.raises(NotIdentifiedError, match="position 9"):
        transitivity(interventions, anchor=9)
