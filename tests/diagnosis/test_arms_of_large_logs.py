"""Rankers of a large log are compared by some documents, whole; by all where they are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.diagnosis import arm_displays
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

ROWS = 6_000


def counted(documents: int, engine: DuckDBEngine) -> dict[tuple[Any, ...], float]:
    """Return the displays of documents at positions, of a log of two queries and rankers."""
    random = np.random.default_rng(0)
    columns = {name: random.integers(n, size=ROWS) for name, n in (("query", 2), ("doc", documents), ("ranker", 2))}
    columns["doc"] += 1  # the digest of zeros is 0, so that they are always drawn
    log = pa.table(columns | {"position": random.integers(1, 4, size=ROWS), "click": random.integers(2, size=ROWS)})
    cells = arm_displays.count_displays(read_log(log, ranker="ranker", engine=engine)).cells
    found = engine.fetch(cells, task="Counting").to_pylist()
    return {tuple(row[name] for name in ("query", "doc", "position", "arm")): row["shown"] for row in found}


@pytest.mark.parametrize("digests", [True, False])
def test_documents_of_large_logs_are_drawn_whole(digests: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = DuckDBEngine()
    if not digests:
        monkeypatch.setattr(DuckDBEngine, "digest", lambda *_: None)
    whole = counted(100, engine)
    assert sum(whole.values()) == ROWS
    monkeypatch.setattr(arm_displays, "MOST_ROWS", ROWS // 4)
    some = counted(100, engine)
    assert some.items() < whole.items()
    assert 0.5 < sum(some.values()) / (ROWS / 4) < 2
    drawn = {key[:2] for key in some}
    assert {key for key in whole if key[:2] in drawn} == set(some)


def test_few_documents_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_displays, "MOST_ROWS", 1)
    assert sum(counted(3, DuckDBEngine()).values()) == ROWS
