"""Draws by hash: the same on every run and every engine, because they do not use the engine's own."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis.expr.types as ir

DIGITS = 12
"""Hexadecimal digits of a hash that are looked at."""


def hexadecimal(column: ir.Value) -> ir.StringValue:
    """Return the first digits of the MD5 of values as text: evenly spread, in the order of numbers."""
    return column.cast("string").hexdigest("md5").substr(0, DIGITS)


def is_drawn(column: ir.Value, share: float) -> ir.BooleanValue:
    """Return whether a value is among the share that is drawn; equal values are drawn together, [0, 1).

    Example:
        >>> import ibis
        >>> from clickharvest.logs.engines import DuckDBEngine
        >>> numbers = ibis.range(10_000).unnest().name("n").as_table()
        >>> drawn = numbers.filter(is_drawn(numbers.n, 0.25))
        >>> DuckDBEngine().fetch(drawn.agg(n=drawn.count()), task="Drawing").to_pylist()
        [{'n': 2529}]
    """
    return hexadecimal(column) < _bound(share)


def is_text_drawn(text: str, share: float) -> bool:
    """Return what `is_drawn` returns of one value's text, without an engine.

    Example:
        >>> sum(is_text_drawn(str(number), 0.25) for number in range(10_000))
        2529
    """
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:DIGITS] < _bound(share)


def _bound(share: float) -> str:
    return f"{int(share * 16**DIGITS):0{DIGITS}x}"
