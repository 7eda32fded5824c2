"""Benchmark of memory: training and using a ranker with one million rows of 136 features, each in a process of its own.

    make benchmark-features
    .venv/bin/python benchmarks/features.py --rows 100000 --learners lightgbm

Features are a Parquet file in single precision, as large as the largest public sets for learning to rank (136 features);
all documents are shown, so that all compete. A run with the default options writes its table into
`benchmarks/README.md`; any other run prints it only. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
BEGIN, END = "<!-- features:begin -->", "<!-- features:end -->"
ROWS, FEATURES, LIST = 1_000_000, 136, 100
BAR_MB = 2_000
LEARNERS = ("lightgbm", "xgboost", "linear")
MEASURE = """
import json, resource, sys, time
from clickharvest.commands.app import main
sys.argv = ["clickharvest", *sys.argv[1:]]
start = time.perf_counter()
try:
    main()
except SystemExit as ended:
    took = {"code": ended.code, "seconds": time.perf_counter() - start}
    took["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps(took), file=sys.stderr)
"""


def main() -> None:
    """Make the files, run the commands, and print what they took."""
    parser = argparse.ArgumentParser(description="Benchmark of memory with many features.")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of features")
    parser.add_argument("--learners", default=",".join(LEARNERS), help="learners to train")
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the files")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    lines = ["| command | seconds | peak MB |", "|---|--:|--:|"]
    bars = []
    with tempfile.TemporaryDirectory(prefix="features-", dir=options.data) as name:
        folder = Path(name)
        make_files(folder, options.rows)
        log, documents = folder / "log.parquet", folder / "documents.parquet"
        for learner in options.learners.split(","):
            ranker = folder / f"{learner}.json"
            commands = {
                f"`rank --learner {learner}`": ["rank", log, documents, "--learner", learner, "-o", ranker],
                f"`rerank`, a ranker of {learner}": ["rerank", ranker, documents, "-o", folder / "ranked.parquet"],
            }
            for label, words in commands.items():
                took = measure([str(word) for word in words])
                lines.append(f"| {label} | {took['seconds']:.0f} | {took['peak_mb']:,.0f} |")
                verdict = "PASS" if took["peak_mb"] <= BAR_MB else "FAIL"
                bars.append(f"- {verdict}: {label}: {took['peak_mb']:,.0f} MB (bar: {BAR_MB:,})")
                print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join([f"{options.rows:,} rows of {FEATURES} features.", "", *lines, "", *bars])
    print(text)
    if vars(options) == vars(parser.parse_args([])):
        before, rest = README.read_text().split(BEGIN)
        README.write_text(f"{before}{BEGIN}\n{text}\n\n{machine()}\n{END}{rest.split(END)[1]}")
    sys.exit(any("FAIL" in bar for bar in bars))


def make_files(folder: Path, rows: int) -> None:
    """Write features, and a log that shows every document once or more, with known propensities."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    names = [f"f{j}" for j in range(FEATURES)]
    keys = pa.schema([("query", pa.int32()), ("doc", pa.int32())])
    schema = pa.schema([*keys, *((name, pa.float32()) for name in names)])
    shown = [
        ("position", pa.int32()),
        ("clicks", pa.int64()),
        ("impressions", pa.int64()),
        ("propensity", pa.float64()),
    ]
    with (
        pq.ParquetWriter(folder / "documents.parquet", schema) as documents,
        pq.ParquetWriter(folder / "log.parquet", pa.schema([*keys, *shown])) as log,
    ):
        for begin in range(0, rows, 100 * LIST):
            doc = np.arange(begin, min(begin + 100 * LIST, rows), dtype=np.int32)
            x = random.normal(size=(len(doc), FEATURES)).astype(np.float32)
            own = {"query": doc // LIST, "doc": doc}
            documents.write_table(pa.table(own | dict(zip(names, x.T, strict=True)), schema=schema))
            position = doc % LIST + 1
            propensity = 1 / position
            clicks = random.binomial(20, propensity / (1 + np.exp(2 - x[:, 0] - x[:, 1] * x[:, 2])))
            counted = {"position": position, "clicks": clicks, "impressions": np.full(len(doc), 20)}
            log.write_table(pa.table(own | counted | {"propensity": propensity}, schema=pa.schema([*keys, *shown])))


def measure(words: list[str]) -> dict[str, float]:
    """Run a command in a process of its own and return what it took."""
    words = [*words, "--clicks", "clicks", "--impressions", "impressions"] if words[0] == "rank" else words
    done = subprocess.run([sys.executable, "-c", MEASURE, *words], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    took: dict[str, float] = json.loads(last)
    if took["code"]:
        sys.exit(f"{' '.join(words)} failed: {done.stderr}")
    return took


def machine() -> str:
    """Return what the numbers were measured with."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {version(name.lower())}" for name in ("DuckDB", "LightGBM"))
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB of memory; Python {platform.python_version()}, {versions}; "
        f"{datetime.now(UTC):%Y-%m-%d}, load average {os.getloadavg()[0]:.1f} at the end."
    )


if __name__ == "__main__":
    main()
