"""Sections of the page: the error budget and all checks, more traffic, and tables of affine and browsing models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks import CHECKS, Budget, Checked, Finding, percent
from clickharvest.click_models.affine.fitted import AffineModel
from clickharvest.click_models.affine.levels import AffineLevels
from clickharvest.click_models.browsing.fitted import UNLINKED, BrowsingPropensities, number_of
from clickharvest.click_models.reading import ReadingPropensities
from clickharvest.model.budget import CANNOT_TELL, USABLE
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.planning.traffic import Plan
from clickharvest.words import clean_text, count, finite

MOST_ADVICE = 3
"""Problems shown with advice; the others are in the list of checks."""
LEAST_BAR = 0.005
"""Size below which sources of error have no bar."""
LARGEST = 1e6
"""Value for an unbounded end of the budget, beyond the picture."""
SEVERITIES = {
    "decisive": "decisive",
    "warning": "warning",
    "note": "note",
    "untested": "not tested",
    "ok": "passed",
}
"""Severities in words, the most serious first."""
ROLES = ("ranker", "user", "page", "time")
"""Columns with an option of their name."""
DARKEST = 0.75
"""Shade of the largest propensity."""


def budget_view(checked: Checked | None, weigh: str) -> dict[str, Any] | None:
    """Return the texts of the section on the error budget; None where nothing was checked.

    Args:
        checked: the findings and the budget.
        weigh: the command that uses the model.
    """
    if checked is None:
        return None
    budget = checked.budget
    word, _, why = str(budget).partition(": ")
    wrong = problems(checked)
    return {
        "word": word,
        "why": f"{why[0].upper()}{why[1:].removesuffix('.')}.",
        "tolerance": percent(budget.tolerance),
        "bars": _bars(checked),
        "small": [name for name, size in budget.sizes().items() if size < LEAST_BAR],
        "untested": [_untested(kind, needs) for kind, needs in budget.untested.items()],
        "advice": [_sentences(finding) for finding in wrong[:MOST_ADVICE]] or _without_problems(budget),
        "weigh": weigh if word != "cannot tell" and not wrong else None,
        "more": len(wrong[MOST_ADVICE:]),
    }


def budget_data(model: Propensities, budget: Budget | None, level: float) -> list[dict[str, Any]]:
    """Return the points of the chart: the curve of the typical context, its interval, budget and state.

    `least` and `most` are p · (1 − down) and p · (1 + up), None at positions without a budget.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> model = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, (1, 2))
        >>> budget = Budget((2,), (0.2,), (0.1,), {"noise": (0.2,)}, (0.2,), {})
        >>> for point in budget_data(model, budget, 0.95):
        ...     print(point["k"], round(point["least"], 2), round(point["most"], 2))
        1 1.0 1.0
        2 0.45 0.6
    """
    predicted = model.predict_encoded(typical_context(model), level=level)
    reach = {model.curve.anchor: (0.0, 0.0)} if budget else {}
    if budget is not None:
        ends = zip(budget.down, budget.up, strict=False)
        reach |= dict(zip(budget.positions, ends, strict=False))
    points = []
    for i, k in enumerate(model.shown):
        numbers = {"p": predicted.propensity[0, i], "lower": predicted.lower[0, i], "upper": predicted.upper[0, i]}
        if k in reach:
            down, up = reach[k]
            numbers["least"] = numbers["p"] * max(0.0, 1 - down)
            numbers["most"] = numbers["p"] * min(1 + up, LARGEST)
        point = dict.fromkeys(("p", "lower", "upper", "least", "most"))
        if predicted.supported[0, i]:
            point |= {name: float(number) for name, number in numbers.items() if np.isfinite(number)}
        state = str(predicted.state[0, i])
        shown = {"state": state, "note": None if state == USABLE else state, "wide": state == CANNOT_TELL}
        points.append({"k": int(k), **point, **shown})
    return points


def problems(checked: Checked) -> list[Finding]:
    """Return the decisive findings and warnings, decisive ones first, then by size."""
    sizes = checked.budget.sizes()
    wrong = [finding for finding in checked.findings if finding.severity in ("decisive", "warning")]
    return sorted(wrong, key=lambda one: (one.severity != "decisive", -sizes.get(one.kind, 0.0)))


def _bars(checked: Checked) -> list[dict[str, Any]]:
    """Return a bar for the sum and for each source: widths, and the tolerance, in percent of the largest."""
    budget = checked.budget
    sizes = {"together": budget.off} | {name: s for name, s in budget.sizes().items() if s >= LEAST_BAR}
    known = {name: size for name, size in sizes.items() if np.isfinite(size)}
    largest = max(budget.tolerance, 1e-9, *known.values())
    warned = {finding.kind for finding in problems(checked)}
    return [
        {
            "name": name,
            "size": percent(size) if name in known else "no bound",
            "width": f"{100 * known.get(name, largest) / largest:.1f}",
            "limit": f"{100 * budget.tolerance / largest:.1f}",
            "kind": "whole" if i == 0 else "warned" if name in warned else "",
        }
        for i, (name, size) in enumerate(sizes.items())
        if i or budget.positions
    ]


def _untested(kind: str, needs: str) -> dict[str, str]:
    """Return the assumption of a check that was not made, the column it needs, and the option for that column."""
    assumption = CHECKS[kind].assumption if kind in CHECKS else "nothing is wrong with it"
    column = needs in ROLES
    needed = f"a {needs} column" if column else clean_text(needs)
    return {"kind": clean_text(kind), "assumption": assumption, "needs": needed, "option": f"--{needs}" * column}


def _sentences(finding: Finding) -> dict[str, str]:
    return {"sentence": finding.sentence, "advice": finding.counsel}


def _without_problems(budget: Budget) -> list[dict[str, str]]:
    """Return the advice where no check found a problem: use the curve, or collect more clicks."""
    if budget.word == "usable":
        return [{"sentence": "No check found a problem.", "advice": "Weigh clicks by the curve:"}]
    size = budget.sizes().get(budget.largest, np.inf)
    bound = f"is bounded to {percent(size)} only" if np.isfinite(size) else "has no bound"
    advice = "More clicks narrow it: clickharvest plan LOG tells how many."
    return [
        {"sentence": f"No check found a problem, but {budget.largest}, the largest source, {bound}.", "advice": advice}
    ]


def checks_view(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the rows of the list of all checks, the most serious first, and their counts."""
    rows = [
        {"severity": one.severity, "label": SEVERITIES[one.severity], "kind": clean_text(one.kind)} | _sentences(one)
        for one in sorted(findings, key=lambda one: list(SEVERITIES).index(one.severity))
    ]
    return {"rows": rows, "counts": _counts(findings)}


