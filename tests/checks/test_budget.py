"""The budget: how effects of findings sum up, by hand, and what a model's file keeps of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from checks.worlds import fitted, world
from clickharvest import CPBM, PBM, harvest, read_log
from clickharvest.checks import TOLERANCE, Budget, Evidence, Finding, budget_of, check_fit, findings_of, make_budget
from clickharvest.checks.checking import displays_of, noise
from clickharvest.harvesting import Interventions
from clickharvest.planning import plan_from_log
from clickharvest.simulate import simulate_ab_log
from samples import fixed_curve, simulated_interventions

Z = 1.96
CURVE = {1: 0.0, 2: -0.5, 4: -1.0}


def interventions_of(position: NDArray[np.int64], clicks: NDArray[np.int64]) -> Interventions:
    """One result at several positions."""
    one = np.zeros(len(position), dtype=np.int64)
    return Interventions(
        unit=one, query=one, position=position, exposure=np.ones(len(position)), clicks=clicks, impressions=one + 1,
        contexts={},
    )  # fmt: skip


@cache
def evidence(sd: float | None = 0.1) -> Evidence:
    """One unit that was shown at all three positions of a curve whose log has a standard deviation."""
    seen = interventions_of(np.array([1, 2, 4]), clicks=np.array([1, 0, 1]))
    return Evidence(displays_of(seen), fixed_curve(CURVE, sd=sd))


def finding(effect: Any, error: Any, kind: str = "relevance", **more: Any) -> Finding:
    sides = (np.atleast_2d(np.array(side, dtype=np.float64)) for side in (effect, error))
    return Finding(kind, more.pop("severity", "ok"), f"About {kind}.", "", *sides, **more)


def budget(*findings: Finding, sd: float = 0.1, **how: Any) -> Budget:
    return make_budget(evidence(sd), findings, **how)


def half_width(sd: float = 0.1) -> NDArray[np.float64]:
    """Return how far the interval reaches in log p; a model keeps its draws in single precision."""
    found = fixed_curve(CURVE, sd=sd).predict()
    return np.log(found.upper[0] / found.propensity[0])


def close(found: Any, by_hand: Any) -> None:
    npt.assert_allclose(found, by_hand, rtol=1e-5)


def test_noise_alone_is_the_interval_of_the_model() -> None:
    found, model = budget(), fixed_curve(CURVE, sd=0.1).predict()
    assert found.positions == (2, 4)
    npt.assert_allclose(found.up, (model.upper / model.propensity - 1)[0, 1:])
    npt.assert_allclose(found.down, (1 - model.lower / model.propensity)[0, 1:])
    npt.assert_allclose(found.up, np.expm1(Z * 0.1), rtol=1e-3)
    assert list(found.terms) == ["noise"]
    npt.assert_allclose(found.terms["noise"], found.up)
    npt.assert_allclose(found.straight, found.up)


def test_sources_add_in_squares_and_by_sign() -> None:
    """Up: √(h² + (.2 + 1.96 · .05)² + 0²); down: √(h² + (1.96 · .05 − .2 → 0)² + (.3 + 1.96 · .02)²)."""
    found = budget(finding([0, 0.2, 0.2], [0, 0.05, 0.05]), finding([0, -0.3, 0], [0, 0.02, 0], "time"))
    h = half_width()[1]
    close(found.up[0], np.expm1(np.sqrt(h**2 + (0.2 + Z * 0.05) ** 2)))
    close(found.down[0], -np.expm1(-np.sqrt(h**2 + (0.3 + Z * 0.02) ** 2)))
    close(found.up[1], np.expm1(np.sqrt(h**2 + (0.2 + Z * 0.05) ** 2)))
    close(found.down[1], -np.expm1(-h))
    close(found.terms["relevance"], np.expm1([0.2 + Z * 0.05] * 2))
    close(found.terms["time"], np.expm1([0.3 + Z * 0.02, 0]))
    close(found.straight[0], np.expm1(h + max(0.2 + Z * 0.05, 0.3 + Z * 0.02)))
    assert list(found.terms) == ["time", "relevance", "noise"], "the largest first"
    assert found.largest == "time"


def test_a_standard_error_without_an_effect_counts_on_both_sides() -> None:
    found = budget(finding([0, 0, 0], [0, 0.1, 0.2]))
    both = np.sqrt(half_width()[1:] ** 2 + (Z * np.array([0.1, 0.2])) ** 2)
    close(found.up, np.expm1(both))
    close(found.down, -np.expm1(-both))


def test_the_worst_context_counts() -> None:
    """Effects of contexts sum within each; what they have in common counts in all of them."""
    by_context = finding([[0, 0.3, 0], [0, 0, -0.4]], np.zeros((2, 3)))
    common = finding([0, 0.1, 0.1], [0, 0, 0], "time")
    found = budget(by_context, common)
    h = half_width()[1]
    close(found.up, np.expm1([np.sqrt(h**2 + 0.09 + 0.01), np.sqrt(h**2 + 0.01)]))
    close(found.down, -np.expm1(-np.array([h, np.sqrt(h**2 + 0.16)])))
    close(found.terms["relevance"], np.expm1([0.3, 0.4]))


def test_findings_without_size_add_nothing() -> None:
    assert budget(Finding("log", "warning", "Odd.")).up == budget().up


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-0.5, 0.5), st.floats(0, 0.3)), min_size=1, max_size=5),
    st.tuples(st.floats(-0.5, 0.5), st.floats(0, 0.3)),
)
def test_one_more_source_never_narrows_a_budget(effects: list[tuple[float, float]], more: tuple[float, float]) -> None:
    several = [finding([0, b, b], [0, s, s], f"source {i}") for i, (b, s) in enumerate(effects)]
    few, many = budget(*several), budget(*several, finding([0, more[0]] * 1 + [0.0], [0, more[1], 0], "one more"))
    for one, other in ((few.up, many.up), (few.down, many.down), (few.straight, many.straight)):
        assert all(a <= b + 1e-12 for a, b in zip(one, other, strict=True))
    for side in (many.up, many.down):
        assert all(0 <= own <= most + 1e-9 for own, most in zip(side, many.straight, strict=True))
    assert few.off >= max(few.up) - 1e-12


def of(up: float, down: float = 0.0, **more: Any) -> Budget:
    return Budget((2,), (up,), (down,), {"noise": (up,)}, (up,), {}, **more)


@pytest.mark.parametrize(
    ("up", "down", "word"),
    [
        (TOLERANCE, 0, "usable"),
        (TOLERANCE + 1e-6, 0, "with care"),
        (0, 1 - 1 / (1 + TOLERANCE) - 1e-9, "usable"),
        (0, 1 - 1 / (1 + TOLERANCE) + 1e-6, "with care"),
        (1.0, 0.0, "with care"),
        (1.0 + 1e-6, 0.0, "cannot tell"),
        (0.0, 0.5, "with care"),
        (0.0, 0.5 + 1e-6, "cannot tell"),
        (0.0, 1.0, "cannot tell"),
        (np.inf, 0.0, "cannot tell"),
        (np.nan, 0.0, "cannot tell"),
    ],
)
def test_the_word_is_that_of_the_worst_factor(up: float, down: float, word: str) -> None:
    assert of(up, down).word == word
    assert str(of(up, down)).startswith(word + ": ")


def test_the_tolerance_is_the_users() -> None:
    assert of(0.4, tolerance=0.5).word == "usable"
    assert of(0.04, tolerance=0.01).word == "with care"
    assert budget(tolerance=0.01).word == "with care"
    assert budget(tolerance=0.01).tolerance == 0.01


def test_without_any_position_nothing_can_be_told() -> None:
    nothing = Budget((), (), (), {"noise": ()}, (), {})
    assert nothing.word == "cannot tell"
    assert "no position" in str(nothing)
    assert budget(positions=[1]).word == "cannot tell", "the anchor is nothing one can be off at"


def test_only_positions_that_are_asked_for_count() -> None:
    far = finding([0, 0, 0.9], [0, 0, 0])
    assert budget(far).word == "cannot tell"
    near = budget(far, positions=[1, 2])
    assert near.positions == (2,)
    assert near.word == "usable"
    assert near.terms["relevance"] == (0,)
    assert list(near.terms) == ["noise", "relevance"]
    assert budget(far, positions=[4]).up == budget(far).up[1:]


def test_a_decisive_finding_is_the_reason_that_nothing_can_be_told() -> None:
    found = budget(Finding("log", "decisive", "Clicks are copied."), Finding("step", "warning", "A step."))
    assert found.word == "cannot tell"
    assert found.reason == "Clicks are copied."
    assert str(found) == "cannot tell: Clicks are copied."
    assert max(found.up) < TOLERANCE


def test_how_much_more_data_brings_noise_within_the_tolerance() -> None:
    """Half widths fall as the root of the clicks; other terms do not fall."""
    assert budget(sd=0.2, tolerance=np.expm1(Z * 0.1)).times == pytest.approx(4, rel=1e-3)
    assert budget(finding([0, 0.3, 0], [0, 0, 0]), sd=0.2, tolerance=np.expm1(Z * 0.1)).times == pytest.approx(
        4, rel=1e-3
    )
    assert budget(sd=0.1, tolerance=np.expm1(Z * 0.2)).times == pytest.approx(1 / 4, rel=1e-3)
    assert "4 times this log" in " ".join(budget(sd=0.2, tolerance=np.expm1(Z * 0.1)).lines())
    assert "times this log" not in " ".join(budget().lines())


def test_what_was_not_tested_is_listed_and_not_counted() -> None:
    found = budget(Finding("time", "untested", "Not tested.", needs="time"))
    assert found.untested == {"time": "time"}
    assert found.up == budget().up
    assert found.word == "usable"
    assert found.lines()[-1] == "not tested: time (time)"
    assert budget().lines()[-1] == "nothing left untested"


def test_lines_are_a_sentence_the_terms_and_what_is_assumed() -> None:
    found = Budget(
        (2, 3), (0.1, 0.18), (0.05, 0.07), {"relevance": (0.12, 0.1), "noise": (0.004, 0.05), "time": (0.001, 0.0)},
        (0.2, 0.3), {"rows": "page", "crowd": "user"},
    )  # fmt: skip
    assert found.lines() == [
        "usable: at most 18 % off at any position",
        "relevance 12 %, noise 5 %",
        "not tested: rows (page), crowd (user)",
    ]
    assert Budget((2,), (0.0,), (0.0,), {"noise": (0.0,)}, (0.0,), {}).lines()[1] == "no source of error has any size"
    assert of(2.5).lines()[0] == "cannot tell: it may be off by a factor of 3.5, mostly noise"
    assert of(np.inf).lines()[0] == "cannot tell: nothing bounds how far it is off, mostly noise"
    assert of(0.45).lines()[0].startswith("with care: at most 45 % off")


FULL = Budget(
    (2, 3), (0.1, np.inf), (0.05, 1.0), {"noise": (0.1, np.inf), "time": (0.02, 0.0)}, (0.2, np.inf),
    {"rows": "page"}, 0.25, "Clicks are copied.",
)  # fmt: skip


@pytest.mark.parametrize("one", [FULL, of(0.1), Budget((), (), (), {}, (), {})])
def test_budgets_go_through_json(one: Budget) -> None:
    told = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert Budget.from_dict(told) == one
    assert told["word"] == one.word
    assert list(told["terms"]) == list(one.terms)
    kept = replace(fixed_curve(CURVE), info={"budget": told})
    assert budget_of(kept) == one


def test_a_budget_says_in_json_what_the_issue_asks_for() -> None:
    told = FULL.to_dict()
    assert {"word", "positions", "up", "down", "terms", "untested"} <= told.keys()
    assert told["up"] == [0.1, None]
    assert told["untested"] == {"rows": "page"}
    assert told["tolerance"] == 0.25


@pytest.mark.parametrize(
    "damage",
    [
        {"up": None},
        {"up": 0.1},
        {"up": ["a", "b"]},
        {"terms": [0.1]},
        {"terms": {"noise": 0.1}},
        {"untested": ["page"]},
        {"positions": ["a", "b"]},
        {"positions": None},
        {"positions": [float("inf"), 3]},
        {"tolerance": None},
        {"tolerance": "much"},
        {"up": [0.1]},
        {"terms": {"noise": [0.1]}},
    ],
)
def test_damaged_budgets_are_none(damage: dict[str, Any]) -> None:
    """Or else a model's file with a wrong budget breaks what shows it."""
    whole = FULL.to_dict()
    assert budget_of(replace(fixed_curve(CURVE), info={"budget": whole | damage})) is None


