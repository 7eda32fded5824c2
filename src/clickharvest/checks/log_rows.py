"""The rows of a log as arrays of numbers, read once for all checks.

Of a large log, queries are drawn by hash; their pages, users and results stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.numbering import as_array, as_column, code_values, distinct

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.harvesting.interventions import UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.incomplete_logs import Doubt

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_ROWS = 2_000_000
"""Rows that are read, about; more make checks of large logs slower and their errors smaller."""
ROLES = ("ranker", "user", "page", "time")
FEW, MOST_COLUMNS = 12, 8
"""Most values of a column without a role, and most such columns; more make checks slower."""
FIRST = 20_000
"""Rows of the log in which these columns are looked for."""


@dataclass(frozen=True, eq=False)
class Displays:
    """What was shown where, [n] each; identifiers are numbered from 0, and −1 is an unknown user.

    Attributes:
        query: number of the query.
        unit: number of the query, context and document.
        position: positions as the log has them.
        shown: impressions, 1 in a log of one row per impression.
        clicks: clicks.
        contexts: the context columns.
        doc: number of the document.
        ranker: number of the ranker.
        user: number of the user.
        page: number of the page.
        time: rank of the time, equal times having equal ranks.
        counted: whether rows count several impressions.
        doubts: what reading the log has found doubtful.
        unnamed: columns of few values without a role: the values, and the number of each row's value, −1 where empty.
    """

    query: Integers
    unit: Integers
    position: Integers
    shown: Array
    clicks: Array
    contexts: Mapping[str, NDArray[Any]]
    doc: Integers | None = None
    ranker: Integers | None = None
    user: Integers | None = None
    page: Integers | None = None
    time: Integers | None = None
    counted: bool = False
    doubts: tuple[Doubt, ...] = ()
    unnamed: Mapping[str, tuple[list[Any], Integers]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: NDArray[Any]) -> Self:
        """Return some of the rows; numbers stay as they are."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        some = {name: column[rows] for name, column in columns.items() if isinstance(column, np.ndarray)}
        contexts = {name: column[rows] for name, column in self.contexts.items()}
        unnamed = {name: (values, code[rows]) for name, (values, code) in self.unnamed.items()}
        return replace(self, **some, contexts=contexts, unnamed=unnamed)

    @cached_property
    def viewer(self) -> Integers | None:
        """Number of the user, or of the page where the user is unknown; None without either, [n]."""
        if self.user is None:
            return self.page
        if not (self.user < 0).any():
            return self.user
        other = np.arange(len(self)) if self.page is None else self.page
        return np.where(self.user < 0, self.user.max() + 1 + other, self.user)

    @cached_property
    def codes(self) -> dict[str, Integers]:
        """Number of the value of every context column, in the order of the values, [n] each."""
        return {name: code_values(column) for name, column in self.contexts.items()}


def read_displays(log: ClickLog, unit: UnitKind = "context") -> Displays:
    """Return the displays of a log, of some of its queries where it has more than `MOST_ROWS` rows.

    Args:
        log: the log.
        unit: as in `harvest`: whether contexts vary inside a unit.
    """
    from clickharvest.logs.incomplete_logs import doubts

    rows = 0 if log.facts is None else log.facts.rows
    share = min(1.0, log.share * MOST_ROWS / max(rows, 1))
    some = log.with_plain_contexts().thinned(share)
    unnamed = {f"_unnamed_{i}": name for i, name in enumerate(_few_valued(log))}
    some = replace(some, columns=some.columns | {alias: log.source[name] for alias, name in unnamed.items()})
    roles = [role for role in ROLES if log.has(role)]
    table = log.engine.fetch(
        some.table.select("query", "doc", "position", "clicks", "impressions", *roles, *some.context, *unnamed),
        task="Reading displays",
        coded=True,
    )
    codes = {name: _numbers(table[name]) for name in ("query", "doc", *roles, *some.context, *unnamed)}
    query, doc = codes["query"][1], codes["doc"][1]
    varying = [codes[name][1] for name in some.context] if unit == "context" else []
    known: dict[str, Any] = {role: codes[role][1] for role in roles}
    return Displays(
        query=query,
        doc=doc,
        unit=distinct(query, *varying, doc)[1],
        position=as_array(table["position"]).astype(np.int64),
        shown=as_array(table["impressions"]).astype(np.float64),
        clicks=as_array(table["clicks"]).astype(np.float64),
        contexts={
            name: _values(table[column], codes[column]) for name, column in zip(log.context, some.context, strict=True)
        },
        counted="click" not in log.roles,
        doubts=tuple(doubts(log)),
        unnamed={name: codes[alias] for alias, name in unnamed.items() if len(codes[alias][0]) <= FEW},
        **known,
    )


