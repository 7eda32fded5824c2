"""Text that messages share: counts, positions, errors in one line, user text made safe to print, values for JSON."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PLAINLY = {
    r"^No magic bytes found at end of file.*": "it is cut off, or a file of another kind",
    r"^Error while deserializing header: .*": "it is damaged, or a file of another kind",
    r"^Error while serializing: I/O error: (.+) \(os error \d+\)": r"\1",
    r"This file is not utf-8 encoded": "The file is not UTF-8: save it as such",
}
"""Patterns of library messages about broken files, and what to tell the user instead."""
FORMULA = r"[\x00-\x20\xa0]*[=+\-@＝＋－＠]|[\t\r\n]"
"""How a text that a spreadsheet takes for a formula begins: a regular expression for Python, Arrow and JavaScript."""


def count(number: float, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun, which is in the plural unless the number is 1.

    Example:
        >>> count(1, "query", "queries"), count(1200, "query", "queries"), count(0, "click")
        ('1 query', '1,200 queries', '0 clicks')
    """
    digits = f"{number:,.0f}"
    return f"{digits} {noun if digits == '1' else nouns or noun + 's'}"


def listed(parts: Sequence[str]) -> str:
    """Return parts of a sentence as a list in words.

    Example:
        >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
        ('a', 'a and b', 'a, b and c')
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def name_columns(names: Sequence[str]) -> str:
    """Return names of columns with their noun.

    Example:
        >>> name_columns(["device"]), name_columns(["device", "age"])
        ('column device', 'columns device, age')
    """
    return f"column{'s' * (len(names) != 1)} {', '.join(names)}"


def spell_columns(columns: Sequence[str], *, most: int = 12) -> str:
    """Return column names for a message: the first dozen, in one line.

    Example:
        >>> spell_columns([f"c{i}" for i in range(40)], most=3)
        'c0, c1, c2 and 37 more'
    """
    names = ", ".join(" ".join(name.split()) for name in columns[:most]) or "no column"
    return names if len(columns) <= most else f"{names} and {len(columns) - most} more"


def spell_thinning(clicks: int, whole: int) -> str:
    """Return a sentence on thinning: with a share s of the clicks, intervals are about 1 / √s times as wide.

    Example:
        >>> print(spell_thinning(25, 100))
        Thinned to 25 of 100 clicks, those of whole queries chosen by hash: intervals are about 2.0 times as wide.
    """
    wider = math.sqrt(whole / clicks) if clicks else math.inf
    return (
        f"Thinned to {clicks:,} of {count(whole, 'click')}, those of whole queries chosen by hash: intervals are about "
        f"{wider:.1f} times as wide."
    )


def cluster_nouns(by: str) -> tuple[str, str]:
    """Return the noun for one cluster, and its plural.

    Example:
        >>> cluster_nouns("query"), cluster_nouns("campaign")
        (('query', 'queries'), ('value of campaign', 'values of campaign'))
    """
    by = clean_text(by)
    known = {"query": ("query", "queries"), "doc": ("document", "documents")}
    other = (by, f"{by}s") if by in ("user", "page", "ranker") else (f"value of {by}", f"values of {by}")
    return known.get(by, other)


def spell_positions(positions: Iterable[int]) -> str:
    """Return positions as people write them.

    Example:
        >>> spell_positions([1, 2, 3, 7, 9, 10])
        '1-3, 7, 9-10'
    """
    runs: list[list[int]] = []
    for position in sorted(positions):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def name_positions(positions: Iterable[int]) -> str:
    """Return positions with their noun.

    Example:
        >>> name_positions([3]), name_positions([3, 4])
        ('position 3', 'positions 3-4')
    """
    distinct = set(positions)
    return f"position{'s' * (len(distinct) != 1)} {spell_positions(distinct)}"


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line of at most 300 characters, ending in a full stop.

    Example:
        >>> first_line(ValueError("Invalid Input Error: no such column\\n\\nLINE 1: SELECT …"))
        'no such column.'
        >>> first_line(ValueError("Error while deserializing header: header too large"))
        'it is damaged, or a file of another kind.'
    """
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8."
    lines = re.split(r"\n\s*\n|\nPossible", str(error).strip())[0].splitlines() or [type(error).__name__]
    text = re.sub(r"^[A-Z][A-Za-z]*( [A-Z][A-Za-z]*)* Error: ", "", lines[0])
    if place := re.match(r"CSV Error on Line: (\d+)", text):
        # DuckDB quotes the line itself, which may span several, before it names the problem.
        file = re.search(r"^\s*file = (.+)$", str(error), re.MULTILINE)
        text = f"line {place[1]}{f' of {Path(file[1]).name}' if file else ''}: {lines[-1]}"
    text = text.strip()
    for known, plain in PLAINLY.items():
        text = re.sub(known, plain, text)
    text = shorten(text, 300)
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def not_a_formula(text: str) -> str:
    """Return a text for a file of CSV, with an apostrophe before one that a spreadsheet may take for a formula.

    The file must quote the text: a line break inside it would begin a new cell otherwise.

    Example:
        >>> not_a_formula("=1+1"), not_a_formula("1+1")
        ("'=1+1", '1+1')
    """
    return re.sub(f"^({FORMULA})", r"'\1", text)


def shorten(text: str, longest: int = 40) -> str:
    """Return a text of at most `longest` characters.

    Example:
        >>> shorten("a" * 100, 5)
        'aaaa…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def clean_text(value: Any, longest: int = 40) -> str:
    """Return a user's value as one short line that cannot steer a terminal."""
    return shorten(clean_line(str(value)), longest)


def clean_line(text: str) -> str:
    """Return a text in one line of printable characters: no escape sequence, no change of direction, no line break.

    Example:
        >>> clean_line("two\\nlines, \\x1b]52;c;aGk=\\x07 and \\u202egnp.exe")
        'two?lines, ?]52;c;aGk=? and ?gnp.exe'
    """
    return text if text.isprintable() else "".join(_clean(c) for c in text)


def clean_lines(text: str) -> str:
    """Return a text of one or more lines, each of printable characters.

    Example:
        >>> clean_lines("one\\r\\ntwo")
        'one?\\ntwo'
    """
    return "\n".join(clean_line(line) for line in text.split("\n"))


def _clean(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if unicodedata.category(letter) == "Zs" else "?"


def spell_times(times: float) -> str:
    """Return a multiple of a log with two digits, or as a whole number from 10.

    Example:
        >>> spell_times(3.21), spell_times(67.4), spell_times(math.inf)
        ('3.2', '67', 'inf')
    """
    return "inf" if math.isinf(times) else f"{times:.2g}" if times < 10 else f"{times:,.0f}"


def finite(value: Any) -> float | None:
    """Return a number that is finite, and None for anything else.

    Example:
        >>> finite(3), finite(math.nan), finite("3"), finite(None)
        (3.0, None, None, None)
    """
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def json_value(value: Any) -> Any:
    """Return a value for JSON: arrays as lists, and None for a number that is not finite; other types are unchanged.

    Example:
        >>> json_value({"se": (0.1, math.nan), 2: "two"})
        {'se': [0.1, None], '2': 'two'}
    """
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(part) for part in value]
    return finite(value) if isinstance(value, float) else value
