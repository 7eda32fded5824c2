"""Predictions: propensities of given contexts, as arrays and as a table. NumPy alone; Arrow to make the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.contexts import Table
from clickharvest.words import first_line

if TYPE_CHECKING:
    import pyarrow as pa

RESULTS = ("position", "propensity", "lower", "upper", "supported")
"""The columns a prediction adds to those of its contexts."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Propensities of n contexts at K positions, relative to the anchor.

    Attributes:
        positions: every position of the data, ascending, [K].
        propensity: p_k(x) / p_anchor(x), [n, K]; NaN where unsupported.
        lower: lower ends of the intervals, [n, K]; NaN where unsupported, or without draws.
        upper: upper ends of the intervals, [n, K], likewise.
        supported: whether interventions link a position to the anchor, [K].
    """

    positions: tuple[int, ...]
    propensity: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    supported: NDArray[np.bool_]

    def to_arrow(self, contexts: Table | None = None) -> pa.Table:
        """Return one row per context row and position.

        Columns: those of `contexts` (all of them, in their order), then `position, propensity, lower, upper,
        supported`; null stands for NaN.

        Args:
            contexts: the table that was predicted for; None adds no columns.

        Example:
            >>> one, nothing = np.ones((1, 2)), np.full((1, 2), np.nan)
            >>> prediction = Prediction((1, 2), one, nothing, nothing, np.array([True, True]))
            >>> prediction.to_arrow({"device": ["phone"]}).to_pylist()[1]
            {'device': 'phone', 'position': 2, 'propensity': 1.0, 'lower': None, 'upper': None, 'supported': True}
        """
        import pyarrow as pa

        n, k = self.propensity.shape
        contexts = {} if contexts is None else contexts
        names = column_names(contexts)
        if clash := [name for name in RESULTS if name in names]:
            raise InputError(f"the contexts have a column {clash[0]!r}, which is one of the result: rename it")
        try:
            table = pa.table({name: _arrow(contexts[name]) for name in names})
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"the contexts cannot be converted to an Arrow table: {first_line(error)}") from error
        if names and table.num_rows != n:
            raise InputError(f"the contexts have {table.num_rows:,} rows, the prediction {n:,}: give the same table")
        rows = np.repeat(np.arange(n), k)
        results = {
            "position": np.tile(np.array(self.positions, dtype=np.int64), n),
            **{name: getattr(self, name).ravel() for name in ("propensity", "lower", "upper")},
            "supported": np.tile(self.supported, n),
        }
        columns = {name: table[name].take(pa.array(rows)) for name in names}
        return pa.table(columns | {name: pa.array(column, from_pandas=True) for name, column in results.items()})


def column_names(table: Any) -> list[str]:
    """Return the column names of an Arrow table, a DataFrame or a mapping."""
    return list(getattr(table, "column_names", getattr(table, "columns", table)))


def _arrow(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray | pa.Array):
        return column
    return column.to_arrow() if hasattr(column, "to_arrow") else pa.array(column, from_pandas=True)