@pytest.mark.parametrize(
    "key", ["positions", "up", "down", "terms", "same_direction", "untested", "tolerance", "reason"]
)
def test_budgets_that_lack_something_are_none(key: str) -> None:
    rest = {name: value for name, value in FULL.to_dict().items() if name != key}
    assert budget_of(replace(fixed_curve(CURVE), info={"budget": rest})) is None


@pytest.mark.parametrize("kept", [None, "budget", 3, [], ["up"]])
def test_other_things_are_no_budget(kept: Any) -> None:
    assert budget_of(replace(fixed_curve(CURVE), info={"budget": kept})) is None
    assert budget_of(fixed_curve(CURVE)) is None


def test_findings_go_through_json() -> None:
    several = [
        finding([[0, 0.25, -0.5]], [[0, 0.125, 0.1]], p=0.03, needs="page"),
        finding(np.zeros((2, 3)), np.ones((2, 3)), "crowd"),
        Finding("log", "decisive", "Clicks are copied.", "join by page"),
        Finding("time", "untested", "Not tested.", needs="time"),
    ]
    told = json.loads(json.dumps([one.to_dict() for one in several], allow_nan=False))
    back = findings_of(replace(fixed_curve(CURVE), info={"findings": told}))
    for one, other in zip(several, back, strict=True):
        for name in ("kind", "severity", "sentence", "advice", "p", "needs"):
            assert getattr(other, name) == getattr(one, name)
        for own, its in zip(one.bounds, other.bounds, strict=True):
            npt.assert_allclose(its, own)


