"""Tables of errors that the semi-synthetic experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from clickharvest.experiments.families.models import CLICKSHARE, CPBM
from clickharvest.experiments.runner.experiment import Headline, Row
from clickharvest.experiments.runner.runs import Results


def error_rows(results: Results, *, by: Sequence[str] = (), paper: Mapping[str, float] | None = None) -> list[Row]:
    """Return one row per setting and model: means over runs, standard deviation, and what was left out.

    Args:
        results: the results.
        by: names of settings that tell rows apart, beside the model.
        paper: the paper's RelError of some models; adds a column.

    Example:
        >>> from clickharvest.experiments.runner.runs import Result, Run
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
                "RelError": _number(own.mean("rel_error")),
                "sd": _number(own.sd("rel_error")),
                "by the authors' code": _number(own.mean("rel_error_authors")),
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
    ours: str = CPBM,
    clickshare: str | None = CLICKSHARE,
    name: str = "rel_error",
) -> Headline:
    """Return a line of the last table: the mean error of the paper's estimator and of ClickShare."""
    own = results.where(model=ours)
    other = results.where(model=clickshare) if clickshare is not None else Results()
    return Headline(what, paper, own.mean(name), other.mean(name), len(own.values(name)), own.sd(name), other.sd(name))


def error_points(results: Results, *, x: str) -> list[dict[str, Any]]:
    """Return the points of a line chart: mean and standard deviation of RelError by a setting and the model."""
    points = []
    for cell in _cells(results, (x,)):
        own = results.where(**cell)
        if own.values("rel_error"):
            points.append(cell | {"mean": own.mean("rel_error"), "sd": own.sd("rel_error")})
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


def _number(value: float) -> float | None:
    return None if isnan(value) else value
