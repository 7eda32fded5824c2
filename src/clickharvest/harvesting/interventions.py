"""Interventions: what a harvest leaves of a log, and all that estimation needs of it.

One row per unit and position it was exposed at (and per context, where contexts vary inside a unit):

| column | what it holds |
|---|---|
| `unit` | number of the unit: one query, context and document whose relevance stays the same |
| `query` | the unit's query; units of one query are statistically dependent |
| `position` | a position the unit was, or by design could have been, shown at |
| `exposure` | how much: impressions there (realised) or probability (design) |
| `clicks` | clicks it got there |
| `impressions` | times it was really shown there |
| context columns | one column each, in the log's own values |
| `clustered_by_user` | only with clusters other than queries: number of the one who clicked; −1 without a click |

With clusters other than queries a unit's clicks at a position are divided among the clusters that they come from, one
row each; its impressions without a click have a row of their own. Every such row has the unit's whole exposure there.

This module needs NumPy alone; Arrow is imported where a file is written. The module `reading` reads a file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.files import atomic_path
from clickharvest.harvesting.numbering import distinct, numbered
from clickharvest.positions.places import Places
from clickharvest.words import count

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("unit", "query", "position", "exposure", "clicks", "impressions")
CLUSTERED_BY = "clustered_by_"
"""Prefix of the column of clusters, before the name of what clusters."""
QUERY = "query"
"""The default of what clusters."""
NOBODY = -1
"""Cluster of rows without clicks."""

ExposureKind = Literal["realised", "design"]
UnitKind = Literal["context", "query"]


@dataclass(frozen=True, eq=False)
class Interventions:
    """Units shown at two positions or more, one row per unit and position.

    Attributes:
        unit: unit numbers, int64 [n]; rows of one unit stand together.
        query: query of each row, [n].
        position: positions from 1, int64 [n].
        exposure: positive exposures e_{u,k}, float64 [n].
        clicks: clicks, int64 [n].
        impressions: impressions, int64 [n].
        contexts: context columns, each [n].
        exposure_kind: `"realised"` (impressions) or `"design"` (assignment probabilities).
        unit_kind: `"context"` where every unit has one context, `"query"` where contexts vary inside a unit.
        cluster: where clicks are divided among clusters, the number of each row's, −1 in rows without clicks, [n].
        cluster_kind: what clusters: clicks of one cluster depend on each other, those of different ones do not.
        only_clicked_pages: whether pages without a click are missing from the log, see `warn_of_clicked_pages`.
        thinned_from: clicks of the whole harvest, where this is a part of it; 0 where it is whole.
        places: what positions stand for, where they are numbers of places and not of a list.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]),
        ...     exposure=np.array([3.0, 1.0]), clicks=np.array([2, 0]), impressions=np.array([3, 1]))
        >>> print(interventions)
        Interventions: 1 unit, 2 rows, 2 clicks, positions 1-2, realised exposures, no context
    """

    unit: NDArray[np.int64]
    query: NDArray[Any]
    position: NDArray[np.int64]
    exposure: NDArray[np.float64]
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    contexts: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    exposure_kind: ExposureKind = "realised"
    unit_kind: UnitKind = "context"
    cluster: NDArray[np.int64] | None = None
    cluster_kind: str = QUERY
    only_clicked_pages: bool = False
    thinned_from: int = 0
    places: Places | None = None

    def __post_init__(self) -> None:
        if (self.cluster is None) != (self.cluster_kind == QUERY):
            state = "there are no clusters" if self.cluster is None else "there are clusters"
            raise InputError(f"cluster_kind is {self.cluster_kind!r}, but {state}: give both, or neither")

    def __len__(self) -> int:
        return len(self.unit)

    def __str__(self) -> str:
        if not len(self):
            return "Interventions: none"
        return (
            f"Interventions: {count(self.n_units, 'unit')}, {count(len(self), 'row')}, "
            f"{count(self.clicks.sum(), 'click')}, {self._where}, "
            f"{self.exposure_kind} exposures, "
            + (f"context {', '.join(self.contexts)}" if self.contexts else "no context")
            + ("" if self.cluster is None else f", clustered by {self.cluster_kind}")
        )

    @property
    def _where(self) -> str:
        if self.places is None:
            return f"positions {self.position.min()}-{self.position.max()}"
        return f"{count(len(self.places), 'place')} ({', '.join(self.places.columns)})"

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(np.count_nonzero(np.diff(self.unit)) + 1) if len(self) else 0

    def clicked(self) -> Interventions:
        """Return the units that got at least one click: the others carry no click share."""
        _, unit = numbered(self.unit)
        return self.take(np.bincount(unit, weights=self.clicks)[unit] > 0)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Interventions:
        """Return some rows, by a mask, by indices or by a slice; columns of a slice are views."""
        return replace(
            self,
            **{name: getattr(self, name)[rows] for name in COLUMNS},
            contexts={name: column[rows] for name, column in self.contexts.items()},
            cluster=None if self.cluster is None else self.cluster[rows],
        )

    def undivided(self) -> Interventions:
        """Return the rows that queries cluster: a unit's clicks at a position, and context, added up again.

        Example:
            >>> interventions = Interventions(
            ...     unit=np.zeros(3, int), query=np.array(["q"] * 3), position=np.array([1, 1, 2]),
            ...     exposure=np.array([3.0, 3.0, 1.0]), clicks=np.array([1, 1, 0]), impressions=np.array([2, 1, 1]),
            ...     cluster=np.array([0, 1, -1]), cluster_kind="user")
            >>> interventions.undivided().clicks.tolist(), interventions.undivided().impressions.tolist()
            ([2, 0], [3, 1])
        """
        if self.cluster is None:
            return self
        first, row = self.cells()
        clicks, shown = (
            np.bincount(row, weights=column).astype(np.int64) for column in (self.clicks, self.impressions)
        )
        return replace(replace(self, cluster=None, cluster_kind=QUERY).take(first), clicks=clicks, impressions=shown)

    def cells(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first row of every unit, position and context, by unit, and which of them each row is of, [n]."""
        varying = self.contexts.values() if self.unit_kind == "query" else ()
        codes = [np.unique(column.astype(str), return_inverse=True)[1] for column in varying]
        return distinct(self.unit, self.position, *codes)

    def write(self, path: str | Path) -> None:
        """Write to one Parquet file, whole or not at all."""
        import pyarrow.parquet as pq

        with atomic_path(Path(path)) as partial:
            pq.write_table(self.to_arrow(), partial, compression="zstd")

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table of the columns, with the kinds in its metadata."""
        import pyarrow as pa

        columns = {name: getattr(self, name) for name in COLUMNS} | dict(self.contexts)
        columns |= {} if self.cluster is None else {CLUSTERED_BY + self.cluster_kind: self.cluster}
        table = pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
        return table.replace_schema_metadata({"clickharvest": json.dumps(self.metadata)})

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of a file of interventions."""
        return describe(
            self.exposure_kind,
            self.unit_kind,
            tuple(self.contexts),
            only_clicked_pages=self.only_clicked_pages,
            thinned_from=self.thinned_from,
            places=self.places,
        )