def test_damaged_findings_are_left_out() -> None:
    good = Finding("log", "ok", "Fine.").to_dict()
    bad = [
        None,
        3,
        "log",
        {},
        {"kind": "log"},
        good | {"effect": "much"},
        good | {"effect": [[0], [0, 1]]},
        good | {"p": "low"},
    ]
    assert [one.kind for one in findings_of(replace(fixed_curve(CURVE), info={"findings": [*bad, good]}))] == ["log"]
    assert findings_of(replace(fixed_curve(CURVE), info={"findings": "log"})) == []
    assert findings_of(fixed_curve(CURVE)) == []
    (odd,) = findings_of(replace(fixed_curve(CURVE), info={"findings": [good | {"severity": "dire"}]}))
    assert odd.severity == "note"


def test_budgets_are_tables() -> None:
    table = FULL.to_arrow()
    assert table.column_names == ["position", "up", "down", "noise", "time"]
    assert table.column("position").to_pylist() == [2, 3]
    assert table.column("time").to_pylist() == [0.02, 0.0]
    pytest.importorskip("pandas", reason="pandas is not installed: pip install -e '.[dev]'")
    frame = FULL.to_frame()
    assert list(frame.columns) == table.column_names
    assert frame["up"].tolist() == [0.1, np.inf]


