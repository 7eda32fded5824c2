"""Designs of stochastic policies: logged probabilities of placement, and team-draft interleaving.

- `Placements`: a table of the probability with which each document was placed at each position of a query.
- `LoggedPlacements`: the log itself has, in every row, the probability with which its document was placed where it
  stood (column `propensity_of_placement`). Where else it could have stood is known as far as it stood there at times.
  With q_i the probabilities logged at the n impressions of a unit at position k, its exposure there is n / Σ_i 1/q_i:
  as E Σ_i 1/q_i is the number of pages, that is the mean probability over all of them, also where it varied.
- `TeamDraft`: two rankings were interleaved by team draft: in each round a coin decides which of them picks first, and
  each picks its best document that is not yet on the page. Exposures sum over all sequences of coins.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import ibis
import ibis.expr.types as ir
import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.harvesting.designs import Rankings, read_design_table
from clickharvest.logs.click_log import ClickLog, number, same

LOGGED = "propensity_of_placement"
"""The log's column of logged probabilities, unless another is named."""
DEEPEST = 16
"""Most results that are interleaved: there are two to the power of half as many sequences of coins."""
NOWHERE = 2**30
"""Rank of what a ranker does not show."""


@dataclass(frozen=True)
class Placements:
    """A table of the probability with which each document was placed at each position.

    Attributes:
        source: a table (anything `open_source` takes) with columns `query, doc, position, probability`, and any context
            columns of the log that the policy depends on.
        position_base: 0 where the table counts positions from 0.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
        >>> placed = {"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "probability": [0.9, 0.1]}
        >>> design = Placements(pa.table(placed))
        >>> log.engine.fetch(design.exposures(log).order_by("position"), task="")["exposure"].to_pylist()
        [0.9, 0.1]
    """

    source: Any
    position_base: int = 1

    def exposures(self, log: ClickLog) -> ir.Table:
        """Return the probabilities of every unit whose query (and context) the log has."""
        further = {"exposure": "probability"}
        placed = read_design_table(self.source, log, "the table of placements", further, self.position_base)
        placed = placed.mutate(exposure=number(placed.exposure).cast("float64"))
        if wrong := _count_wrong(log, placed, placed.exposure.between(0, 1)):
            raise InputError(
                f"the table of placements, column 'probability': {wrong:,} rows are no numbers from 0 to 1; give "
                "probabilities"
            )
        shared = [name for name in log.context if name in placed.columns]
        seen = log.table.select("query", *log.context).distinct()
        joined = seen.inner_join(placed, same(seen, placed, ["query", *shared]), rname="placed_{name}")
        keys = ["query", *log.context, "doc", "position"]
        return joined.group_by(*keys).agg(exposure=joined.exposure.sum()).filter(lambda c: c.exposure > 0)


@dataclass(frozen=True)
class LoggedPlacements:
    """Probabilities of placement that the log itself has, row by row.

    A unit has one exposure at a position, the harmonic mean of its probabilities there. A policy that depends on what
    also changes how much a result is wanted, such as the user, needs that as a context.

    Attributes:
        column: the log's column.

    Example:
        Shown once at 1, where it is placed on three pages of four, and once at 2, on one of four.

        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "click": [1, 1]}
        >>> log = read_log(pa.table(shown | {"propensity_of_placement": [0.75, 0.25]}))
        >>> log.engine.fetch(LoggedPlacements().exposures(log).order_by("position"), task="")["exposure"].to_pylist()
        [0.75, 0.25]
    """

    column: str = LOGGED

    def exposures(self, log: ClickLog) -> ir.Table:
        """Return the mean probability of every unit at every position where it stood."""
        if self.column not in log.source.columns:
            raise InputError(
                f"the log has no column {self.column!r} of probabilities of placement: found "
                f"{', '.join(log.source.columns)}; name it with --placement COLUMN"
            )
        names = ("query", *log.context, "doc", "position", "impressions")
        rows = log.source.select(
            **{name: log.columns[name] for name in names}, exposure=number(log.source[self.column]).cast("float64")
        )
        rows = rows.filter(rows.impressions > 0)
        if wrong := _count_wrong(log, rows, (rows.exposure > 0) & (rows.exposure <= 1)):
            raise InputError(
                f"column {self.column!r}: {wrong:,} rows are no probabilities, above 0 and at most 1: what was shown "
                "must have been possible"
            )
        keys = ["query", *log.context, "doc", "position"]
        shown = rows.group_by(*keys).agg(n=rows.impressions.sum(), inverse=(rows.impressions / rows.exposure).sum())
        return shown.select(*keys, exposure=shown.n / shown.inverse)


