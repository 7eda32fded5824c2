"""Places: where results stand that are no list: cells of a grid, slots of a page, positions on pages, browsing states.

A place is a combination of values of some columns, known before a result is examined: (row 2, column 3), slot "top",
(page 2, position 1). Places are numbered from 1 in natural order, numbers numerically and texts alphabetically, so that
a place can stand wherever a position does; `Places` is the table of what the numbers mean. Estimates do not use the
order of places, only which columns they share.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clickharvest.errors import InputError
from clickharvest.words import clean_line, clean_text, spell_positions

Label = int | float | str
Anchor = int | str | tuple[Label, ...]
"""A place that others are compared with: its number, its values, or these as a text, "2,3"."""

MOST_PLACES = 2_000
"""Places beyond which a column is more likely to be an identifier."""
LARGEST_POSITION = 2**31 - 1
"""Of a list."""
RESULTS = ("propensity", "lower", "upper", "propensity_state")
"""Columns of tables of propensities beside those of places."""
LARGEST_LABEL = 2**63
"""Below which integers are, as in the columns of tables."""
MOST_NAMED = 6
"""Places that a sentence names."""


@dataclass(frozen=True)
class Places:
    """A table of places.

    Attributes:
        columns: names of the columns whose values make a place.
        labels: the values of place 1, 2, …; texts or numbers.

    Example:
        >>> places = Places.of(("row", "column"), [(2, 1), (1, 2), (1, 1)])
        >>> places.name(3), places.find("1,2"), len(places)
        ('row 2, column 1', 2, 3)
        >>> Places.of(("slot",), [("top",), ("10",), ("9",)]).labels
        (('10',), ('9',), ('top',))
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[Label, ...], ...]

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise InputError(f"places are made of the columns {self.columns}: expected one or more, each once")
        if taken := [column for column in self.columns if column.lower() in RESULTS]:
            raise InputError(f"a column of places is called {taken[0]!r}, as one of the result: rename it in the log")
        for label in self.labels:
            if len(label) != len(self.columns) or not all(_is_label(value) for value in label):
                raise InputError(f"a place is {clean_text(label)}: expected a number or text of {self.columns} each")
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise InputError("places without labels, or with equal ones: expected a label of its own for each")

    @classmethod
    def of(cls, columns: Iterable[str], labels: Iterable[tuple[Any, ...]]) -> Places:
        """Return places in natural order, texts that are numbers as such where all of a column are.

        Raises:
            InputError: there are too many, or two of them read alike.
        """
        columns, labels = tuple(columns), list(labels)
        values = zip(*(_numbers([label[i] for label in labels]) for i in range(len(columns))), strict=True)
        places = cls(columns, tuple(sorted(values, key=lambda label: [_rank(value) for value in label])))
        seen: dict[tuple[str, ...], int] = {}
        for k, label in enumerate(places.labels, 1):
            shown = tuple(" ".join(clean_line(spell_label(value)).split()) for value in label)
            if (other := seen.setdefault(shown, k)) != k:
                one, two = (clean_text(", ".join(map(repr, places.labels[i - 1])), 80) for i in (other, k))
                raise InputError(
                    f"two places read alike, {one} and {two} ({', '.join(columns)}): expected texts that can be told "
                    "apart; make them one in the log, or rename one"
                )
        return places

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, position: int) -> str:
        """Return a place in words, by its number."""
        if not 1 <= position <= len(self):
            return f"place {position}"
        words = zip(self.columns, self.labels[position - 1], strict=True)
        return ", ".join(f"{clean_text(column, 24)} {clean_text(spell_label(value))}" for column, value in words)

    def spell(self, positions: Collection[int]) -> str:
        """Return places in words, by their numbers; of many the first alone.

        Example:
            >>> places = Places.of(("slot",), [("top",), ("side",), ("end",)])
            >>> places.spell([2, 3]), places.spell([1, 2, 3])
            ('slot side and slot top', 'slot end, slot side and slot top')
        """
        names = [self.name(position) for position in sorted(positions)]
        more = len(names) - MOST_NAMED
        if more > 0:
            names = [*names[:MOST_NAMED], f"{more} more"]
        between = "; " if len(self.columns) > 1 else ", "
        return f"{between.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)

    def find(self, anchor: Anchor) -> int:
        """Return a place's number.

        Raises:
            InputError: there is no such place.
        """
        wanted = anchor if isinstance(anchor, tuple) else None
        for k, label in enumerate(self.labels, 1):
            spelt = ",".join(spell_label(value) for value in label)
            if label == wanted or (isinstance(anchor, str) and spelt == ",".join(map(str.strip, anchor.split(",")))):
                return k
        number = int(anchor) if isinstance(anchor, int) or (isinstance(anchor, str) and anchor.isdecimal()) else 0
        if 1 <= number <= len(self):
            return number
        name = ",".join(map(str, anchor)) if isinstance(anchor, tuple) else str(anchor)
        some = "; ".join(clean_text(",".join(_spelt(label))) for label in self.labels[:MOST_NAMED])
        raise InputError(
            f"no place {clean_text(name)!r} ({', '.join(self.columns)}): expected one of the {len(self)} places, such "
            f"as {some}"
        )

    def values(self, column: int) -> tuple[Label, ...]:
        """Return a column's value at every place."""
        return tuple(label[column] for label in self.labels)

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers alone."""
        return not any(isinstance(value, str) for value in self.values(column))

    @cached_property
    def _number(self) -> Mapping[tuple[str, ...], int]:
        return {_spelt(label): k for k, label in enumerate(self.labels, 1)}

    def numbers_of(self, other: Places) -> tuple[int, ...]:
        """Return the numbers that the places of another table have in this one; numbers beyond it for unknown ones.

        A text that reads like a number is that number: a column is of texts as soon as one of its values is.

        Raises:
            InputError: they are made of other columns.

        Example:
            >>> Places.of(("row",), [(1,), (2,)]).numbers_of(Places.of(("row",), [("2",), ("x",)]))
            (2, 3)
        """
        if other.columns != self.columns:
            raise InputError(
                f"the model speaks of places by {', '.join(self.columns)}, the log was read with "
                f"{', '.join(other.columns)}: read it with --place {','.join(self.columns)}"
            )
        unknown = iter(range(len(self) + 1, len(self) + len(other) + 1))
        return tuple(self._number.get(_spelt(label)) or next(unknown) for label in other.labels)

    def nearest(self, label: tuple[Label, ...], among: Iterable[int]) -> tuple[int, ...]:
        """Return the places, of some, that share most columns with a label: all of them where none shares any.

        Example:
            >>> places = Places.of(("row", "column"), [(1, 1), (1, 2), (2, 1)])
            >>> places.nearest((2, 2), [1, 2, 3]), places.nearest((3, 3), [1, 3])
            ((2, 3), (1, 3))
        """
        shared = {k: sum(a == b for a, b in zip(self.labels[k - 1], label, strict=True)) for k in among}
        most = max(shared.values(), default=0)
        return tuple(k for k, n in shared.items() if n == most)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON holds it."""
        return {"columns": list(self.columns), "labels": [list(label) for label in self.labels]}

    @classmethod
    def from_dict(cls, saved: Any) -> Places:
        """Return the table that `to_dict` has made; anything else is an InputError."""
        columns, labels = (saved.get(key) if isinstance(saved, Mapping) else None for key in ("columns", "labels"))
        if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
            raise InputError("its table of places has no columns: harvest and fit again")
        if not isinstance(labels, list) or not all(isinstance(label, list) for label in labels):
            raise InputError("its table of places has no labels: harvest and fit again")
        return cls(tuple(columns), tuple(tuple(label) for label in labels))