# Noise.


def test_noise_is_half_the_width_of_the_interval() -> None:
    log = world(0, 4_000).draw().log()
    model = fitted(log)
    found = model.predict()
    down, up = noise(Evidence(displays_of(harvest(log)), model))
    npt.assert_allclose(up, np.log(found.upper / found.propensity), atol=1e-12)
    npt.assert_allclose(down, np.log(found.propensity / found.lower), atol=1e-12)
    npt.assert_allclose(up, down, atol=1e-9)


def test_noise_of_every_context() -> None:
    interventions = simulated_interventions(300, seed=0, steepness={"a": 0.5, "b": 1.5})
    model = CPBM(curve="power").fit(interventions).propensities_
    seen = Evidence(displays_of(interventions), model)
    _, up = noise(seen)
    assert up.shape == (2, 4)
    device = interventions.contexts["device"]
    for row in (int(np.flatnonzero(device == one)[0]) for one in ("a", "b")):
        found = model.predict({"device": device[[row]]})
        npt.assert_allclose(up[seen.kind[row]], np.log(found.upper / found.propensity)[0], atol=1e-12)
    widest = np.expm1(up.max(axis=0))[1:]
    npt.assert_allclose(make_budget(seen, []).terms["noise"], widest)


def test_noise_of_numeric_contexts_is_that_of_nine_contexts_of_ten() -> None:
    interventions = simulated_interventions(400, seed=0, steepness={"a": 1.0})
    age = np.random.default_rng(0).normal(size=400).round(3)[np.unique(interventions.query, return_inverse=True)[1]]
    interventions = replace(interventions, contexts={"age": age})
    model = CPBM(curve="power").fit(interventions).propensities_
    seen = Evidence(displays_of(interventions), model)
    _, up = noise(seen)
    assert up.shape == (1, 4)
    found = model.predict({"age": age})
    widths = np.log(found.upper / found.propensity)
    for k in (1, 2, 3):
        assert 0.8 < np.mean(widths[:, k] <= up[0, k]) < 0.97
    assert make_budget(seen, []).word in ("usable", "with care")
    npt.assert_array_equal(noise(Evidence(displays_of(interventions), model))[1], up)


def test_a_model_without_intervals_bounds_nothing() -> None:
    interventions = simulated_interventions(200, seed=0, steepness={"a": 1.0})
    model = PBM(intervals=None).fit(replace(interventions, contexts={})).propensities_
    found = make_budget(Evidence(displays_of(interventions), model), [])
    assert found.word == "cannot tell"
    assert found.largest == "noise"
    assert Budget.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))).word == "cannot tell"


def test_plan_fit_and_budget_say_the_same_of_how_much_more_data() -> None:
    log = read_log(simulate_ab_log(pages=3_000, queries=100, seed=2)[0], context=["device"])
    interventions = harvest(log)
    model = CPBM(curve="linear").fit(interventions).propensities_
    found = check_fit(log, model, tolerance=0.05, interventions=interventions).budget
    assert found.times == pytest.approx(plan_from_log(interventions, width=0.05).times.max())
    assert Budget.from_dict(found.to_dict()).times == pytest.approx(found.times, rel=1e-3)
