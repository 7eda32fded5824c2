"""How many times a log until noise is within the tolerance: the one number that all commands print."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from clickharvest.errors import NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import code_values, distinct
from clickharvest.parameters import TOLERANCE
from clickharvest.planning.scaling import Plan, plan_from_log

MOST_SEGMENTS, MOST_COLUMNS = 6, 3
"""With more contexts or columns, all contexts are planned together: a plan of many columns takes minutes."""


def plan_traffic(
    interventions: Interventions, *, anchor: int = 1, days: float | None = None, width: float = TOLERANCE
) -> Plan | None:
    """Plan from interventions; None where nothing is linked, at places, or where they are a part of the log.

    A plan from a part of the log would say how many times that part is needed, not the log.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> plan = plan_traffic(harvest(read_log(simulate_ab_log(pages=2_000)[0], context=["device"])))
        >>> plan.segments
        ['device = mobile', 'device = desktop']
    """
    if interventions.thinned_from or interventions.places is not None:
        return None
    if interventions.contexts and not _are_few(interventions):
        interventions = replace(interventions, contexts={})
    try:
        return plan_from_log(interventions, anchor=anchor, days=days, width=width)
    except NotIdentifiedError:
        return None


def times_needed(
    interventions: Interventions, tolerance: float, positions: Collection[int], *, anchor: int = 1
) -> float | None:
    """Return how many times this log brings noise within the tolerance at all these positions, infinite if never.

    None where no plan can be made, or only one of all contexts together.
    """
    plan = plan_traffic(interventions, anchor=anchor, width=tolerance)
    if plan is None or len(plan.contexts) != len(interventions.contexts):
        return None
    asked = np.isin(plan.positions, sorted(positions))
    return float(plan.times[:, asked].max()) if asked.any() else None


def _are_few(interventions: Interventions) -> bool:
    columns = list(interventions.contexts.values())
    return len(columns) <= MOST_COLUMNS and len(distinct(*map(code_values, columns))[0]) <= MOST_SEGMENTS
