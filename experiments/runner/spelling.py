"""Numbers and tables as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def sentence(text: str) -> str:
    """Return a text that begins with a capital letter and ends with a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def markdown_table(rows: Sequence[Mapping[str, str | int | float | None]]) -> str:
    """Return rows as a table in Markdown; columns of numbers are aligned to the right.

    Example:
        >>> print(markdown_table([{"model": "PBM", "error": 0.4}, {"model": "CPBM", "error": None}]))
        | model | error |
        |---|--:|
        | PBM | 0.4000 |
        | CPBM | - |
    """
    if not rows:
        return "No rows."
    names = list(rows[0])
    number = {name: not any(any(c.isalpha() for c in str(row[name] or "")) for row in rows) for name in names}
    lines = [_row(name.strip() for name in names)]
    lines.append("|" + "".join("--:|" if number[name] else "---|" for name in names))
    lines += [_row(spell(row[name]) for name in names) for row in rows]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
