"""Designs: where a document could have been shown, and with which probability.

- `Rankings`: the rankings of all rankers for a query are known. With n_i the traffic of ranker i,
  q_k(u) = Σ_i n_i 1[rank(d | f_i(x)) = k] / Σ_i n_i. Even a query seen once contributes: it is known where else
  its documents could have been shown.
- `Swap`: the result at rank 1 was exchanged with the one at a random rank s, drawn with probability π(s). A
  document that its ranker had put at rank j stands, with probability π(s), at s if j = 1, at 1 if j = s, and at
  j otherwise. The ranks j come from rankings, or from the log's `original` column.

Both describe assignments that do not depend on clicks, so that exposures are immune to rankers that learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import ibis
import ibis.expr.types as ir

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.click_log import ClickLog, identifier, number, same
from clickharvest.logs.sources import open_source


class Design(Protocol):
    """Anything that knows the exposure of every unit of a log at every position."""

    def exposures(self, log: ClickLog) -> ir.Table:
        """Return columns `query`, the log's context, `doc`, `position` and `exposure` > 0, one row per cell."""
        ...


@dataclass(frozen=True)
class Rankings:
    """The rankings of every ranker, for the queries of a log.

    Attributes:
        source: a table (anything `open_source` takes) with columns `query, ranker, doc, position`, and any
            context columns of the log that the rankings depend on.
        traffic: share of the queries each ranker served, in any unit; by default counted from the log's
            `ranker` column (impressions at position 1).
        position_base: 0 where the table counts positions from 0.

    Example:
        >>> from clickharvest.logs.reading import read_log
        >>> import pyarrow as pa
        >>> log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
        >>> ranked = {"query": ["q", "q"], "ranker": ["f", "g"], "doc": ["a", "a"], "position": [1, 2]}
        >>> design = Rankings(pa.table(ranked), traffic={"f": 3, "g": 1})
        >>> log.engine.fetch(design.exposures(log).order_by("position"), task="")["exposure"].to_pylist()
        [0.75, 0.25]
    """

    source: Any
    traffic: Mapping[str, float] | None = None
    position_base: int = 1

    def exposures(self, log: ClickLog) -> ir.Table:
        """Return q_k of every unit whose query (and context) the log has."""
        return _summed(self.placements(log), log)

    def placements(self, log: ClickLog) -> ir.Table:
        """Return one row per unit and ranker: where the ranker puts it, and the ranker's share as `_weight`."""
        ranked = self.read(log)
        shared = [name for name in log.context if name in ranked.columns]
        seen = log.table.select("query", *log.context).distinct()
        keys = ["query", *shared]
        ranked = seen.inner_join(ranked, same(seen, ranked, keys), rname="ranked_{name}")
        columns = ("query", *log.context, "doc", "position")
        if self.traffic is not None:
            weights = self._given_shares()
            weight = ranked.ranker.cases(*weights.items(), else_=0.0)
            return ranked.select(*columns, _weight=weight)
        counted = self._counted_shares(log)
        joined = ranked.inner_join(counted, ranked.ranker == counted._arm)
        return joined.select(*columns, _weight=counted._share)

    def read(self, log: ClickLog) -> ir.Table:
        """Return the rankings as `query`, the log's contexts that they depend on, `doc`, `ranker`, `position`."""
        opened, _ = open_source(self.source, log.engine, text=("query", "ranker", "doc", "position"))
        missing = [name for name in ("query", "ranker", "doc", "position") if name not in opened.columns]
        if missing:
            raise InputError(
                f"the rankings table lacks {', '.join(missing)}: found {', '.join(opened.columns)}; "
                "expected query, ranker, doc, position"
            )
        columns = {name: identifier(opened[name], log.columns[name].type()) for name in ("query", "doc")}
        columns |= {name: opened[name].cast(log.columns[name].type()) for name in log.context if name in opened.columns}
        position = number(opened.position) + (1 - self.position_base)
        return opened.select(**columns, ranker=opened.ranker.cast("string"), position=position.cast("int64"))

    def _given_shares(self) -> dict[str, float]:
        assert self.traffic is not None
        total = sum(self.traffic.values())
        if total <= 0 or min(self.traffic.values()) < 0:
            raise InputError(f"traffic must be 0 or more for every ranker and positive in all: {dict(self.traffic)}")
        return {str(ranker): share / total for ranker, share in self.traffic.items()}

    def _counted_shares(self, log: ClickLog) -> ir.Table:
        if not log.has("ranker"):
            raise InputError(
                "design exposures need the traffic of each ranker: name the log's ranker column with --ranker, "
                "or give the shares with --traffic a=50,b=50"
            )
        top = log.table.filter(log.table.position == 1)
        counted = top.group_by(_arm=top.ranker.cast("string")).agg(pages=top.impressions.sum().cast("float64"))
        return counted.select("_arm", _share=counted.pages / counted.pages.sum().over(ibis.window()))


