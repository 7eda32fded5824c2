"""Fixtures of several rooms: the command line, DuckDB, the real log where it is present."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pyarrow as pa
import pytest

from clickharvest.logs.engines import DuckDBEngine
from command_line import Command
from command_line import run as run_command
from places import SHARED_DATA


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Run a command line in an empty folder and return its exit code, output and error output."""
    monkeypatch.chdir(tmp_path)
    return lambda arguments: (run_command(*shlex.split(arguments)), *capsys.readouterr())


@pytest.fixture(scope="session")
def duckdb_engine() -> DuckDBEngine:
    return DuckDBEngine()


@pytest.fixture(scope="module")
def one_duckdb() -> Iterator[None]:
    """Make every engine of a module a connection to one DuckDB, which takes an eighth of the time of starting one.

    Temporary tables and views belong to a connection; attached files and memory limits to all of them.
    """
    instance, start = duckdb.connect(), ibis.duckdb.connect

    def connect(*arguments: Any) -> Any:
        return start(*arguments) if arguments else ibis.duckdb.from_connection(instance.cursor())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ibis.duckdb, "connect", connect)
        yield


@pytest.fixture(scope="session")
def yandex_log() -> Path:
    path = SHARED_DATA / "yandex_sessions.parquet"
    if not path.exists():
        pytest.skip("the real log yandex_sessions.parquet is not on this machine")
    return path


@pytest.fixture(scope="session")
def toy_rankings() -> pa.Table:
    """The paper's first figure: one query, five documents, three rankers."""
    rankers = {"f1": "d1 d2 d3 d4 d5", "f2": "d2 d1 d3 d5 d4", "f3": "d2 d3 d1 d5 d4"}
    rows = [
        {"query": "x", "ranker": ranker, "doc": doc, "position": position}
        for ranker, ranking in rankers.items()
        for position, doc in enumerate(ranking.split(), start=1)
    ]
    return pa.Table.from_pylist(rows)
