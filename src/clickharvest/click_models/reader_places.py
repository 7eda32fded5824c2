"""Places of readers that were never clicked: shown often enough, that tells that nobody looks there.

Click shares link two places by units that were clicked at both; of a place without a click the likelihood has no
maximum, and elsewhere there is no estimate of it. Where readers have left, having no click is the rule: under a cascade
nobody looks at what is below a result that all click and that was not clicked. Pooling gives such places a number, as
low as the impressions of units that were clicked elsewhere say.
"""

from __future__ import annotations

from clickharvest.estimation.estimators import PBM
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.sample import Reach
from clickharvest.harvesting.interventions import Interventions


class ReaderPlaces(PBM):
    """The position-based model of places, those without a click included; parameters are those of `PBM`."""

    def _reach(self, interventions: Interventions, anchor: int) -> Reach:
        reach = super()._reach(interventions, anchor)
        # Nothing but pooling would hold what is never clicked.
        return Reach(reach.tied, reach.tied) if self._can_cluster(ClickShare, len(reach.tied)) else reach
