"""A command starts with what it needs, and ends clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clickharvest.commands.app import COMMANDS, LIMITS, keep_to_one_thread
from places import SRC

HEAVY = ("ibis", "duckdb", "pyarrow", "scipy", "sklearn", "altair", "numpy", "pandas", "pydantic")
LOADED = f"""
import sys
from clickharvest.commands.app import _run
code = _run()
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""
HELP = f"""
import sys
from clickharvest.commands.app import _run
for words in {[["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)]!r}:
    sys.argv = ["clickharvest", *words]
    assert _run() == 0, words
    print(*words, *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""


def run_python(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SRC)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_help_loads_no_engine_and_no_array_library() -> None:
    ended = run_python("-c", HELP)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.splitlines() == ["--version", "--help", *(f"{name} --help" for name in COMMANDS)]


def test_a_check_does_not_load_pandas(tmp_path: Path) -> None:
    rows = ["query,doc,position,click,ranker,time", "q,a,1,1,x,1", "q,a,2,0,y,2", "q,b,2,1,x,3", "q,b,1,1,y,4"]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    ended = run_python("-c", LOADED, "check", "log.csv", folder=tmp_path)
    assert ended.returncode == 0
    assert not {"pandas", "sklearn", "altair"} & set(ended.stderr.split())


def test_a_fit_does_not_load_pandas_and_keeps_to_one_thread(tmp_path: Path) -> None:
    """Arrow makes arrays with pandas, if asked to, which takes as long as a small fit."""
    rows = ["query,doc,position,click,device"]
    shown = [(i, doc, position) for i in range(9) for doc in "xyz" for position in (1, 2)]
    rows += [f"q{i},{doc},{position},{(i + position) % 3 % 2},{'ab'[i % 2]}" for i, doc, position in shown]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    words = ("fit", "log.csv", "--context", "device", "-o", "model.safetensors")
    told = LOADED.replace("sys.exit", "import os; print(os.environ['OPENBLAS_NUM_THREADS'], file=sys.stderr)\nsys.exit")
    ended = run_python("-c", told, *words, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    loaded, threads = ended.stderr.strip().splitlines()[-2:]
    assert not {"pandas", "sklearn", "altair"} & set(loaded.split())
    assert threads == "1"


def test_threads_are_the_users_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIMITS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    keep_to_one_thread()
    assert not {"OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"} & os.environ.keys()
    monkeypatch.delenv("OMP_NUM_THREADS")
    keep_to_one_thread()
    assert [os.environ.get(name) for name in LIMITS] == ["1", "1", None]


def test_a_process_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("query,doc,position,click\nq,a,1,1\nq,b,2,0\n")
    (tmp_path / "temporary").mkdir()
    ended = run_python("-m", "clickharvest", "check", "log.csv", folder=tmp_path, TMPDIR=str(tmp_path / "temporary"))
    assert (ended.returncode, ended.stderr) == (3, "")
    assert ended.stdout.endswith("does not reveal examination at position 2.\n")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert run_python("-m", "clickharvest", "check", "nowhere.csv").returncode == 2
