"""What a command reads must survive what it writes, and what it writes must have a place."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from clickharvest.errors import InputError
from clickharvest.files import check_place
from clickharvest.words import clean_text

SAME_AS = {".pq": ".parquet", ".htm": ".html"}
"""Endings that tell the same kind of file."""


def refuse_overwriting(output: Path, sources: Iterable[str | Path | None]) -> None:
    """See that a command can write, and does not write what it reads, be it through a link: before it computes.

    Args:
        output: the file to write.
        sources: files, folders and globs that are read; others, such as tables of a warehouse, cannot be meant.

    Raises:
        InputError: the output is one of the sources, or would be among the files of a folder or glob next time; or
            nothing can be written there.
    """
    for source in sources:
        among = False
        with suppress(OSError):  # what cannot be looked up is for the reader to tell
            among = bool(source) and is_among(output, str(source))
        if among:
            told = clean_text(source, 200)
            raise InputError(f"-o {output} is what the command reads ({told}): write to another file")
    check_place(output)


def require_output(output: Path | None, what: str, example: str) -> Path:
    """Return the file or folder to write, which must be named."""
    if output is None:
        raise InputError(f"nowhere to write {what}: name a {'file' if '.' in example else 'folder'} with -o {example}")
    return output


def place_to_write(
    output: Path | None,
    what: str,
    example: str,
    sources: Iterable[str | Path | None],
    endings: Iterable[str] = (),
) -> Path:
    """Return the file to write, before anything is computed: it is named, ends as it should and is not read.

    Args:
        output: the file, None where none was named.
        what: what is written, such as "the model".
        example: a name that it could have.
        sources: what is read, see `refuse_overwriting`.
        endings: endings that tell the kind of file; by default the example's.

    Raises:
        InputError: nothing can be written, or not there.
    """
    output, expected = require_output(output, what, example), list(endings) or [Path(example).suffix]
    ending = output.suffix.lower()
    if SAME_AS.get(ending, ending) not in expected:
        raise InputError(f"-o {output}: the name of {what} should end in {' or '.join(expected)}")
    refuse_overwriting(output, sources)
    return output


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
    if output.exists() and any(output.samefile(found) for found in glob.glob(source, recursive=True)):
        return True
    return fnmatch(str(output.absolute()), str(place.absolute()))