def describe(
    exposure_kind: ExposureKind,
    unit_kind: UnitKind,
    context: tuple[str, ...],
    *,
    only_clicked_pages: bool = False,
    thinned_from: int = 0,
    places: Places | None = None,
) -> dict[str, Any]:
    """Return the metadata of a file of interventions."""
    about: dict[str, Any] = {
        "what": "interventions",
        "exposure_kind": exposure_kind,
        "unit_kind": unit_kind,
        "context": list(context),
    }
    about |= {"only_clicked_pages": True} if only_clicked_pages else {}
    about |= {} if places is None else {"places": places.to_dict()}
    return about | ({"thinned_from": thinned_from} if thinned_from else {})


def require_interventions(value: Any) -> None:
    """Raise `InputError` where something else is given for interventions.

    Example:
        >>> require_interventions([1, 2])
        Traceback (most recent call last):
        clickharvest.errors.InputError: expected interventions, found a list: make them with harvest(read_log(…)) first
    """
    if not isinstance(value, Interventions):
        kind = type(value).__name__
        raise InputError(f"expected interventions, found a {kind}: make them with harvest(read_log(…)) first")


class MayLackPages(Protocol):
    """A click log, or its interventions."""

    @property
    def only_clicked_pages(self) -> bool:
        """Whether the pages without a click seem to be missing."""
        ...


