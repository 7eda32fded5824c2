"""Errors of models on logs of the paper's protocol: tables, numbers beside the paper's, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

from experiments.charts import line_chart
from experiments.experiment import Check, Headline, Row
from experiments.models import CLICKSHARE, ROBUST
from experiments.pages import spell
from experiments.runs import Results

MATCH = 0.02
"""By how much an error may exceed another and still match it."""


def error_rows(results: Results, *, by: Sequence[str] = (), paper: Mapping[str, float] | None = None) -> list[Row]:
    """Return one row per setting and model: mean and median over runs, standard deviation, and what was left out.

    A mean that `is_wild`, and its standard deviation, are left out.

    Args:
        results: the results.
        by: names of settings that distinguish rows, beside the model.
        paper: the paper's RelError of some models; adds a column.

    Example:
        >>> from experiments.runs import Result, Run
        >>> numbers = {"rel_error": 0.2, "rel_error_authors": 0.3, "abs_log": 0.25, "clicks": 10, "curve": "power"}
        >>> row = error_rows(Results([Result(Run("semi_synthetic", "w", 0, {}, {"model": "PBM"}), numbers)]))[0]
        >>> row["model"], row["RelError"], row["runs"], row["without estimate"]
        ('PBM', 0.2, 1, 0)
    """
    rows: list[Row] = []
    for cell in _cells(results, by):
        cell_results = results.where(**cell)
        runs = len(cell_results.values("rel_error"))
        curves = [r.numbers["curve"] for r in cell_results if "curve" in r.numbers]
        row: Row = {**cell, **({} if paper is None else {"paper": paper.get(str(cell["model"]))})}
        row |= {
            "RelError": _mean(cell_results, "rel_error"),
            "sd": _number(nan if cell_results.is_wild("rel_error") else cell_results.sd("rel_error")),
            "median": _number(cell_results.median("rel_error")),
            "by the authors' code": _mean(cell_results, "rel_error_authors"),
            "mean abs log": _number(cell_results.mean("abs_log")),
            "runs": runs,
            "without estimate": len(cell_results) - runs,
            "clicks": round(cell_results.mean("clicks")) if cell_results.values("clicks") else None,
            "curves": ", ".join(f"{curve} × {curves.count(curve)}" for curve in dict.fromkeys(curves)),
        }
        rows.append(row)
    return rows


def error_headline(
    what: str, results: Results, *, paper: float | None = None, ours: str = ROBUST, clickshare: str = CLICKSHARE
) -> Headline:
    """Return the mean RelError of the paper's estimator and of ClickShare.

    Where either mean `is_wild`, both numbers are medians, and `what` says so.
    """
    pairs, shares = results.where(model=ours), results.where(model=clickshare)
    if not (pairs.is_wild("rel_error") or shares.is_wild("rel_error")):
        return Headline.of(what, "rel_error", pairs, shares, paper=paper)
    medians = pairs.median("rel_error"), shares.median("rel_error")
    return Headline(f"{what}, median", paper, *medians, len(pairs.values("rel_error")))


def typical_errors(results: Results, by: str, models: Sequence[str]) -> dict[str, list[float]]:
    """Return the errors of models at each value of a setting, NaN where there is none."""
    return {
        model: [results.where(model=model, **{by: value}).typical("rel_error") for value in results.settings(by)]
        for model in models
    }


def outperforms_or_matches(claim: str, places: Sequence[str], low: Sequence[float], high: Sequence[float]) -> Check:
    """Return the check that one model is nowhere above another by more than `MATCH`.

    Example:
        >>> check = outperforms_or_matches("a is no worse than b", ["1", "2", "3"], [0.3, 0.1, nan], [0.2, 0.09, 0.1])
        >>> check.verdict, check.sentence
        ('FAIL', 'not at 1 (0.3000 against 0.2000); matches at 2; no error at 3; to match is to be at most 0.02 above')
    """
    kinds: dict[str, list[str]] = {"not at": [], "below at": [], "matches at": [], "no error at": []}
    for place, a, b in zip(places, low, high, strict=True):
        if isnan(a) or isnan(b):
            kinds["no error at"].append(place)
        elif a > b + MATCH:
            kinds["not at"].append(f"{place} ({spell(a)} against {spell(b)})")
        else:
            kinds["matches at" if a > b - MATCH else "below at"].append(place)
    parts = [f"{kind} {', '.join(where)}" for kind, where in kinds.items() if where]
    is_known = len(kinds["no error at"]) < len(places)
    sentence = "; ".join([*parts, f"to match is to be at most {MATCH} above"])
    return Check(claim, is_known and not kinds["not at"], sentence)


def error_chart(results: Results, x: str, x_title: str, **options: Any) -> Any:
    """Return RelError by a setting, one line per model.

    Where the mean `is_wild` the point is the median, without a bar.
    """
    points = []
    for cell in _cells(results, (x,)):
        cell_results = results.where(**cell)
        if cell_results.values("rel_error"):
            sd = nan if cell_results.is_wild("rel_error") else cell_results.sd("rel_error")
            points.append(cell | {"mean": cell_results.typical("rel_error"), "sd": sd})
    return line_chart(points, x=x, x_title=x_title, y_title="RelError", **options)


def _cells(results: Results, by: Sequence[str]) -> list[dict[str, Any]]:
    names = (*by, "model")
    cells = dict.fromkeys(tuple(r.run[name] for name in names) for r in results)
    return [dict(zip(names, values, strict=True)) for values in cells]


def _mean(results: Results, name: str) -> float | None:
    return None if results.is_wild(name) else _number(results.mean(name))


def _number(value: float) -> float | None:
    return None if isnan(value) else value
