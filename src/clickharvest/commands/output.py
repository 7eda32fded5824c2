"""The one place through which everything that a command prints passes, and where it may write files.

Text from logs, files and models cannot steer a terminal: `tell` and the console of `tables.screen` replace whatever is
not printable. What a terminal has no letters for is spelled with those it has.
"""

from __future__ import annotations

import codecs
import glob
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from clickharvest.errors import InputError
from clickharvest.files import check_place
from clickharvest.words import clean_line, clean_lines, clean_text

PLAIN = {"✓": "+", "✗": "x", "·": "-", "…": "...", "±": "+-", "×": "x", "–": "-", "—": "-", "−": "-", "─": "-",
         "≥": ">=", "≤": "<=", "λ": "lambda", "η": "eta", "ζ": "zeta", "’": "'", "“": '"', "”": '"'}  # fmt: skip
"""Spellings in ASCII of the letters that our own texts use."""
LONGEST = 2_000
"""Characters of an error or a warning; what is between its ends is left out."""
SAME_ENDING = {".pq": ".parquet", ".htm": ".html"}


def tell(text: str) -> None:
    """Print a text on standard output, clean."""
    print(clean_lines(text))  # noqa: T201


def tell_json(answer: Mapping[str, Any]) -> None:
    """Print an answer for machines."""
    tell(json.dumps(answer, indent=2, default=str))


def complain(text: str) -> None:
    """Print one line on standard error, clean and not too long; where there is none, nobody reads it."""
    if len(text) > LONGEST:  # of a file that may hold anything
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    with suppress(OSError, ValueError):
        print(clean_line(text), file=sys.stderr)  # noqa: T201


def prepare_streams() -> None:
    """Let standard output print any text, whatever letters the terminal has, and ignore a width that is no width."""
    codecs.register_error("clickharvest", _spell_plainly)
    sys.stdout, sys.stderr = (stream or Path(os.devnull).open("w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="clickharvest")
    columns = os.environ.get("COLUMNS", "1")
    if not columns.isdecimal() or not 0 < int(columns) < 10_000:
        del os.environ["COLUMNS"]


def interrupted(finished: Sequence[Path]) -> str:
    """Return the message of a command that was interrupted, given the files that it had written before.

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
    unknown = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter, "?") for letter in unknown), error.end


def place_to_write(
    output: Path | None,
    what: str,
    example: str,
    sources: Iterable[str | Path | None] = (),
    endings: Iterable[str] | None = None,
) -> Path:
    """Return the file or folder to write, checked before anything is computed.

    Args:
        output: the file or folder, None where none was named.
        what: what is written, such as "the model".
        example: a name that it could have; one without an ending is a folder, whose command checks its place.
        sources: what is read, see `refuse_overwriting`.
        endings: endings of the kinds of file that can be written; by default the example's. Empty: any.

    Raises:
        InputError: there is nowhere to write, or the name has another ending, or the command reads the file.
    """
    expected = [Path(example).suffix] if endings is None else list(endings)
    is_folder = not Path(example).suffix
    if output is None:
        raise InputError(f"nowhere to write {what}: name a {'folder' if is_folder else 'file'} with -o {example}")
    ending = output.suffix.lower()
    if is_folder:
        return output
    if expected and SAME_ENDING.get(ending, ending) not in expected:
        raise InputError(f"-o {output}: the name of {what} should end in {' or '.join(expected)}")
    refuse_overwriting(output, sources)
    return output


def check_folder(folder: Path, what: str, files: Sequence[str], *, replace: bool = True) -> None:
    """Check that a command can write a folder, and loses no file of the user's by it.

    Args:
        folder: the folder to write.
        what: what is written, such as "a simulation".
        files: the files that it may hold already, to be replaced.
        replace: whether they may be replaced.

    Raises:
        InputError: it is a file, has no parent, or holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: {what} is a folder; name another one")
    if folder.is_symlink() and not folder.exists():
        raise InputError(f"{folder} is a symbolic link that leads to no folder: name another one")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"cannot write {folder}: the directory {folder.parent} does not exist; create it first")
    names = sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []
    if names and not replace:
        raise InputError(f"{folder} is not empty: name another folder, or replace {what} in it with --force")
    if others := [name for name in names if name not in files]:
        raise InputError(f"{folder} holds {others[0]}, which is not of {what}: name another folder with -o")


def refuse_overwriting(output: Path, sources: Iterable[str | Path | None]) -> None:
    """Check that a command can write a file, and does not read it, be it through a link.

    Args:
        output: the file to write.
        sources: files, folders and globs that are read; others, such as tables of a warehouse, cannot be meant.

    Raises:
        InputError: the output is one of the sources, or would be among the files of a folder or glob next time; or
            nothing can be written there.
    """
    for source in filter(None, sources):
        among = False
        with suppress(OSError):  # the reader complains of a source that cannot be looked up
            among = is_among(output, str(source))
        if among:
            name = clean_text(source, 200)
            raise InputError(f"-o {output} is what the command reads ({name}): write to another file")
    check_place(output)


def is_among(output: Path, source: str) -> bool:
    """Whether a file is a source, is in the folder that it is, or matches the glob that it is.

    Example:
        >>> is_among(Path("logs/weighted.parquet"), "logs/*.parquet"), is_among(Path("m.safetensors"), "log.csv")
        (True, False)
    """
    from clickharvest.logs.sources import file_format

    place = Path(source)
    if place.is_dir():
        real = Path(os.path.realpath(output))
        return file_format(real.name) is not None and real.is_relative_to(os.path.realpath(place))
    if place.exists():
        return output.exists() and output.samefile(place)
    if output.exists() and any(output.samefile(match) for match in glob.glob(source, recursive=True)):
        return True
    return fnmatch(str(output.absolute()), str(place.absolute()))
