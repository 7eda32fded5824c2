"""Cells: a log counted by query, document, context and position inside the engine, and features of its documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation.sample import supported_positions
from clickharvest.harvesting.interventions import Interventions, warn_of_clicked_pages
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import record_provenance
from clickharvest.words import spell_positions

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.logs.click_log import ClickLog

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """Counts of a log; n cells, m pairs of a query and a document.

    Attributes:
        pair: number of the pair from 0, ascending, [n].
        position: position, [n].
        clicks: clicks, [n].
        impressions: impressions, [n].
        n_pairs: the number m of pairs.
        shown: the positions of the log, ascending.
        contexts: context columns, each [n]; empty where the cells were counted over all contexts.
        query: query, in the log's own values, [n]; None where cells do not come from a log.
    """

    pair: NDArray[np.int64]
    position: NDArray[np.int64]
    clicks: NDArray[np.int64]
    impressions: NDArray[np.int64]
    n_pairs: int
    shown: tuple[int, ...]
    contexts: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    query: NDArray[Any] | None = None

    def take(self, kept: NDArray[np.bool_]) -> Cells:
        """Return some of the cells; pairs keep their numbers."""
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in ("pair", "position", "clicks", "impressions")},
            contexts={name: column[kept] for name, column in self.contexts.items()},
            query=None if self.query is None else self.query[kept],
        )

    def at(self, positions: tuple[int, ...]) -> Cells:
        """Return the cells at some positions."""
        return self.take(np.isin(self.position, positions))

    def linked(self, anchor: int) -> tuple[int, ...]:
        """Return the positions that documents shown at several positions link to the anchor.

        Raises:
            NotIdentifiedError: there is none but the anchor.
        """
        exposure = self.impressions.astype(np.float64)
        return supported_positions(
            Interventions(self.pair, self.pair, self.position, exposure, self.clicks, self.impressions), anchor
        )

    def clicked(self, anchor: int) -> tuple[int, ...]:
        """Return the positions with clicks.

        Raises:
            NotIdentifiedError: the anchor, or every other position, is without clicks.
        """
        positions = tuple(int(k) for k in np.unique(self.position[self.clicks > 0]))
        if anchor not in positions or len(positions) < 2:
            raise NotIdentifiedError(
                f"positions with clicks are {spell_positions(positions) or 'none'}: expected the anchor {anchor} and "
                "another; choose another anchor, or collect more"
            )
        return positions


def constant_propensities(
    positions: tuple[int, ...], anchor: int, b: Array, shown: tuple[int, ...], info: Mapping[str, Any]
) -> Propensities:
    """Return propensities without context: b = log(p_k / p_anchor) at the positions but the anchor, [K − 1]."""
    curve = Constant(positions, anchor, 0)
    provenance = record_provenance(info["estimator"])
    return Propensities(curve, {"b": b}, None, shown, info=info, provenance=provenance)


def count_cells(log: ClickLog, *, context: tuple[str, ...] = (), max_position: int | None = None) -> Cells:
    """Count a log by query, document, position and the context columns named.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 4, "doc": ["a", "a", "a", "b"], "position": [1, 1, 2, 2], "click": [1, 0, 1, 0]}
        >>> cells = count_cells(read_log(pa.table(shown)))
        >>> cells.pair.tolist(), cells.clicks.tolist(), cells.impressions.tolist()
        ([0, 0, 1], [1, 1, 0], [2, 1, 1])
    """
    from clickharvest.logs.incomplete_logs import refuse_clicks_alone

    refuse_clicks_alone(log)
    warn_of_clicked_pages(log, "a model of clicks and their absence", stacklevel=4)
    rows = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    cells = rows.group_by("query", "doc", *context, position=rows.position.cast("int64")).agg(
        clicks=rows.clicks.sum().cast("int64"), impressions=rows.impressions.sum().cast("int64")
    )
    table = cells.order_by("query", "doc", "position", *context)
    columns = log.engine.fetch(table, task="Counting clicks")
    query, doc = columns["query"].to_numpy(), columns["doc"].to_numpy()
    starts = (query[1:] != query[:-1]) | (doc[1:] != doc[:-1])
    pair = np.append(np.zeros(min(len(query), 1), dtype=np.int64), np.cumsum(starts))
    counted = {name: columns[name].to_numpy() for name in ("position", "clicks", "impressions")}
    return Cells(
        pair=pair,
        **counted,
        n_pairs=int(pair.max(initial=-1)) + 1,
        shown=tuple(int(k) for k in np.unique(counted["position"])),
        contexts={name: columns[name].to_numpy() for name in context},
        query=query,
    )


def read_features(log: ClickLog, features: Any, *, max_position: int | None = None) -> Array:
    """Return the features of the pairs that `count_cells` numbers, encoded as `ContextEncoder` does, [m, f].

    Args:
        log: the click log.
        features: a table (anything `open_source` takes, or a dict of columns) with columns `query`, `doc` and one
            column per feature, or a mapping from (query, doc) to a vector.
        max_position: leave out what was shown lower.

    Raises:
        InputError: columns are missing, or a document shown has no features, or has them twice.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [1, 0]}
        >>> read_features(read_log(pa.table(shown)), {("q", "b"): [5.0], ("q", "a"): [3.0]}).tolist()
        [[-1.0], [1.0]]
    """
    import ibis

    from clickharvest.logs.click_log import identifier
    from clickharvest.logs.sources import open_source
    from clickharvest.words import spell_columns

    source = _as_table(features) if isinstance(features, Mapping) else features
    opened, _ = open_source(source, log.engine, text=("query", "doc"))
    names = [name for name in opened.columns if name not in ("query", "doc")]
    if len(names) > len(opened.columns) - 2 or not names:
        raise InputError(f"the features have {spell_columns(opened.columns)}: expected query, doc and features")
    keys = {f"_{name}": identifier(opened[name], log.columns[name].type()) for name in ("query", "doc")}
    known = opened.select(**keys, _known=ibis.literal(True), **{name: opened[name] for name in names})
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    pairs = t.select("query", "doc").distinct()
    joined = pairs.left_join(known, [pairs.query == known._query, pairs.doc == known._doc])
    columns = log.engine.fetch(joined.order_by("query", "doc"), task="Reading features")
    _check_pairs(columns)
    return ContextEncoder.fit(columns, names=names).transform(columns)


def _as_table(features: Mapping[Any, Any]) -> pa.Table:
    import pyarrow as pa

    if "query" in features:
        return pa.table(dict(features))
    if not all(isinstance(key, tuple) and len(key) == 2 for key in features):
        raise InputError("the features are a mapping without (query, doc) keys: expected those, or columns by name")
    vectors = np.array([np.ravel(vector) for vector in features.values()], dtype=np.float64)
    keys = {"query": [query for query, _ in features], "doc": [doc for _, doc in features]}
    return pa.table(keys | {f"feature {i}": column for i, column in enumerate(vectors.T, start=1)})


def _check_pairs(columns: pa.Table) -> None:
    query, doc = columns["query"].to_numpy(), columns["doc"].to_numpy()
    unknown = columns["_known"].is_null().to_numpy()
    twice = np.append((query[1:] == query[:-1]) & (doc[1:] == doc[:-1]), [False] * min(len(query), 1))
    for broken, problem in ((unknown, "have no features"), (twice, "have features twice")):
        if broken.any():
            first = columns.slice(int(np.argmax(broken)), 1).to_pylist()[0]
            raise InputError(
                f"{broken.sum():,} of {len(query):,} documents of the log {problem}, such as {first['doc']!r} of query "
                f"{first['query']!r}: expected one row for each query and doc"
            )