@dataclass(frozen=True)
class TeamDraft:
    """Two rankings that were interleaved by team draft.

    Attributes:
        rankings: the two rankings, see `Rankings`; traffic means nothing here.
        depth: results of a page.

    Example:
        The rankers agree on a; b and c stand at 2 or 3, as the coin of the second round falls.

        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
        >>> ranked = {"query": ["q"] * 6, "ranker": list("fffggg"), "doc": list("abcacb"), "position": [1, 2, 3] * 2}
        >>> design = TeamDraft(Rankings(pa.table(ranked)), depth=3)
        >>> rows = log.engine.fetch(design.exposures(log).order_by("doc", "position"), task="").to_pylist()
        >>> [(row["doc"], row["position"], row["exposure"]) for row in rows]
        [('a', 1, 1.0), ('b', 2, 0.5), ('b', 3, 0.5), ('c', 2, 0.5), ('c', 3, 0.5)]
    """

    rankings: Rankings
    depth: int = 10

    def __post_init__(self) -> None:
        if not 2 <= self.depth <= DEEPEST:
            raise InputError(f"team draft of {self.depth} results: expected 2 to {DEEPEST}")

    def exposures(self, log: ClickLog) -> ir.Table:
        """Return the probability that a unit is placed at a position, for every unit and position."""
        import pyarrow as pa

        ranked = self.rankings.read(log)
        shared = [name for name in log.context if name in ranked.columns]
        seen = log.table.select("query").distinct()
        kept = ranked.semi_join(seen, "query").filter(lambda r: r.position <= self.depth * 2)
        rows = log.engine.fetch(kept.order_by("query", *shared, "doc"), task="Reading rankings")
        names, arm = np.unique(rows["ranker"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
        if len(names) != 2:
            raise InputError(
                f"team draft interleaves two rankers, found {', '.join(names) or 'none'}: give both rankings"
            )
        keys = rows.select(["query", *shared, "doc"])
        pages = keys.select(["query", *shared])
        page, unit = _run_numbers(pages), _run_numbers(keys)
        first = np.unique(unit, return_index=True)[1]
        rank = np.full((len(first), 2), NOWHERE)
        rank[unit, arm] = rows["position"].to_numpy()
        probability = _interleaved(page[first], rank, self.depth)
        at, place = np.nonzero(probability)
        units = keys.take(pa.array(first[at]))
        columns = {name: units[name] for name in units.column_names}
        drawn = ibis.memtable(pa.table(columns | {"position": place + 1, "exposure": probability[at, place]}))
        logged = log.table.select("query", *log.context).distinct()
        joined = logged.inner_join(drawn, same(logged, drawn, ["query", *shared]), rname="drawn_{name}")
        return joined.select("query", *log.context, "doc", joined.position.cast("int64"), "exposure")


def _count_wrong(log: ClickLog, rows: ir.Table, right: ir.BooleanValue) -> int:
    """Return how many rows have another probability, or none."""
    wrong = ~right | rows.exposure.isnan() | rows.exposure.isnull()
    counted = log.engine.fetch(rows.agg(wrong=wrong.sum().fill_null(0)), task="Reading placements")
    return int(counted["wrong"][0].as_py())


def _run_numbers(table: Any) -> NDArray[np.int64]:
    """Return the number of each row of a sorted table; equal rows have equal numbers."""
    rows = table.to_pylist()
    changed = [0, *(one != two for one, two in zip(rows[1:], rows[:-1], strict=True))]
    return np.cumsum(changed).astype(np.int64)


def _interleaved(page: NDArray[np.int64], rank: NDArray[np.int64], depth: int) -> NDArray[np.float64]:
    """Return the probability of every unit to be placed at every position, [units, depth].

    Args:
        page: number of each unit's page, ascending, [units].
        rank: where both rankers put it, [units, 2].
        depth: results of a page.
    """
    placed = np.zeros((len(page), depth))
    pages = int(page.max(initial=-1)) + 1
    rounds = (depth + 1) // 2
    for coins in product((0, 1), repeat=rounds):
        free = np.ones(len(page), dtype=bool)
        for position in range(depth):
            team = coins[position // 2] if position % 2 == 0 else 1 - coins[position // 2]
            left = np.where(free, rank[:, team], NOWHERE)
            best = np.full(pages, NOWHERE)
            np.minimum.at(best, page, left)
            picked = (left == best[page]) & (left < NOWHERE)
            placed[picked, position] += 1
            free &= ~picked
    placed /= 2**rounds
    return placed
