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
