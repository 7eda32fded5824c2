"""Files that appear whole or not at all, and errors told in one line. The standard library alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clickharvest.errors import InputError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` only if the block succeeds.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "out.txt"
        >>> with atomic_path(target) as partial:
        ...     _ = partial.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory; name a file")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the directory {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {path}: no permission to write in {path.parent}")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def first_line(error: BaseException) -> str:
    """Return what an error says in one line of at most 300 characters, ending in a full stop.

    Example:
        >>> first_line(ValueError("Invalid Input Error: no magic bytes\\n\\nLINE 1: SELECT …"))
        'no magic bytes.'
    """
    told = re.split(r"\n\s*\n|\nPossible", str(error).strip())[0].splitlines() or [type(error).__name__]
    text = re.sub(r"^[A-Z][A-Za-z]*( [A-Z][A-Za-z]*)* Error: ", "", told[0])
    if place := re.match(r"CSV Error on Line: (\d+)", text):
        # DuckDB quotes the line itself (it may span several) before it tells what is wrong with it.
        file = re.search(r"^\s*file = (.+)$", str(error), re.MULTILINE)
        text = f"line {place[1]}{f' of {Path(file[1]).name}' if file else ''}: {told[-1]}"
    text = text.strip()
    text = text if len(text) <= 300 else text[:299] + "…"
    return text if text.endswith((".", "!", "?", "…")) else text + "."