@dataclass(frozen=True)
class Swap:
    """An explicit experiment that exchanges the result at `pivot` with the one at a random rank.

    Attributes:
        probabilities: probability of each rank to be drawn; drawing the pivot itself changes nothing.
        rankings: the rankings before the swap; by default they come from the log's `original` column.
        pivot: the rank that is exchanged, 1 by default.

    Example:
        >>> Swap.uniform(4).probabilities
        {1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}
    """

    probabilities: Mapping[int, float]
    rankings: Rankings | None = None
    pivot: int = 1

    def __post_init__(self) -> None:
        if not self.probabilities or min(self.probabilities) < 1 or self.pivot < 1:
            raise InputError("a swap needs ranks of 1 or more, such as Swap.uniform(10)")
        total = sum(self.probabilities.values())
        if min(self.probabilities.values()) < 0 or abs(total - 1) > 1e-6:
            raise InputError(f"the swap probabilities must be 0 or more and sum to 1; they sum to {total:g}")

    @classmethod
    def uniform(cls, ranks: int, rankings: Rankings | None = None) -> Swap:
        """Return the design that draws each of the ranks 1 … `ranks` equally often."""
        if ranks < 2:
            raise InputError(f"a swap over {ranks} ranks changes nothing: expected 2 or more")
        return cls(dict.fromkeys(range(1, ranks + 1), 1 / ranks), rankings)

    def exposures(self, log: ClickLog) -> ir.Table:
        """Return the probability that a unit is shown at a position after the swap, for every unit and position."""
        placed = self.rankings.placements(log) if self.rankings else self._original_placements(log)
        drawn = [
            placed.mutate(
                position=placed.position.cases((self.pivot, rank), (rank, self.pivot), else_=placed.position),
                _weight=placed._weight * probability,
            )
            for rank, probability in self.probabilities.items()
            if probability > 0
        ]
        return _summed(ibis.union(*drawn) if len(drawn) > 1 else drawn[0], log)

    def _original_placements(self, log: ClickLog) -> ir.Table:
        if not log.has("original"):
            raise InputError(
                "a swap experiment needs the position before the swap: name the log's column with --original, "
                "or pass the rankings with --rankings"
            )
        t = log.table
        keys = ["query", *log.context, "doc"]
        placed = t.group_by(*keys, position=t.original).agg(_shown=t.impressions.sum())
        weight = placed._shown / placed._shown.sum().over(ibis.window(group_by=keys))
        return placed.select(*keys, position=placed.position.cast("int64"), _weight=weight)


def check_design(log: ClickLog, design: Design, max_position: int | None) -> None:
    """Warn of impressions at positions where, by the design, they could not have been.

    Raises:
        InputError: no impression is where the design says.
    """
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    exposures = design.exposures(log)
    keys = ["query", *log.context, "doc", "position"]
    unexplained = t.anti_join(exposures, same(t, exposures, keys))
    counts = t.agg(shown=t.impressions.sum()).cross_join(
        unexplained.agg(outside=unexplained.impressions.sum().fill_null(0))
    )
    total = log.engine.fetch(counts, task="Checking the design").to_pylist()[0]
    if total["outside"] == total["shown"]:
        raise InputError(
            "no impression of the log is where the design says it could be: check that the rankings use the "
            "log's queries, documents and position base, and that --traffic names their rankers"
        )
    if total["outside"]:
        warnings.warn(
            f"{total['outside']:,.0f} of {total['shown']:,.0f} impressions stood where, by the design, they could "
            "not; they are left out. Is a ranker or a swap missing?",
            HarvestWarning,
            stacklevel=3,
        )


def _summed(placements: ir.Table, log: ClickLog) -> ir.Table:
    keys = ["query", *log.context, "doc", "position"]
    return placements.group_by(*keys).agg(exposure=placements._weight.sum()).filter(lambda c: c.exposure > 0)
