"""The options of commands that harvest: what a unit is, where displays come from, and how many clicks are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from clickharvest.commands.bounds import MOST_RANKS, POSITION, whole
from clickharvest.commands.options import QUERY, UNITS, LogOptions, option, parse_shares
from clickharvest.errors import InputError
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.harvesting.designs import Design
    from clickharvest.harvesting.interventions import Interventions, UnitKind


class UnitName(StrEnum):
    """What makes a unit."""

    context = "context"
    query = "query"


_unit = partial(option, panel=UNITS)


@dataclass(frozen=True)
class HarvestOptions:
    """What makes a unit, and where documents could have been shown."""

    unit: UnitName = _unit(
        "A unit is a query, context and document; or 'query': a query and document, contexts vary inside.",
        default=UnitName.context, rare=True,
    )  # fmt: skip
    max_position: int | None = _unit("Leave out lower positions.", "K", rare=True, check=whole(*POSITION))
    rankings: str | None = _unit(
        "Table of query, ranker, doc, position for all rankers: design exposures.", "FILE", rare=True
    )
    traffic: str | None = _unit(
        "Traffic meant for each ranker; counted from the log by default.", "A=50,B=50", rare=True
    )
    swap: str | None = _unit(
        "Rank 1 was swapped with a rank drawn from 1…K; or 1=.5,2=.3,… with probabilities.", "K", rare=True
    )
    placements: str | None = _unit(
        "Table of query, doc, position, probability of a stochastic policy: design exposures.", "FILE", rare=True
    )
    placement: str | None = _unit(
        "Column of the logged probability of each placement, such as propensity_of_placement.", "COLUMN", rare=True
    )
    team_draft: int | None = _unit(
        "Pages of K results interleave the two rankers of --rankings by team draft.", "K", rare=True
    )

    @property
    def unit_kind(self) -> UnitKind:
        """What makes a unit, as `harvest` takes it."""
        return "query" if self.unit is UnitName.query else "context"

    @property
    def shares(self) -> Mapping[str, float] | None:
        """The traffic meant for each ranker, if given."""
        return None if self.traffic is None else parse_shares(self.traffic, "--traffic")

    def read_interventions(self, log: LogOptions) -> Interventions:
        """Return the interventions of a file.

        Raises:
            InputError: they are no interventions, or other places are named than theirs.
        """
        from clickharvest.harvesting.reading import read_interventions

        found = read_interventions(log.source, unit=self.unit_kind)
        own = () if found.places is None else found.places.columns
        asked = log.place_columns
        if asked and tuple(map(str.lower, asked)) != tuple(map(str.lower, own)):
            raise InputError(
                f"--place {','.join(asked)}: {clean_text(log.source)} holds interventions at "
                f"{'places by ' + ', '.join(own) if own else 'positions of a list'}; leave it out, or give the log"
            )
        return found

    def arguments(self, log: LogOptions, rankings_source: Any = None) -> dict[str, Any]:
        """Return the keyword arguments that `harvest` and its kin take."""
        design = self.design(log.base, rankings_source)
        return {"unit": self.unit_kind, "max_position": self.max_position, "design": design}

    def design(self, position_base: int, rankings_source: Any = None) -> Design | None:
        """Return the design the options describe, if any; `rankings_source` stands in for the file named."""
        from clickharvest.harvesting.designs import Rankings, Swap
        from clickharvest.harvesting.placements import LoggedPlacements, Placements, TeamDraft

        source = rankings_source if rankings_source is not None else self.rankings
        rankings = Rankings(source, self.shares, position_base) if source is not None else None
        asked = {"--placements": self.placements, "--placement": self.placement, "--team-draft": self.team_draft,
                 "--swap": self.swap}  # fmt: skip
        if len(given := [option for option, value in asked.items() if value is not None]) > 1:
            raise InputError(f"{' and '.join(given)} describe two designs: give one")
        if self.placements is not None:
            return Placements(self.placements, position_base)
        if self.placement is not None:
            return LoggedPlacements(self.placement)
        if self.team_draft is not None:
            if rankings is None:
                raise InputError("--team-draft needs the two rankings: name their table with --rankings")
            return TeamDraft(rankings, self.team_draft)
        if self.swap is None:
            return rankings
        if self.swap.strip().isdecimal():
            return Swap.uniform(_rank(self.swap, self.swap), rankings)
        probabilities = {_rank(rank, self.swap): p for rank, p in parse_shares(self.swap, "--swap").items()}
        return Swap(probabilities, rankings)


def require_clusters(interventions: Interventions, cluster: str, source: str) -> None:
    """Refuse clusters that a file of interventions does not have: its clicks are divided already, or not at all."""
    if cluster not in (QUERY, interventions.cluster_kind):
        raise InputError(
            f"--cluster {cluster}: {source} was harvested by {interventions.cluster_kind}; harvest the log again with "
            f"--cluster {cluster}"
        )


def _rank(text: str, option: str) -> int:
    """Return a rank, or number of ranks, of a swap."""
    try:
        rank = int(text)
    except ValueError:
        rank = 0
    if not 1 <= rank <= MOST_RANKS:
        told = clean_text(option, 60)
        raise InputError(
            f"--swap {told}: expected a number of ranks, or 1=.5,2=.3,…, of ranks from 1 to {MOST_RANKS:,}"
        )
    return rank
