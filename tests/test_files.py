"""Files: whole or not at all, the umask's mode, links written through, what dead processes left."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clickharvest import files
from clickharvest.errors import InputError
from clickharvest.files import abandon, atomic_folder, atomic_path, own_name, remove_folder, sweep, temporary_folder


def write(path: Path, text: str = "new", then: Callable[[], object] = lambda: None) -> None:
    with atomic_path(path) as partial:
        partial.write_text(text)
        then()


def write_folder(folder: Path, text: str, then: Callable[[], object] = lambda: None) -> None:
    with atomic_folder(folder, lambda: None) as partial:
        (partial / "a").write_text(text)
        then()


@pytest.fixture(autouse=True)
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_swept", set())


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def name_of(pid: int, name: str, ending: str) -> str:
    return own_name(name, ending).replace(f"-{os.getpid()}.", f"-{pid}.")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with atomic_path(tmp_path / "out") as partial:
            partial.unlink()
            os.close(os.open(partial, os.O_CREAT, 0o600))  # as libraries do that write through a temporary file
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    write(path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_links_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    (tmp_path / "real" / "file").write_text("old")
    link.symlink_to("real/file")
    dangling.symlink_to("real/later")
    write(link)
    write(dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert [(tmp_path / "real" / name).read_text() for name in ("file", "later")] == ["new", "new"]
    assert sorted(path.name for path in (tmp_path / "real").iterdir()) == ["file", "later"]


def test_what_is_no_place_for_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("nowhere/file")
    for name, told in (
        ("fifo", "it is a FIFO"),
        ("loop", "leads back to itself"),
        ("lost", "does not exist"),
        ("nowhere/x", "does not exist"),
        ("x" * 300, "File name too long"),
        (".", "it is a directory"),
    ):
        with pytest.raises(InputError, match=told):
            write(tmp_path / name)
    with pytest.raises(InputError, match="it is a device"):
        write(Path("/dev/full"))


def test_long_names_leave_room_for_ours(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 126)  # 252 bytes
    write(path)
    assert path.read_text() == "new"
    assert len(os.fsencode(own_name("ü" * 126, "partial"))) <= 249


def test_a_full_disk_is_one_line_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(InputError, match=r"^cannot write .*out: No space left on device$"):
        write(path, "half", then=lambda: Path("/dev/full").write_text("x"))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("out", "old")]


def test_the_next_run_removes_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    dead = dead_process()
    (tmp_path / name_of(dead, "out", "partial")).write_text("half")
    (tmp_path / name_of(dead, "out", "partial.parts")).mkdir()
    kept = [name_of(os.getppid(), "out", "partial"), ".mine.partial", f".other.00000000-{dead}.partial", "x.partial"]
    for name in kept:
        (tmp_path / name).write_text("kept")
    write(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "new"])


def test_containers_of_one_host_name_leave_each_others_files_alone_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as inside:
        inside.setattr(os, "readlink", lambda _: "pid:[4026532999]")
        theirs = name_of(dead_process(), "out", "partial")  # nobody here has the number
    (tmp_path / theirs).write_text("half")
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [theirs]
    monkeypatch.setattr(files, "_swept", set())
    monkeypatch.setattr("time.time", lambda now=time.time() + 8 * 86_400: now)
    sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_set_aside_comes_back(tmp_path: Path) -> None:
    aside = tmp_path / name_of(dead_process(), "folder", "replaced")
    aside.mkdir()
    (aside / "log").write_text("old")
    sweep(tmp_path)
    assert (tmp_path / "folder" / "log").read_text() == "old"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_folder(folder, "one")
    with pytest.raises(ZeroDivisionError):
        write_folder(folder, "half", then=lambda: 1 / 0)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (folder / "a").read_text() == "one"


def test_temporary_folders_of_the_dead_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = temporary_folder()
    dead = tmp_path / first.name.replace(f"-{os.getpid()}-", f"-{dead_process()}-")
    (dead / "spilled").mkdir(parents=True)
    files._swept.clear()
    second = temporary_folder()
    assert sorted(tmp_path.iterdir()) == sorted([first, second])
    remove_folder(first)
    remove_folder(second)
    assert not list(tmp_path.iterdir())


def test_no_place_for_temporary_files_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"no place for temporary files: No such file or directory; .*TMPDIR"):
        temporary_folder()


def test_what_is_under_way_is_abandoned(tmp_path: Path) -> None:
    files.written.clear()
    write(tmp_path / "done")
    finished: list[Path] = []
    with pytest.raises(InputError, match="cannot write"):
        write(tmp_path / "out", then=lambda: finished.extend(abandon()))
    assert finished == [tmp_path / "done"]
    assert [path.name for path in tmp_path.iterdir()] == ["done"]


def test_a_killed_process_leaves_no_half_file_under_the_name(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys\nfrom clickharvest.files import atomic_path\n"
        "with atomic_path(pathlib.Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half'); print('ready', flush=True); sys.stdin.read()\n"
    )
    path = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert [file.name.startswith(".out.") for file in tmp_path.iterdir()] == [True]
    write(path)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
