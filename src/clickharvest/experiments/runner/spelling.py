"""Numbers as people read them."""

from __future__ import annotations

from math import isnan

MOST = 1e9


def spell(value: str | int | float | None, *, digits: int = 4) -> str:
    """Return a number for people: `digits` decimals for fractions, thousands separated, a dash for none.

    From a thousand million on only its size is told.

    Example:
        >>> spell(0.16944), spell(114730), spell(None), spell(float("nan")), spell("power × 6")
        ('0.1694', '114,730', '-', '-', 'power × 6')
        >>> spell(1234567.8), spell(4138396747.2)
        ('1,234,568', '4.1e+09')
    """
    if value is None or (isinstance(value, float) and isnan(value)):
        return "-"
    if isinstance(value, float):
        if abs(value) < 1000:
            return f"{value:.{digits}f}"
        return f"{value:,.0f}" if abs(value) < MOST else f"{value:.1e}"
    return value if isinstance(value, str) else f"{value:,}"