def spell_label(value: Label) -> str:
    """Return a value as people write it.

    Example:
        >>> spell_label(2.0), spell_label(0.5), spell_label("top")
        ('2', '0.5', 'top')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _spelt(label: tuple[Label, ...]) -> tuple[str, ...]:
    return tuple(spell_label(value) for value in label)


def name_place(position: int, places: Places | None) -> str:
    """Return a position, or a place, in words: "position 3", or "row 1, column 3"."""
    return f"position {position}" if places is None else places.name(position)


def name_places(positions: Collection[int], places: Places | None) -> str:
    """Return positions, or places, in words.

    Example:
        >>> name_places([1, 2, 3, 7], None), name_places([2], Places.of(("slot",), [("a",), ("b",)]))
        ('positions 1-3, 7', 'slot b')
    """
    if places is not None:
        return places.spell(positions)
    return f"position{'s' if len(positions) > 1 else ''} {spell_positions(positions)}"


def find_anchor(anchor: Anchor, places: Places | None) -> int:
    """Return the number of the position, or place, that others are compared with.

    Raises:
        InputError: there is no such place, or a place is named where there are positions alone.
    """
    if places is not None:
        return places.find(anchor)
    if isinstance(anchor, str) and anchor.strip().isdecimal():
        anchor = int(anchor)
    if not isinstance(anchor, int) or not 1 <= anchor <= LARGEST_POSITION:
        raise InputError(
            f"the anchor is {clean_text(anchor)}: expected a position from 1 to {LARGEST_POSITION:,}; to name a place, "
            "name the columns that make places (--place)"
        )
    return anchor


def _is_label(value: Any) -> bool:
    if type(value) is int:
        return -LARGEST_LABEL <= value < LARGEST_LABEL
    return isinstance(value, str) or (type(value) is float and math.isfinite(value))


def _rank(value: Label) -> tuple[bool, float, str]:
    """Return what a value sorts by: numbers first."""
    return (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")


def _numbers(values: list[Label]) -> list[Label]:
    """Return texts as numbers where all are, and different texts are different numbers."""
    if not all(isinstance(value, str) for value in values):
        return [_whole(value) if isinstance(value, float) else value for value in values]
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return values
    if not all(map(math.isfinite, numbers)) or len(set(numbers)) < len(set(values)):
        return values
    return [_whole(number) for number in numbers]


def _whole(number: float) -> Label:
    """Return an integer where a number is one that tables hold."""
    return int(number) if number.is_integer() and abs(number) < LARGEST_LABEL else number
