"""Places of readers that were never clicked: shown often enough, that tells that nobody looks there.

Click shares link two places by units that were clicked at both; of a place without a click the likelihood has no
maximum, and elsewhere there is no estimate of it. Where readers have left, having no click is the rule: under a cascade
nobody looks at what is below a result that all click and that was not clicked. Pooling gives such places a number, as
low as the impressions of units that were clicked elsewhere say.
"""

from __future__ import annotations

import numpy as np

from clickharvest.estimation.estimators import PBM
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.sample import Reach, supported_positions
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import numbered


class ReaderPlaces(PBM):
    """The position-based model of places, those without a click included; parameters are those of `PBM`."""

    def _reach(self, interventions: Interventions, anchor: int) -> Reach:
        told = told_places(interventions, anchor)
        # Nothing but pooling would hold what is never clicked.
        return Reach(told, told) if self._can_cluster(ClickShare, len(told)) else super()._reach(interventions, anchor)


def told_places(interventions: Interventions, anchor: int) -> tuple[int, ...]:
    """Return the places linked to the anchor, and those at which units stood that were clicked at one of these.

    Example:
        Nobody clicked at place 3, where a document stood that was clicked at 1; what stood at 4 was clicked nowhere.

        >>> interventions = Interventions(
        ...     unit=np.array([0, 0, 0, 1, 1]), query=np.zeros(5, int), position=np.array([1, 2, 3, 1, 4]),
        ...     exposure=np.ones(5), clicks=np.array([1, 1, 0, 0, 0]), impressions=np.ones(5, int))
        >>> told_places(interventions, 1)
        (1, 2, 3)
    """
    linked = supported_positions(interventions, anchor)
    _, unit = numbered(interventions.unit)
    there = np.isin(interventions.position, linked)
    told = np.bincount(unit, interventions.clicks * there)[unit] > 0
    return tuple(int(k) for k in np.unique(interventions.position[told | there]))