def _counts(findings: Sequence[Finding]) -> str:
    """Return how many checks there are of each severity.

    Example:
        >>> _counts([Finding("time", "ok", ""), Finding("rows", "warning", ""), Finding("step", "warning", "")])
        'All 3 checks: 2 warnings, 1 passed'
    """
    severities = [finding.severity for finding in findings]
    each = [
        f"{severities.count(severity)} {word}"
        + "s" * (severities.count(severity) > 1 and severity in ("warning", "note"))
        for severity, word in SEVERITIES.items()
        if severity in severities
    ]
    return f"{'All ' * (len(severities) > 1)}{count(len(severities), 'check')}: {', '.join(each)}"


def traffic_data(plan: Plan) -> dict[str, Any]:
    """Return the data of the chart: for every segment and position the half-width now, and the traffic needed."""
    return {
        "days": plan.days,
        "unlinked": list(plan.unlinked),
        "segments": [
            {
                "name": segment if plan.contexts else "all queries",
                "points": [
                    {
                        "k": k,
                        "margin": float(plan.margin[i, j]),
                        "times": finite(plan.times[i, j]),
                        "least": finite(plan.range[0, i, j]),
                        "most": finite(plan.range[1, i, j]),
                    }
                    for j, k in enumerate(plan.positions)
                ],
            }
            for i, segment in enumerate(plan.segments)
        ],
    }


def traffic_view(plan: Plan, columns: int) -> dict[str, Any]:
    """Return the texts of the section; `columns` is the number of context columns of the model."""
    return {
        "sentence": plan.sentence,
        "width": f"±{100 * plan.width:g} %",
        "level": f"{100 * plan.level:g} %",
        "together": bool(columns) and not plan.contexts,
        "days": plan.days is not None,
    }


def affine_view(model: AffineModel | AffineLevels, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of an affine model: slope and offset of every position."""
    return {
        "sentences": model.sentences(),
        "anchor": model.anchor,
        "percent": f"{100 * level:.4g} %",
        "rows": [row for name, part in model.parts for row in _affine_rows(part, level, f"{name}: " if name else "")],
    }


def _affine_rows(model: AffineModel, level: float, before: str) -> list[dict[str, Any]]:
    predicted = model.predict(level=level)
    columns = ("slope", "slope_lower", "slope_upper", "offset", "offset_lower", "offset_upper")
    return [
        {
            "position": f"{before}{position}",
            "cells": [_affine_cell(getattr(predicted, column)[i], bool(predicted.supported[i])) for column in columns]
            + ["" if predicted.supported[i] else CANNOT_TELL],
        }
        for i, position in enumerate(model.shown)
    ]


def _affine_cell(value: float, supported: bool) -> str:
    return f"{value:.3f}" if supported and np.isfinite(value) else "–"


def browsing_view(fitted: BrowsingPropensities | ReadingPropensities, *, level: float) -> dict[str, Any]:
    """Return the texts and the table of a browsing model by position and last click; of a reading model, its start."""
    if isinstance(fitted, ReadingPropensities):
        model, read = fitted.base, [*fitted.sentences(), "The table is its first step, without what was skipped:"]
    else:
        model, read = fitted, []
    states = model.states
    predicted = states.predict_encoded(typical_context(states), level=level)
    largest = max(float(np.nanmax(predicted.propensity)), 1.0)
    notes = predicted.notes()[0]
    rows = [
        {
            "position": rank,
            "cells": [_browsing_cell(predicted, notes, n, largest) for n in number_of(rank, np.arange(rank)).tolist()],
        }
        for rank in range(1, model.ranks + 1)
    ]
    return {
        "sentences": [*read, *model.sentences()],
        "anchor": model.anchor,
        "typical": "" if states.encoder is None else ", in a typical context",
        "columns": list(range(1, model.ranks)),
        "rows": rows,
        "leaning": UNLINKED if states.leaning else "",
        "percent": "" if states.draws is None else f"{100 * level:.4g} %",
    }


def _browsing_cell(predicted: Prediction, notes: NDArray[np.object_], number: int, largest: float) -> dict[str, Any]:
    state = number - 1
    value = float(predicted.propensity[0, state])
    low, high = float(predicted.lower[0, state]), float(predicted.upper[0, state])
    note = notes[state] or ""
    interval = f"{low:.3g} to {high:.3g}" if np.isfinite(low) and np.isfinite(high) else "no interval"
    supported = bool(predicted.supported[0, state])
    text = "?" if supported and predicted.cannot_tell[0, state] else f"{value:.2f}{'' if supported else '*'}"
    shade = round(100 * DARKEST * value / largest, 1) if np.isfinite(value) else 0.0
    return {"text": text, "note": f"{interval}{f'; {note}' if note else ''}", "shade": shade}
