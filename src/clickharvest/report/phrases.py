"""Phrases: figures and contexts as people say them, with the exact number beside where there is room."""

from __future__ import annotations

from clickharvest.report.values import Choice, ColumnValues
from clickharvest.words import shorten

LONGEST = 30
"""Characters of a name or level of the user's inside a sentence."""


def spell(value: float) -> str:
    """Return a propensity with two digits that tell something.

    Example:
        >>> spell(1.234), spell(0.4321), spell(0.08), spell(0.00049)
        ('1.23', '0.43', '0.080', '0.00049')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"


def queries(column: ColumnValues, choice: Choice) -> str:
    """Return the queries of one value of a column, as a manager would call them.

    Example:
        >>> from clickharvest.model.contexts import ContextColumn
        >>> def told(name, kind, label):
        ...     part = ContextColumn(name, kind, True)
        ...     choice = Choice(label, (1.0,), 1.0)
        ...     return queries(ColumnValues(part, 0, choice, (choice,), None), choice)
        >>> told("complex", "boolean", "yes"), told("is_mobile", "boolean", "no"), told("has_image", "boolean", "yes")
        ('complex queries', 'queries that are not mobile', 'queries with image')
        >>> told("device", "categorical", "phone"), told("device", "categorical", "missing")
        ('queries with device phone', 'queries without a known device')
    """
    name, label = _plain(column.part.name), shorten(choice.label, LONGEST)
    if column.is_missing(choice):
        return f"queries without a known {name}"
    if column.part.kind == "categorical" and choice.label == "other" and "other" not in column.part.levels:
        return f"queries with another {name}"
    if column.part.kind != "boolean":
        return f"queries with {name} {label}"
    yes = choice.label == "yes"
    if (own := _without(name, "has")) is not None:
        return f"queries {'with' if yes else 'without'} {own}"
    own = _without(name, "is") or name
    return f"{own} queries" if yes else f"queries that are not {own}"


def typical_query(columns: list[ColumnValues], most: int = 3) -> str:
    """Return what the typical context is, in a few words: shares of yes, means, most frequent levels.

    Example:
        >>> from clickharvest.model.contexts import ContextColumn
        >>> part = ContextColumn("is_complex", "boolean", False, mean=0.28)
        >>> columns = [ColumnValues(part, 0, Choice("yes in 28%", (0.28,), 0.0), (), None)]
        >>> device = ContextColumn("device", "categorical", True, levels=("phone",))
        >>> typical_query([*columns, ColumnValues(device, 1, Choice("missing", (0.0, 0.0, 1.0), 1.0), (), None)])
        '28 % complex, without a known device'
    """
    told = []
    for column in columns[:most]:
        part, name = column.part, _plain(column.part.name)
        if column.is_missing(column.typical):
            told.append(f"without a known {name}")
        elif part.kind == "boolean":
            having = _without(name, "has")
            own = f"with {having}" if having is not None else _without(name, "is") or name
            told.append(f"{100 * part.mean:.0f} % {own}")
        else:
            told.append(f"{name} {shorten(column.typical.label, LONGEST)}")
    return ", ".join(told) + (", …" if len(columns) > most else "")


def _plain(name: str) -> str:
    return shorten(name.replace("_", " ").strip(), LONGEST)


def _without(name: str, prefix: str) -> str | None:
    """Return a name without its first word, if it is this one and something is left."""
    first, _, rest = name.partition(" ")
    return rest if first.lower() == prefix and rest else None
