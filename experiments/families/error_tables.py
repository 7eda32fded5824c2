"""Tables of errors that the semi-synthetic experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

from experiments.families.models import CLICKSHARE, ROBUST
from experiments.runner.experiment import Check, Headline, Row
from experiments.runner.runs import Results
from experiments.runner.spelling import spell


def error_rows(results: Results, *, by: Sequence[str] = (), paper: Mapping[str, float] | None = None) -> list[Row]:
    """Return one row per setting and model: mean and median over runs, standard deviation, and what was left out.

    A mean that `is_wild`, and its standard deviation, are left out.

    Args:
        results: the results.
        by: names of settings that tell rows apart, beside the model.
        paper: the paper's RelError of some models; adds a column.

    Example:
        >>> from experiments.runner.runs import Result, Run
        >>> numbers = {"rel_error": 0.2, "rel_error_authors": 0.3, "abs_log": 0.25, "clicks": 10, "curve": "power"}
        >>> row = error_rows(Results([Result(Run("f", "w", 0, {}, {"model": "PBM"}), numbers)]))[0]
        >>> row["model"], row["RelError"], row["runs"], row["without estimate"]
        ('PBM', 0.2, 1, 0)
    """  # fmt: skip
    rows: list[Row] = []
    for cell in _cells(results, by):
        own = results.where(**cell)
        row: Row = dict(cell)
        if paper is not None:
            row["paper"] = paper.get(str(cell["model"]))
        rows.append(
            row
            | {
                "RelError": _mean(own, "rel_error"),
                "sd": _number(nan if own.is_wild("rel_error") else own.sd("rel_error")),
                "median": _number(own.median("rel_error")),
                "by the authors' code": _mean(own, "rel_error_authors"),
                "mean abs log": _number(own.mean("abs_log")),
                "runs": len(own.values("rel_error")),
                "without estimate": len(own) - len(own.values("rel_error")),
                "clicks": round(own.mean("clicks")) if own.values("clicks") else None,
                "curves": _curves(own),
            }
        )
    return rows


def error_headline(
    what: str,
    results: Results,
    *,
    paper: float | None,
    ours: str = ROBUST,
    clickshare: str | None = CLICKSHARE,
    name: str = "rel_error",
) -> Headline:
    """Return a line of the last table: the mean error of the paper's estimator and of ClickShare.

    Where either mean `is_wild`, both numbers are medians, and the line says so.
    """
    own = results.where(model=ours)
    other = results.where(model=clickshare) if clickshare is not None else Results()
    runs = len(own.values(name))
    if own.is_wild(name) or other.is_wild(name):
        return Headline(f"{what}, median", paper, own.median(name), other.median(name), runs)
    return Headline(what, paper, own.mean(name), other.mean(name), runs, own.sd(name), other.sd(name))


MATCH = 0.02
"""By how much an error may exceed another and still match it."""


def typical_errors(results: Results, by: str, models: Sequence[str]) -> dict[str, list[float]]:
    """Return the errors of models at each value of a setting, NaN where there is none."""
    return {
        model: [results.where(model=model, **{by: value}).typical("rel_error") for value in results.settings(by)]
        for model in models
    }


def outperforms_or_matches(claim: str, places: Sequence[str], low: Sequence[float], high: Sequence[float]) -> Check:
    """Return the check that one model is nowhere above another by more than `MATCH`; places without an error are told.

    Example:
        >>> check = outperforms_or_matches("a is no worse than b", ["1", "2", "3"], [0.3, 0.1, nan], [0.2, 0.09, 0.1])
        >>> check.verdict, check.sentence
        ('FAIL', 'not at 1 (0.3000 against 0.2000); matches at 2; no error at 3; to match is to be at most 0.02 above')
    """
    told: dict[str, list[str]] = {"not at": [], "below at": [], "matches at": [], "no error at": []}
    for place, a, b in zip(places, low, high, strict=True):
        if isnan(a) or isnan(b):
            told["no error at"].append(place)
        elif a > b + MATCH:
            told["not at"].append(f"{place} ({spell(a)} against {spell(b)})")
        else:
            told["matches at" if a > b - MATCH else "below at"].append(place)
    parts = [f"{what} {', '.join(where)}" for what, where in told.items() if where]
    is_known = len(told["no error at"]) < len(places)
    sentence = "; ".join([*parts, f"to match is to be at most {MATCH} above"])
    return Check(claim, is_known and not told["not at"], sentence)


def error_points(results: Results, *, x: str) -> list[dict[str, Any]]:
    """Return the points of a line chart: mean and standard deviation of RelError by a setting and the model.

    Where the mean `is_wild` the point is the median, without a bar.
    """
    points = []
    for cell in _cells(results, (x,)):
        own = results.where(**cell)
        if own.values("rel_error"):
            sd = nan if own.is_wild("rel_error") else own.sd("rel_error")
            points.append(cell | {"mean": own.typical("rel_error"), "sd": sd})
    return points


def _cells(results: Results, by: Sequence[str]) -> list[dict[str, Any]]:
    names = (*by, "model")
    return [
        dict(zip(names, values, strict=True))
        for values in dict.fromkeys(tuple(r.run[n] for n in names) for r in results)
    ]


def _curves(own: Results) -> str:
    found = [r.numbers["curve"] for r in own if "curve" in r.numbers]
    return ", ".join(f"{curve} × {found.count(curve)}" for curve in dict.fromkeys(found))


def _mean(own: Results, name: str) -> float | None:
    return None if own.is_wild(name) else _number(own.mean(name))


def _number(value: float) -> float | None:
    return None if isnan(value) else value
