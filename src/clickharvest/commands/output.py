"""The one place through which everything that a command prints passes.

Text from logs, files and models cannot steer a terminal: `tell` and the console of `terminal.screen` replace whatever
is not printable. What a terminal has no letters for is spelled with those it has.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clickharvest.words import clean_line, clean_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN = {"✓": "+", "✗": "x", "·": "-", "…": "...", "±": "+-", "×": "x", "–": "-", "—": "-", "−": "-", "─": "-",
         "≥": ">=", "≤": "<=", "λ": "lambda", "η": "eta", "ζ": "zeta", "’": "'", "“": '"', "”": '"'}  # fmt: skip
"""Spellings in ASCII of what our own texts use."""
LONGEST = 2_000
"""Characters of an error or a warning; what is between its ends is left out."""


def tell(text: str) -> None:
    """Print a text on standard output, clean."""
    print(clean_lines(text))  # noqa: T201


def complain(text: str) -> None:
    """Print one line on standard error, clean and not too long; where there is none, nobody reads it."""
    if len(text) > LONGEST:  # of a file that may hold anything
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    try:
        print(clean_line(text), file=sys.stderr)  # noqa: T201
    except (OSError, ValueError):
        return


def prepare_streams() -> None:
    """Let standard output print any text, whatever letters the terminal has, and forget a width that is none."""
    codecs.register_error("clickharvest", _spell_plainly)
    sys.stdout, sys.stderr = (stream or Path(os.devnull).open("w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="clickharvest")
    columns = os.environ.get("COLUMNS", "1")
    if not columns.isdecimal() or not 0 < int(columns) < 10_000:
        del os.environ["COLUMNS"]


def interrupted(finished: Sequence[Path]) -> str:
    """Return what is said when a command is interrupted.

    Example:
        >>> interrupted([])
        'Interrupted; nothing was written.'
    """
    if not finished:
        return "Interrupted; nothing was written."
    several = f"{len(finished)} files were written before, the last is" if len(finished) > 1 else "written before:"
    return f"Interrupted; {several} {finished[-1]}"


def _spell_plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter, "?") for letter in wrong), error.end
