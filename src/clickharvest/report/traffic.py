"""How much more traffic would bring the interval within the tolerance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from clickharvest.errors import NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.planning.scaling import WIDTH, Plan, plan_from_log

MOST_SEGMENTS, MOST_COLUMNS = 6, 3
"""With more contexts or columns, all contexts are planned together: the chart has six colours, and a plan of many
columns takes minutes."""


def plan_traffic(
    interventions: Interventions, *, anchor: int = 1, days: float | None = None, width: float = WIDTH
) -> Plan | None:
    """Plan from the interventions of a report; None where nothing is linked, or where they are a part of the log.

    A plan from a part of the log would say how many times that part is needed, not the log.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> plan = plan_traffic(harvest(read_log(simulate_ab_log(pages=2_000)[0], context=["device"])))
        >>> plan.segments
        ['device = mobile', 'device = desktop']
    """
    if interventions.thinned_from:
        return None
    if interventions.contexts and not _are_few(interventions):
        interventions = replace(interventions, contexts={})
    try:
        return plan_from_log(interventions, anchor=anchor, days=days, width=width)
    except NotIdentifiedError:
        return None


def _are_few(interventions: Interventions) -> bool:
    columns = {name: pa.array(column, from_pandas=True) for name, column in interventions.contexts.items()}
    if len(columns) > MOST_COLUMNS:
        return False
    return bool(pa.table(columns).group_by(list(columns)).aggregate([]).num_rows <= MOST_SEGMENTS)


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
                        "times": _finite(plan.times[i, j]),
                        "least": _finite(plan.range[0, i, j]),
                        "most": _finite(plan.range[1, i, j]),
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


def _finite(times: float) -> float | None:
    return float(times) if np.isfinite(times) else None
