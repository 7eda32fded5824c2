"""What the processes of `benchmarks/peers.py` hand to each other: a log in files, an estimate in files.

A process gets a folder and the name of a model; it reads the log, estimates, and leaves `MODEL.npy` (examination
relative to position 1 [m, K], or [1, K] where it is the same for all contexts) and `MODEL.json` (time, memory,
versions) in a second folder. It never sees the truth. Needs NumPy only, so that it runs in every peer's environment.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROWS, SESSIONS = "log.parquet", "sessions.npz"
FEATURES, TEST_CONTEXTS = "features.npy", "test_contexts.npy"
"""Files of the log: one row per display; page by page; features of documents [D, G]; contexts to tell of [m, F]."""


@dataclass(frozen=True, eq=False)
class Sessions:
    """A log of S result pages of K documents each, in random order, with D documents and n queries.

    Attributes:
        query: the query of each page [S].
        doc: the document at each position [S, K], 0 to D − 1; a document belongs to one query.
        click: 0 or 1 [S, K].
        contexts: the context of each query [n, F].
    """

    query: np.ndarray
    doc: np.ndarray
    click: np.ndarray
    contexts: np.ndarray


Estimate = Callable[[Path, str, int], np.ndarray]
"""(folder of the log, name of the model, seed) → examination relative to position 1, [m, K] or [1, K]."""


def read_sessions(folder: Path) -> Sessions:
    """Read the log page by page."""
    with np.load(folder / SESSIONS) as file:
        return Sessions(**file)


def measure(estimate: Estimate, packages: Sequence[str]) -> None:
    """Estimate what the command line asks for, from the files of the log to the curves, and leave the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("model")
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    found = np.asarray(estimate(options.log, options.model, options.seed), float)
    report: dict[str, Any] = {
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": time.process_time() - cpu_begin,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "versions": {name: version(name) for name in packages},
    }
    np.save(options.result / f"{options.model}.npy", found)
    (options.result / f"{options.model}.json").write_text(json.dumps(report))
