"""The section of a report on how much more traffic would bring the interval within the tolerance."""

from __future__ import annotations

from typing import Any

from clickharvest.planning.scaling import Plan
from clickharvest.words import finite


def traffic_data(plan: Plan) -> dict[str, Any]:
    """Return what the chart draws: for every segment and position the half-width now, and what traffic it takes."""
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
