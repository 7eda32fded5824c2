"""Files and folders that appear whole or not at all, and the removal of what dead processes left.

A file that is half written has a name of its own beside its target, with a mark of the machine or container and the
process: `.model.safetensors.1a2b3c4d-4711.partial`. The next command that writes there removes those of dead processes,
and those of other machines that have not changed for a week.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clickharvest.errors import InputError
from clickharvest.words import first_line

LONGEST_NAME = 240
"""Bytes of the name of a temporary file: file systems take 255, and an engine may add an ending."""
ABANDONED = 7 * 86_400
"""Seconds without a change after which a temporary file of another machine counts as abandoned."""
SHARED = "_common_metadata"
"""File for shared metadata in a folder of Parquet files."""
FOOTER_KEY = "clickharvest"
"""Key of our metadata, as JSON, in the footer of a Parquet file. Spark's executors write no footers: see `SHARED`."""
KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))

written: deque[Path] = deque(maxlen=100)
"""The files that this process has finished, the latest at the end."""
_under_way: dict[Path, Path] = {}
"""Half-written files with their targets, and temporary folders, which are their own targets."""
_swept: set[str] = set()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes the name `path` only if the block succeeds.

    A symbolic link stays one: what it leads to is replaced. A new file has the mode that the umask gives, one that is
    replaced keeps its own.

    Raises:
        InputError: nothing can be written there, or the block has found the disk full.

    Example:
        >>> target = Path(tempfile.mkdtemp()) / "out.txt"
        >>> with atomic_path(target) as partial:
        ...     _ = partial.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    with _file_errors(path):
        target = _target(path)
        sweep(target.parent)
        partial = target.with_name(own_name(target.name, "partial"))
        mode = _create(partial, target)
    _under_way[partial] = path
    try:
        with _file_errors(path):
            yield partial
            partial.chmod(mode)
            partial.replace(target)
        written.append(path)
    finally:
        _remove(partial)
        del _under_way[partial]


def check_place(path: Path) -> None:
    """Check that a file can be written at a place, before its content is computed.

    A folder that a cluster may replace, empty or written by one, is left to the engine.

    Raises:
        InputError: nothing can be written there.

    Example:
        >>> check_place(Path(tempfile.mkdtemp()) / "nowhere" / "out.txt")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        clickharvest.errors.InputError: cannot write ...: the directory ... does not exist; create it first
    """
    with _file_errors(path):
        if not (path.is_dir() and ((path / SHARED).exists() or not any(path.iterdir()))):
            _target(path)


@contextmanager
def atomic_folder(folder: Path, check: Callable[[], None]) -> Iterator[Path]:
    """Yield a temporary folder that takes the place of `folder` only if the block succeeds.

    Args:
        folder: the folder to make, or to replace.
        check: raises where it must not be replaced; called before the block and again after it.
    """
    target = Path(os.path.realpath(folder))
    with _file_errors(folder):
        sweep(target.parent)
        check()
        partial, replaced = (target.with_name(own_name(target.name, ending)) for ending in ("partial", "replaced"))
        partial.mkdir()
    _under_way[partial] = folder
    try:
        with _file_errors(folder):
            yield partial
            check()
            if target.exists():
                target.rename(replaced)
            try:
                partial.rename(target)
            except OSError:
                if replaced.exists():
                    replaced.rename(target)
                raise
        written.append(folder)
    finally:
        _remove(partial)
        _remove(replaced)
        del _under_way[partial]


def temporary_folder() -> Path:
    """Return a new folder for temporary files, for `remove_folder`; the next run removes it if this one is killed.

    Raises:
        InputError: there is no place for temporary files.
    """
    try:
        place = tempfile.gettempdir()
        sweep(Path(place))
        folder = Path(tempfile.mkdtemp(prefix=f"clickharvest-{_process()}-"))
    except OSError as error:
        raise InputError(
            f"there is no place for temporary files: {_reason(error)}; name a folder with the variable TMPDIR"
        ) from error
    _under_way[folder] = folder
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a temporary folder and all that is in it."""
    _remove(folder)
    _under_way.pop(folder, None)


def abandon() -> list[Path]:
    """Remove all half-written files, and return the finished ones; for a process that is about to end."""
    for partial, target in list(_under_way.items()):
        if partial != target and not partial.exists():  # it was just given its name
            written.append(target)
        _remove(partial)
    return list(written)


def own_name(name: str, ending: str) -> str:
    """Return the hidden temporary name for a file called `name`, never too long."""
    mark = f".{_process()}.{ending}"
    kept = os.fsdecode(os.fsencode(name)[: LONGEST_NAME - 1 - len(mark)])
    return f".{kept}{mark}"


def sweep(folder: Path) -> None:
    """Remove what dead processes of this user have left in a folder, once per process.

    A folder that was set aside, to be replaced, gets its name back if its successor was never finished.
    """
    if str(folder) in _swept or os.name != "posix":
        return
    _swept.add(str(folder))
    process = r"(?P<machine>[0-9a-f]{8})-(?P<pid>\d+)"
    ours = re.compile(rf"\.(?P<name>.+)\.{process}\.(?P<ending>partial|partial\.parts|replaced)")
    temporary = re.compile(rf"clickharvest-{process}-\w+")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = ours.fullmatch(entry.name) or temporary.fullmatch(entry.name)
            if not match or (about := entry.stat(follow_symlinks=False)).st_uid != os.geteuid():
                continue
            is_own = match["machine"] == _machine()
            if _is_alive(int(match["pid"])) if is_own else time.time() - about.st_ctime < ABANDONED:
                continue
            left = Path(entry.path)
            if match.groupdict().get("ending") == "replaced" and not (back := folder / match["name"]).exists():
                left.rename(back)
            elif left not in _under_way:
                _remove(left)


def _machine() -> str:
    """Return a mark of this machine or container.

    Containers may share a disk and a host name, but their process numbers differ.
    """
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return f"{zlib.crc32(name.encode(errors='replace')):08x}"


def _process() -> str:
    return f"{_machine()}-{os.getpid()}"


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():  # an earlier process with the same number, as in containers
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _target(path: Path) -> Path:
    """Return the file to write, with symbolic links followed, if one can be written there."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory; name a file")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():
        raise InputError(f"cannot write {path}: it is a symbolic link that leads back to itself; name a file")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: the directory {target.parent} does not exist; create it first")
    if target.exists():
        mode = target.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = next((name for is_kind, name in KINDS if is_kind(mode)), "a device")
            raise InputError(f"cannot write {path}: it is {kind}; name a file")
        if not os.access(target, os.W_OK):
            raise InputError(f"cannot write {path}: it is read-only; name another file, or make it writable")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"cannot write {path}: no permission to write in {target.parent}")
    return target


def _create(partial: Path, target: Path) -> int:
    """Create the temporary file and return the mode for its target; reading the umask would change it."""
    target_mode = target.stat().st_mode if target.exists() else None
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        mode = os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
    return stat.S_IMODE(mode if target_mode is None else target_mode)


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into one line about the file to write."""
    try:
        yield
    except (BrokenPipeError, InterruptedError):
        raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """Return the reason of the file system, without the name of a temporary file."""
    return (os.strerror(error.errno) if error.errno else first_line(error)).rstrip(".")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
