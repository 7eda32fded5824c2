"""Benchmark of memory: training and using a ranker with one million rows of 136 features, each in a process of its own.

    make benchmark-features
    .venv/bin/python benchmarks/features.py --rows 100000 --learners lightgbm

Features are a Parquet file in single precision, as many as the largest public sets for learning to rank have (136);
all documents are shown, so that all compete. A run with the default options writes its table into
`benchmarks/tables`; any other run prints it only. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import HERE, machine
from tables import write_table

ROWS, FEATURES, LIST = 1_000_000, 136, 100
BAR_MB = 2_000
LEARNERS = {
    "lightgbm": {"loss": "softmax"},
    "xgboost": {"loss": "softmax"},
    "linear": {"loss": "softmax"},
    "svm": {"C": 0.01, "clip": 0.1},
}
"""Learners with their settings; SVM-Rank without the search for C and clip, which takes time and not memory."""
ROUNDS = 10
"""Trees that are grown: memory is the question, which more of them do not change."""
TRAIN = """
from clickharvest.logs.reading import read_log
from clickharvest.rank import BoostSettings, at_face_value, read_clicks, split_lists, take_lists, train_ranker
clicks = read_clicks(read_log(log, clicks="clicks", impressions="impressions"), documents)
held = split_lists(clicks.data, 0.2)
train, test = (take_lists(clicks.data, side, copy=False) for side in (~held, held))
for part in (at_face_value(train), train):
    ranker = train_ranker(part, learner, **how, names=clicks.features, settings=BoostSettings(rounds=rounds))
    ranker.predict(test.features)
ranker.save(output)
"""
RERANK = """
from clickharvest.rank import load_ranker, rerank
rerank(load_ranker(ranker), documents, output)
"""
MEASURE = """
import json, resource, sys, time
given = json.loads(sys.argv[1])
start = time.perf_counter()
exec(given.pop("code"), given)
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
}))
"""


def main() -> None:
    """Make the files, run the commands, and print what they took."""
    parser = argparse.ArgumentParser(description="Benchmark of memory with many features.")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of features")
    parser.add_argument("--learners", default=",".join(LEARNERS), help="learners to train")
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the files")
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    lines = ["| work | seconds | peak MB |", "|---|--:|--:|"]
    bars = []
    documents, log = options.data / f"features-{options.rows}.parquet", options.data / f"shown-{options.rows}.parquet"
    if not (documents.exists() and log.exists()):
        make_files(documents, log, options.rows)
    with tempfile.TemporaryDirectory(prefix="features-", dir=options.data) as folder:
        for learner in options.learners.split(","):
            ranker, ranked = str(Path(folder, f"{learner}.json")), str(Path(folder, "ranked.parquet"))
            files = {"log": str(log), "documents": str(documents)}
            work: dict[str, dict[str, Any]] = {
                f"reading, training, judging: {learner}": {
                    "code": TRAIN, **files, "learner": learner, "how": LEARNERS[learner], "rounds": ROUNDS,
                    "output": ranker,
                },
                f"`rerank`, a ranker of {learner}": {"code": RERANK, **files, "ranker": ranker, "output": ranked},
            }  # fmt: skip
            for label, given in work.items():
                done = subprocess.run(
                    [sys.executable, "-c", MEASURE, json.dumps(given)], capture_output=True, text=True
                )
                if done.returncode:
                    sys.exit(f"{label} failed: {done.stderr}")
                took = json.loads(done.stdout.splitlines()[-1])
                lines.append(f"| {label} | {took['seconds']:.0f} | {took['peak_mb']:,.0f} |")
                verdict = "PASS" if took["peak_mb"] <= BAR_MB else "FAIL"
                bars.append(f"- {verdict}: {label}: {took['peak_mb']:,.0f} MB (bar: {BAR_MB:,})")
                print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join([f"{options.rows:,} rows of {FEATURES} features.", "", *lines, "", *bars])
    print(text)
    if vars(options) == vars(parser.parse_args([])):
        load = f"load average {os.getloadavg()[0]:.1f} at the end"
        write_table("features", f"{text}\n\n{machine('DuckDB', 'LightGBM')}, {load}.")
    sys.exit(any("FAIL" in bar for bar in bars))


def make_files(documents_file: Path, log_file: Path, rows: int) -> None:
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
        pq.ParquetWriter(documents_file, schema) as documents,
        pq.ParquetWriter(log_file, pa.schema([*keys, *shown])) as log,
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


if __name__ == "__main__":
    main()
