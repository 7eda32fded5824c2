from __future__ import annotations

import os
import stat
from pathlib import Path

import ibis
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import EngineError, InputError
from clickharvest.files import atomic_path
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.spark import SparkEngine, check_java
from clickharvest.words import first_line


def fail_halfway(target: Path) -> None:
    with atomic_path(target) as partial:
        partial.write_text("half")
        raise RuntimeError


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    with pytest.raises(RuntimeError):
        fail_halfway(target)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_keeps_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    target.write_text("old")
    with pytest.raises(RuntimeError):
        fail_halfway(target)
    assert target.read_text() == "old"


def test_memory_limit_is_set_and_checked() -> None:
    engine = DuckDBEngine(memory_limit="500MB")
    limit = engine.backend.con.execute("SELECT current_setting('memory_limit')").fetchone()[0]
    assert limit.startswith("476")  # MiB
    with pytest.raises(InputError, match="memory_limit = 'potato'"):
        DuckDBEngine(memory_limit="potato")


def test_spilling_under_a_small_limit(tmp_path: Path) -> None:
    engine = DuckDBEngine(memory_limit="60MB", temp_directory=tmp_path)
    numbers = ibis.range(4_000_000).unnest().name("k").as_table()
    sorted_rows = numbers.order_by(numbers.k.hash()).select("k")
    assert engine.write_parquet(sorted_rows, tmp_path / "out.parquet", metadata={}, task="Sorting") == 4_000_000


def test_columns_written_have_the_types_promised(tmp_path: Path) -> None:
    table = ibis.memtable({"a \"b'c": [1, 2]})
    summed = table.agg(**{'it\'s a "sum"': table["a \"b'c"].sum()})
    engine = DuckDBEngine()
    engine.write_parquet(summed, tmp_path / "out.parquet", metadata={"it's": 'a "test"'}, task="Summing")
    written = pq.read_table(tmp_path / "out.parquet")
    assert str(written.schema.field(0).type) == "int64"
    assert written.schema.metadata[b"clickharvest"] == b'{"it\'s": "a \\"test\\""}'
    kept = engine.materialise(summed, task="Keeping")
    assert engine.fetch(kept, task="Reading").to_pylist() == [{'it\'s a "sum"': 3}]


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    major = version.split(".")[1 if version.startswith("1.") else 0]
    with pytest.raises(EngineError, match=rf"Java {major} found.*Spark needs Java 17"):
        SparkEngine()


def test_a_new_java_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "21.0.1")))
    check_java()


def test_a_missing_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="no Java found"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match="does not run"):
        check_java()


def test_first_lines_are_short() -> None:
    assert first_line(ValueError("one\ntwo")) == "one."
    assert first_line(ValueError("")) == "ValueError."
    assert len(first_line(ValueError("x" * 1000))) == 300


def test_a_folder_without_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="no permission"), atomic_path(tmp_path / "x"):
        pass
