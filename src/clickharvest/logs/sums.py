"""Sums of numbers that are not whole: threads of an engine add them in any order, so that last bits change by run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

BITS = 28
"""Of a sum that are kept: nine digits. An engine's sums differ in the last few of 53."""


def steady(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a table with columns of sums rounded, so that every run has the same.

    What is learned from sums by steps, or hashed, would otherwise change from run to run by more than their last bit.

    Example:
        >>> import pyarrow as pa
        >>> sums = pa.table({"doc": ["a", "b"], "exposure": [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]})
        >>> len(sums["exposure"].unique()), len(steady(sums, ["exposure"])["exposure"].unique())
        (2, 1)
    """
    import pyarrow as pa

    for name in names:
        rounded = pa.array(_rounded(table[name].to_numpy()))
        table = table.set_column(table.column_names.index(name), name, rounded)
    return table


def _rounded(values: Any) -> Any:
    share, power = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(share, BITS)), power - BITS)