def _few_valued(log: ClickLog) -> list[str]:
    """Return columns without a role that have few values, and one for each page, in the first rows of the log."""
    from clickharvest.logs.click_log import OURS
    from clickharvest.logs.click_log import ROLES as TAKEN

    used = {*log.roles.values(), *log.context, *log.prepared.get("block", ()), log.prepared.get("page_number", "")}
    used |= {*TAKEN, *(log.places.columns if log.places else ())}
    used = {name.lower() for name in used}
    candidates = [
        name
        for name, kind in log.source.schema().items()
        if name.lower() not in used
        and not name.startswith(OURS)
        and (kind.is_string() or kind.is_boolean() or kind.is_integer())
    ]
    if log.tallies or not candidates:
        return []
    columns = {f"_unnamed_{i}": log.source[name] for i, name in enumerate(candidates)}
    columns |= {"page": log.columns["page"]} if log.has("page") else {}
    head = log.engine.fetch(log.source.select(**columns).limit(FIRST), task="Looking at columns", coded=True)
    page = _numbers(head["page"])[1] if log.has("page") else np.arange(len(head))
    coded = [(name, *_numbers(head[f"_unnamed_{i}"])) for i, name in enumerate(candidates)]
    few = [name for name, values, code in coded if len(values) <= FEW and follows(code + 1, page)]
    return few[:MOST_COLUMNS]


def follows(value: Integers, other: Integers) -> bool:
    """Whether rows that are alike in another column, numbered from 0, are alike in this one, [n] each.

    Example:
        >>> follows(np.array([1, 1, 2]), np.array([0, 0, 3])), follows(np.array([1, 2]), np.array([0, 0]))
        (True, False)
    """
    last = np.zeros(int(other.max(initial=0)) + 2, dtype=np.int64)
    last[other] = value
    return bool((last[other] == value).all())


def _numbers(column: pa.ChunkedArray) -> tuple[list[Any], Integers]:
    """Return the values of a column, ascending, and the number of each row's; −1 where it is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = column.combine_chunks()
    whole = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    codes = _filled(whole.indices, -1).astype(np.int64)
    order = np.from_dlpack(pc.sort_indices(whole.dictionary))
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(order)), -1  # the last one is what −1 finds
    return whole.dictionary.take(as_column(order)).to_pylist(), rank[codes]


def _values(column: pa.ChunkedArray, coded: tuple[list[Any], Integers]) -> NDArray[Any]:
    """Return the values of a column, numbers as numbers."""
    import pyarrow as pa

    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return _filled(column.cast("float64").combine_chunks(), np.nan) if column.null_count else as_array(column)
    return np.array([*coded[0], None], dtype=object)[coded[1]]


def _filled(numbers: pa.Array, missing: float) -> NDArray[Any]:
    """Return an array of numbers with a value where Arrow has none; Arrow's own way would import pandas."""
    values = np.frombuffer(numbers.buffers()[1], numbers.type.to_pandas_dtype())[numbers.offset :][: len(numbers)]
    if not numbers.null_count:
        return values
    valid = np.unpackbits(np.frombuffer(numbers.is_valid().buffers()[1], np.uint8), bitorder="little")[: len(numbers)]
    return np.where(valid, values, missing)
