"""Predictions: propensities of given contexts, as arrays and as a table. NumPy alone; Arrow to make the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.contexts import Table
from clickharvest.model.support import CANNOT_TELL, SPAN, Doubt, Mask, cannot_tell, rests_on_few, spell_queries
from clickharvest.positions.places import RESULTS, Places
from clickharvest.words import first_line

if TYPE_CHECKING:
    import pyarrow as pa

TELLS_NOTHING = f"{CANNOT_TELL}: the interval spans a factor of {SPAN:g} or more"


@dataclass(frozen=True, eq=False)
class Prediction:
    """Propensities of n contexts at K positions, relative to the anchor.

    Attributes:
        positions: every position of the data, ascending, [K].
        propensity: p_k(x) / p_anchor(x), [n, K]; NaN at positions that nothing links to the anchor.
        lower: lower ends of the intervals, [n, K]; NaN where unsupported, or without draws.
        upper: upper ends of the intervals, [n, K], likewise.
        supported: whether the data speak of this context at this position, [n, K], see `model.support`. The anchor is
            supported in every context that training had.
        doubts: why and where not.
        queries: effective queries that a position rests on, [K]; None where nothing tells.
        places: what positions stand for, where they are numbers of places and not of a list.
    """

    positions: tuple[int, ...]
    propensity: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    supported: Mask
    doubts: tuple[Doubt, ...] = ()
    queries: tuple[float | None, ...] | None = None
    places: Places | None = None

    @property
    def where(self) -> dict[str, list[Any]]:
        """The columns that tell where, [K]: `position`; of places also those of `places`, one of which may be it."""
        number = {"position": list(self.positions)}
        if self.places is None:
            return number
        labels = [self.places.labels[k - 1] for k in self.positions]
        own = {column: [label[i] for label in labels] for i, column in enumerate(self.places.columns)}
        return own if "position" in own else number | own

    @property
    def cannot_tell(self) -> Mask:
        """Where the interval spans a factor of ten or more, so that the number is no finding, [n, K]."""
        return cannot_tell(self.lower, self.upper)

    def notes(self) -> NDArray[np.object_]:
        """Return what to know of each number, in words, [n, K]; None where there is nothing to say.

        Why it is not supported; otherwise that its interval tells nothing; otherwise on how few queries it rests.

        Example:
            >>> p = np.array([[1.0, 0.5, 0.3, 0.1]])
            >>> lower, upper = np.array([[1, 0.4, 0.01, np.nan]]), np.array([[1, 0.6, 9, np.nan]])
            >>> doubt = Doubt("device: a value that training never had", np.array([[False, False, False, True]]))
            >>> prediction = Prediction((1, 2, 3, 4), p, lower, upper, ~doubt.where, (doubt,), (None, 3.0, 9.0, 9.0))
            >>> for note in prediction.notes()[0]:
            ...     print(note)
            None
            rests on 3 queries
            cannot tell: the interval spans a factor of 10 or more
            device: a value that training never had
        """
        told = np.full(self.propensity.shape, None, dtype=object)
        for k, queries in enumerate(self.queries or ()):
            if queries is not None and rests_on_few(queries):
                told[:, k] = spell_queries(queries)
        told[self.cannot_tell] = TELLS_NOTHING
        for doubt in reversed(self.doubts):
            told[np.broadcast_to(doubt.where, told.shape)] = doubt.why
        return told

    def count_doubts(self) -> dict[str, int]:
        """Return how many of the numbers are not supported or tell nothing, by the words of `notes`."""
        left = np.isfinite(self.propensity)
        counts = {}
        for doubt in (*self.doubts, Doubt(TELLS_NOTHING, self.cannot_tell)):
            counts[doubt.why] = int(np.count_nonzero(left & doubt.where))
            left &= ~doubt.where
        return {why: n for why, n in counts.items() if n}

    def to_arrow(self, contexts: Table | None = None) -> pa.Table:
        """Return one row per context row and position.

        Columns: those of `contexts` (all of them, in their order), then `position, propensity, lower, upper,
        supported`; null stands for NaN. Of places, `position` is the number, and their own columns follow it; one of
        these that is called `position` stands in its stead.

        Args:
            contexts: the table that was predicted for; None adds no columns.

        Example:
            >>> one, nothing = np.ones((1, 2)), np.full((1, 2), np.nan)
            >>> prediction = Prediction((1, 2), one, nothing, nothing, np.array([[True, True]]))
            >>> prediction.to_arrow({"device": ["phone"]}).to_pylist()[1]
            {'device': 'phone', 'position': 2, 'propensity': 1.0, 'lower': None, 'upper': None, 'supported': True}
        """
        import pyarrow as pa

        n, k = self.propensity.shape
        contexts = {} if contexts is None else contexts
        names = column_names(contexts)
        if clash := [name for name in (*RESULTS, *self.where) if name in names]:
            raise InputError(f"the contexts have a column {clash[0]!r}, which is one of the result: rename it")
        try:
            table = pa.table({name: _arrow(contexts[name]) for name in names})
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"the contexts cannot be converted to an Arrow table: {first_line(error)}") from error
        if names and table.num_rows != n:
            raise InputError(f"the contexts have {table.num_rows:,} rows, the prediction {n:,}: give the same table")
        rows = np.repeat(np.arange(n), k)
        results = {
            **{name: np.tile(_column(values), n) for name, values in self.where.items()},
            **{name: getattr(self, name).ravel() for name in ("propensity", "lower", "upper")},
            "supported": self.supported.ravel(),
        }
        columns = {name: table[name].take(pa.array(rows)) for name in names}
        return pa.table(columns | {name: pa.array(column, from_pandas=True) for name, column in results.items()})


def _column(values: list[Any]) -> NDArray[Any]:
    """Return values as one column: whole numbers, numbers, or texts as they are."""
    if any(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, dtype=np.int64 if whole else np.float64)


def column_names(table: Any) -> list[str]:
    """Return the column names of an Arrow table, a DataFrame or a mapping."""
    return list(getattr(table, "column_names", getattr(table, "columns", table)))


def _arrow(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray | pa.Array):
        return column
    return column.to_arrow() if hasattr(column, "to_arrow") else pa.array(column, from_pandas=True)