def warn_of_clicked_pages(source: MayLackPages, estimator: str, *, stacklevel: int = 3) -> None:
    """Warn if an estimator that compares clicks with what was shown is given a log of clicked pages alone.

    What was shown without success is left only where another click on the page has saved it, so click rates come out
    too high, and most of all where pages are rarely clicked. ClickShare compares the clicks of a unit with each other.
    It suffers as well, but less: a display where the unit was likely to be clicked is more likely to be left, which
    flattens its curve a little. Exposures by design count no displays, and with them it suffers nothing.
    """
    if source.only_clicked_pages:
        warnings.warn(
            f"{estimator} compares clicks with what was shown, but the log's pages without a click seem to be left "
            "out, so the result is off. Use ClickShare, or log all pages.",
            HarvestWarning,
            stacklevel=stacklevel,
        )


def linked_positions(
    anchor: int, position: ArrayLike, other: ArrayLike, clicks: ArrayLike, other_clicks: ArrayLike
) -> tuple[int, ...]:
    """Return the positions whose examination relative to the anchor the clicks identify.

    Write k → k' where a unit exposed at both positions was clicked at k. The relative examination of k and k' has a
    finite estimate if and only if each can be reached from the other along such arrows: this is Ford's condition for
    paired comparisons, with positions as players and clicks as wins.

    Args:
        anchor: the position everything is relative to.
        position: first position k of each pair with common units, [m].
        other: second position k' of each pair, [m].
        clicks: clicks at k of the units exposed at both, [m].
        other_clicks: clicks at k' of the same units, [m].

    Returns:
        The anchor and the positions linked to it, sorted.

    Example:
        Positions 1 and 2 got clicks on common documents; those common to 2 and 3 were clicked at 2 alone.

        >>> linked_positions(1, [1, 2], [2, 3], [5, 3], [2, 0])
        (1, 2)
    """
    k, other_k = np.asarray(position, dtype=np.int64), np.asarray(other, dtype=np.int64)
    won, lost = np.asarray(clicks) > 0, np.asarray(other_clicks) > 0
    nodes, codes = np.unique(np.concatenate([[anchor], k, other_k]), return_inverse=True)
    start, end = codes[1 : len(k) + 1], codes[len(k) + 1 :]
    tail = np.concatenate([start[won], end[lost]])
    head = np.concatenate([end[won], start[lost]])
    here = np.arange(len(nodes)) == codes[0]
    return tuple(int(node) for node in nodes[_reached(here, tail, head) & _reached(here, head, tail)])


def _reached(here: NDArray[np.bool_], tail: NDArray[np.intp], head: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return what can be reached along arrows from tail to head, [nodes]."""
    reached = here.copy()
    while not reached[head[reached[tail]]].all():
        reached[head[reached[tail]]] = True
    return reached


def longest_linked_prefix(positions: Sequence[int], linked: Iterable[int]) -> int:
    """Return how far down, from the top, every position is linked.

    Example:
        >>> longest_linked_prefix([1, 2, 3, 4], [1, 2, 4])
        2
    """
    linked = set(linked)
    prefix = 0
    for position in sorted(positions):
        if position not in linked:
            break
        prefix = position
    return prefix
