"""What the first section of the page says: the budget, its terms, what was not tested, and what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.checks import CHECKS, Budget, Checked, Finding
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.report.sections import MOST_ADVICE, budget_data, budget_view, checks_view, problems

BUDGET = Budget((2, 3), (0.18, 0.1), (0.1, 0.15), {"relevance": (0.12, 0.1), "noise": (0.05, 0.004)}, (0.2, 0.2), {})
PASSED = tuple(Finding(kind, "ok", "Fine.") for kind in CHECKS)


def view(budget: Budget = BUDGET, findings: tuple[Finding, ...] = PASSED) -> dict[str, Any]:
    found = budget_view(Checked(findings, budget), "clickharvest weigh")
    assert found is not None
    return found


def curve(draws: float | None = 0.1, **changes: Any) -> Propensities:
    """Positions 1 to 3, of 4 shown."""
    b = np.log([0.5, 0.3])
    spread = None if draws is None else b + draws * np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    kind: Any = None if draws is None else "bootstrap"
    model = Propensities(make_curve("constant", (1, 2, 3), 1, 0), {"b": b}, None, (1, 2, 3, 4), spread, kind)
    return replace(model, **changes)


def test_the_section_leads_with_the_word_and_the_number() -> None:
    found = view()
    assert (found["word"], found["why"]) == ("usable", "At most 18 % off at any position.")
    assert found["tolerance"] == "30 %"
    assert found["weigh"] == "clickharvest weigh"


def test_without_checks_there_is_no_section() -> None:
    assert budget_view(None, "") is None


def test_bars_are_the_terms_beside_the_tolerance() -> None:
    small = replace(BUDGET, terms={**BUDGET.terms, "crowd": (0.001, 0.002)})
    bars = view(small)["bars"]
    assert [(bar["name"], bar["size"]) for bar in bars] == [
        ("together", "18 %"),
        ("relevance", "12 %"),
        ("noise", "5 %"),
    ]
    assert [float(bar["width"]) for bar in bars] == pytest.approx([60, 40, 16.7], abs=0.1)  # of 30 %, the tolerance
    assert {bar["limit"] for bar in bars} == {"100.0"}
    assert view(small)["small"] == ["crowd"]


def test_a_source_without_bound_has_a_whole_bar() -> None:
    unknown = replace(BUDGET, up=(np.inf, 0.1), terms={"noise": (np.inf, 0.1), "time": (0.5, 0.1)})
    found = view(unknown)
    together, noise, time = found["bars"]
    assert (together["size"], noise["size"], noise["width"]) == ("no bound", "no bound", "100.0")
    assert float(time["width"]) == 100
    assert found["word"] == "cannot tell"
    assert found["weigh"] is None


def test_where_no_position_can_be_compared_there_are_no_bars() -> None:
    found = view(Budget((), (), (), {}, (), {}))
    assert found["bars"] == []
    assert found["why"] == "No position can be compared with the anchor."


def test_what_was_not_tested_has_its_assumption_and_the_column_that_would_test_it() -> None:
    found = view(replace(BUDGET, untested={"clicks above": "page", "relevance": "more clicks", "<b>": "<i>"}))
    above, relevance, forged = found["untested"]
    assert above == {
        "kind": "clicks above",
        "assumption": "clicks above do not change clicks below",
        "needs": "a page column",
        "option": "--page",
    }
    assert (relevance["needs"], relevance["option"]) == ("more clicks", "")
    assert forged["kind"] == "<b>"


def test_what_to_do_is_the_advice_of_the_largest_problems_first() -> None:
    sizes = {"rows": 0.1, "time": 0.5, "arms": 0.2, "crowd": 0.05}
    findings = [Finding(kind, "warning", f"{kind} is wrong.", f"mend {kind}") for kind in sizes]
    findings += [Finding("log", "decisive", "No log."), Finding("step", "note", "A step.", "look"), PASSED[0]]
    budget = replace(BUDGET, terms={kind: (size, 0.0) for kind, size in sizes.items()})
    checked = Checked(tuple(findings), budget)
    assert [finding.kind for finding in problems(checked)] == ["log", "time", "arms", "rows", "crowd"]
    found = view(budget, checked.findings)
    assert found["advice"] == [
        {"sentence": "No log.", "advice": ""},
        {"sentence": "time is wrong.", "advice": "Mend time."},
        {"sentence": "arms is wrong.", "advice": "Mend arms."},
    ]
    assert found["more"] == 5 - MOST_ADVICE
    checks = checks_view(checked.findings)
    assert [row["severity"] for row in checks["rows"]] == ["decisive"] + 4 * ["warning"] + ["note", "ok"]
    assert checks["counts"] == "All 7 checks: 1 decisive, 4 warnings, 1 note, 1 passed"
    assert {bar["name"]: bar["kind"] for bar in found["bars"]}["time"] == "warned"
    assert found["weigh"] is None


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((0.2,), "No check found a problem."),
        ((0.6,), "No check found a problem, but noise, the largest source, is bounded to 60 % only."),
        ((np.inf,), "No check found a problem, but noise, the largest source, has no bound."),
    ],
)
def test_without_problems_one_uses_the_curve_or_collects_more_clicks(sizes: tuple[float, ...], told: str) -> None:
    found = view(Budget((2,), sizes, (0.1,), {"noise": sizes}, sizes, {}))
    (advice,) = found["advice"]
    assert advice["sentence"] == told
    assert ("plan" in advice["advice"]) == (found["word"] != "usable")


def test_the_picture_has_the_interval_and_the_budget() -> None:
    model = curve()
    points = budget_data(model, replace(BUDGET, positions=(2,)), 0.95)
    expected = model.predict()
    assert [point["k"] for point in points] == [1, 2, 3, 4]
    assert points[0]["least"] == points[0]["most"] == 1
    assert (points[1]["least"], points[1]["most"]) == pytest.approx((0.5 * 0.9, 0.5 * 1.18))
    assert (points[1]["lower"], points[1]["upper"]) == (expected.lower[0, 1], expected.upper[0, 1])
    assert points[2]["p"] == pytest.approx(0.3)
    assert points[2]["least"] is None  # it was not asked for
    assert {points[3][name] for name in ("p", "lower", "upper", "least", "most")} == {None}
    assert [point["state"] for point in points] == expected.state[0].tolist()
    bare = budget_data(curve(draws=None), None, 0.95)
    assert {bare[1][name] for name in ("lower", "upper", "least", "most")} == {None}


@pytest.mark.parametrize("end", [np.inf, np.nan, 1e300, -1.0])
def test_any_budget_can_be_drawn(end: float) -> None:
    forged = replace(BUDGET, up=(end,), down=(end, end), terms={"noise": (end,)}, tolerance=0.0)
    for point in budget_data(curve(), forged, 0.95):
        assert all(np.isfinite(value) for value in point.values() if isinstance(value, float))
    assert view(forged)["bars"]
