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

CERTAIN = 1 - 1e-6
"""Share of the traffic from which a result counts as certain to stand at a rank; the rest is rounding."""


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
        table = read_design_table(self.source, log, "the rankings table", {"ranker": "ranker"}, self.position_base)
        return table.cast({"ranker": "string"})

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

    def firsts(self, log: ClickLog) -> ir.Table:
        """Return the rows of a log whose result stood at the pivot before the swap: they stand at the rank drawn.

        Where rankings say where results stood, these are the ones that all traffic has at the pivot.
        """
        t = log.table
        if self.rankings is None:
            self._require_original(log)
            return t.filter(t.original == self.pivot)
        placed = self.rankings.placements(log)
        keys = ["query", *log.context, "doc"]
        certain = placed.filter(placed.position == self.pivot).group_by(*keys).agg(_share=lambda p: p._weight.sum())
        certain = certain.filter(certain._share > CERTAIN)
        return t.semi_join(certain, same(t, certain, keys))

    def _require_original(self, log: ClickLog) -> None:
        if not log.has("original"):
            raise InputError(
                "a swap experiment needs the position before the swap: name the log's column with --original, "
                "or pass the rankings with --rankings"
            )

    def _original_placements(self, log: ClickLog) -> ir.Table:
        self._require_original(log)
        t = log.table
        keys = ["query", *log.context, "doc"]
        placed = t.group_by(*keys, position=t.original).agg(_shown=t.impressions.sum())
        weight = placed._shown / placed._shown.sum().over(ibis.window(group_by=keys))
        return placed.select(*keys, position=placed.position.cast("int64"), _weight=weight)


@dataclass(frozen=True)
class Agreement:
    """How far a log agrees with a design, in impressions.

    Attributes:
        shown: impressions of the log.
        known: those of units that the design has.
        elsewhere: those of them at positions that are impossible by the design.
    """

    shown: int
    known: int
    elsewhere: int


def read_design_table(
    source: Any, log: ClickLog, title: str, further: Mapping[str, str], position_base: int
) -> ir.Table:
    """Return a table as `query`, the log's contexts that it has, `doc`, `position` from 1, and further columns.

    Args:
        source: the table, anything `open_source` takes.
        log: the log whose types its columns take.
        title: what to call it in messages.
        further: the names of the table's further columns, by the names to give them.
        position_base: what the table counts positions from.

    Raises:
        InputError: a column is missing.
    """
    needed = ("query", "doc", "position", *further.values())
    opened, _ = open_source(source, log.engine, text=needed)
    if missing := [name for name in needed if name not in opened.columns]:
        raise InputError(
            f"{title} lacks {', '.join(missing)}: found {', '.join(opened.columns)}; expected {', '.join(needed)}"
        )
    columns = {name: identifier(opened[name], log.columns[name].type()) for name in ("query", "doc")}
    columns |= {name: opened[name].cast(log.columns[name].type()) for name in log.context if name in opened.columns}
    position = (number(opened.position) + (1 - position_base)).cast("int64")
    return opened.select(**columns, position=position, **{name: opened[column] for name, column in further.items()})


def agreement(log: ClickLog, design: Design, max_position: int | None = None) -> Agreement:
    """Count the impressions at positions that are impossible by the design.

    Raises:
        InputError: no impression is where the design says.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 3, "doc": ["a", "a", "b"], "position": [1, 2, 1], "click": [1, 0, 0]}
        >>> ranked = {"query": ["q"], "ranker": ["f"], "doc": ["a"], "position": [1]}
        >>> agreement(read_log(pa.table(shown)), Rankings(pa.table(ranked), traffic={"f": 1}))
        Agreement(shown=3, known=2, elsewhere=1)
    """
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    exposures = design.exposures(log)
    unit = ["query", *log.context, "doc"]
    units = exposures.select(*unit).distinct()
    known = t.semi_join(units, same(t, units, unit))
    elsewhere = known.anti_join(exposures, same(known, exposures, [*unit, "position"]))
    counts = t.agg(shown=t.impressions.sum().fill_null(0).cast("int64")).cross_join(
        known.agg(known=known.impressions.sum().fill_null(0).cast("int64")),
        elsewhere.agg(elsewhere=elsewhere.impressions.sum().fill_null(0).cast("int64")),
    )
    counted = Agreement(**log.engine.fetch(counts, task="Checking the design").to_pylist()[0])
    if counted.known == counted.elsewhere:
        raise InputError(
            "no impression of the log is where the design says it could be: check that the rankings use the "
            "log's queries, documents and position base, and that --traffic names their rankers"
        )
    return counted


def check_design(log: ClickLog, design: Design, max_position: int | None) -> None:
    """Warn of impressions at positions that are impossible by the design.

    Raises:
        InputError: no impression is where the design says.
    """
    counted = agreement(log, design, max_position)
    if outside := counted.shown - counted.known + counted.elsewhere:
        warnings.warn(
            f"{outside:,} of {counted.shown:,} impressions stood where, by the design, they could "
            "not; they are left out. Is a ranker or a swap missing?",
            HarvestWarning,
            stacklevel=3,
        )


def _summed(placements: ir.Table, log: ClickLog) -> ir.Table:
    keys = ["query", *log.context, "doc", "position"]
    return placements.group_by(*keys).agg(exposure=placements._weight.sum()).filter(lambda c: c.exposure > 0)
