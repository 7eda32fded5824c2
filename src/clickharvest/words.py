"""Words that messages share: counts, lists of positions, errors in one line, a user's text made safe to print.

And numbers and values as JSON holds them.
"""

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
"""What libraries say of files that are not what they should be, and what that means to whoever has the file."""
FORMULA = r"[\x00-\x20\xa0]*[=+\-@＝＋－＠]|[\t\r\n]"
"""How a text begins that a spreadsheet may take for a formula: in the regular expressions of Python, Arrow and, in the
report's page, JavaScript."""


def count(number: float, noun: str, nouns: str | None = None) -> str:
    """Return a number with its noun, which is in the plural unless the number is 1.

    Example:
        >>> count(1, "query", "queries"), count(1200, "query", "queries"), count(0, "click")
        ('1 query', '1,200 queries', '0 clicks')
    """
    told = f"{number:,.0f}"
    return f"{told} {noun if told == '1' else nouns or noun + 's'}"


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


def spell_thinning(clicks: int, whole: int) -> str:
    """Return a sentence on so many of all clicks: intervals of a share s are about 1 / √s times as wide.

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
    """Return what to call one of what clusters, and several.

    Example:
        >>> cluster_nouns("query"), cluster_nouns("campaign")
        (('query', 'queries'), ('value of campaign', 'values of campaign'))
    """
    by = clean_text(by)
    known = {"query": ("query", "queries"), "doc": ("document", "documents")}
    own = (by, f"{by}s") if by in ("user", "page", "ranker") else (f"value of {by}", f"values of {by}")
    return known.get(by, own)


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
    given = set(positions)
    return f"position{'s' * (len(given) != 1)} {spell_positions(given)}"


def first_line(error: BaseException) -> str:
    """Return what an error says in one line of at most 300 characters, ending in a full stop.

    Example:
        >>> first_line(ValueError("Invalid Input Error: no such column\\n\\nLINE 1: SELECT …"))
        'no such column.'
        >>> first_line(ValueError("Error while deserializing header: header too large"))
        'it is damaged, or a file of another kind.'
    """
    if isinstance(error, UnicodeDecodeError):
        return "it is no text in UTF-8."
    told = re.split(r"\n\s*\n|\nPossible", str(error).strip())[0].splitlines() or [type(error).__name__]
    text = re.sub(r"^[A-Z][A-Za-z]*( [A-Z][A-Za-z]*)* Error: ", "", told[0])
    if place := re.match(r"CSV Error on Line: (\d+)", text):
        # DuckDB quotes the line itself (it may span several) before it tells what is wrong with it.
        file = re.search(r"^\s*file = (.+)$", str(error), re.MULTILINE)
        text = f"line {place[1]}{f' of {Path(file[1]).name}' if file else ''}: {told[-1]}"
    text = text.strip()
    for known, plain in PLAINLY.items():
        text = re.sub(known, plain, text)
    text = text if len(text) <= 300 else text[:299] + "…"
    return text if text.endswith((".", "!", "?", "…")) else text + "."


def not_a_formula(text: str) -> str:
    """Return a text for a file of CSV, with an apostrophe before one that a spreadsheet may take for a formula.

    The file must quote the text: a line break inside it would begin a new cell otherwise.

    Example:
        >>> not_a_formula("=1+1"), not_a_formula("1+1")
        ("'=1+1", '1+1')
    """
    return re.sub(f"^({FORMULA})", r"'\1", text)


def clean_text(value: Any, longest: int = 40) -> str:
    """Return a text of the user's in one short line that cannot steer a terminal."""
    text = clean_line(str(value))
    return text if len(text) <= longest else text[: longest - 1] + "…"


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
    """Return how many times a log, as people write it.

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
    """Return a value as JSON holds it, arrays as lists; None for a number that is not finite.

    What JSON has nothing for comes back as it is.

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
