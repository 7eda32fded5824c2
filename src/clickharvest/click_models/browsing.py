"""Browsing: whether a result is examined depends on its position and on the last click above it on the page.

    Pr(click | unit u, position k, last click above at j, context x) = γ_{kj}(x) r_u

What is known are the propensities γ_{kj}(x) relative to position 1 with nothing clicked above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from clickharvest.click_models.base import PageModel
from clickharvest.errors import InputError, NotIdentifiedError

if TYPE_CHECKING:
    from clickharvest.diagnosis.findings import Finding
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.browsing import BrowsingPropensities
    from clickharvest.weights.summary import WeightReport
    from clickharvest.weights.weighing import Clip


@dataclass(frozen=True)
class Browsing(PageModel):
    """The user browsing model, estimated by click shares; fields are those of `estimation.browsing.Browsing`."""

    name: ClassVar[str] = "browsing"
    about: ClassVar[str] = "as examination, which the last click above changes"

    def harvest(self, log: ClickLog, **how: Any) -> Interventions:
        """Return the interventions of a log by browsing state; `how` are the arguments of `harvesting.harvest`.

        Raises:
            InputError: the log does not tell pages, or exposures are by design.
            NotIdentifiedError: pages without a click are missing.
        """
        from clickharvest.logs.browsing import browsing_log
        from clickharvest.positions.states import n_states

        if how.get("design") is not None:
            raise InputError(
                "browsing states come about by clicks, not by design: leave out what tells where documents could have "
                "been shown (--rankings, --swap, --placements, --placement, --team-draft)"
            )
        if (lowest := how.get("max_position")) is not None:
            how["max_position"] = n_states(lowest)
        if log.only_clicked_pages:
            raise NotIdentifiedError(
                "pages without a click are missing from the log, so that where nothing above is clicked, something "
                "below must be: that looks as if users read on; give a log of all pages, or fit --model examination"
            )
        return super().harvest(browsing_log(log), **how)

    def fit(self, interventions: Interventions) -> BrowsingPropensities:
        """Return the propensities of browsing states."""
        from clickharvest.estimation.browsing import Browsing as Estimator

        options = {"anchor": self.anchor, "seed": self.seed, "progress": self.progress}
        return Estimator(intervals=self.intervals, **options).fit(interventions).propensities_  # type: ignore[arg-type]

    def check(self, interventions: Interventions, fitted: Any = None) -> Sequence[Finding]:
        """Return whether clicks above explain held-out clicks on a result at one position."""
        from clickharvest.estimation.browsing import compare_within_ranks, is_it_worth_it

        try:
            gain = compare_within_ranks(interventions, anchor=self.anchor, seed=self.seed, progress=self.progress)
        except InputError:  # too few queries to hold any out
            return ()
        return (is_it_worth_it(gain),)

    @classmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, Any]) -> BrowsingPropensities:
        """Return the propensities of a file."""
        from clickharvest.model.browsing import BrowsingPropensities

        return BrowsingPropensities.from_file(header, tensors)

    @classmethod
    def weigh(
        cls, log: ClickLog, fitted: Any, path: Path, *, clip: Clip, normalise: bool, policy_aware: bool
    ) -> WeightReport:
        """Write a log with the propensity of every row's own state, and weights, see `weights.weigh_to_parquet`."""
        from clickharvest.logs.browsing import browsing_log
        from clickharvest.weights.weighing import weigh_to_parquet

        states = browsing_log(log, named=True)
        assert states.places is not None
        wide = fitted.reaching(int(states.places.labels[-1][0]))
        return weigh_to_parquet(states, wide, path, clip=clip, normalise=normalise, policy_aware=policy_aware)
