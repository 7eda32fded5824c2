"""What command lines are drawn from: commands, options and their values, faults, places to write."""

from __future__ import annotations

import hostile

COMMANDS = {
    "check": 14, "harvest": 13, "show": 9, "propensities": 8, "weigh": 7, "tally": 6, "rerank": 6, "export": 6,
    "plan": 5, "judgments": 5, "labels": 4, "simulate": 4, "compare": 4, "fit": 3, "report": 3, "rank": 2,
    "reproduce": 1,
}  # fmt: skip
"""How many of a hundred cases each command has; those that compile or draw are dear."""
FAULTS = (
    "fsize",
    "full",
    "closed",
    "pipe",
    "no stderr",
    "interrupt",
    "kill",
    "ascii",
    "columns",
    "no tmp",
    "umask",
    "nobody",
)
PLACES = (
    "old", "link", "dangling", "loop", "fifo", "folder", "lost", "long", "input", "hard link", "device", "hostile",
    "ending", "hidden",
)  # fmt: skip
"""What the place to write may be, where it is not just a new file."""
NAMES = (
    "my log",
    "log[1]",
    "x*",
    "a'b",
    'a"b',
    "-x",
    "a\nb",
    "\x1b[31mx",
    "日本",
    "é",
    "a;b",
    "%20",
    "x" * 200,
    "~",
    "a,b",
    "a=b",
)
NUMBER = list(hostile.OPTION_NUMBERS)
COLUMN_FLAGS = (
    "query",
    "doc",
    "position",
    "click",
    "clicks",
    "impressions",
    "ranker",
    "page",
    "user",
    "time",
    "original",
)
COLUMN_VALUES = ["query", "doc", "position", "click", "device", "ranker", "page", "user", "nothing", ""]
LOG_OPTIONS = {
    **{f"--{name}": COLUMN_VALUES for name in COLUMN_FLAGS},
    "--context": ["device", "device", "device,ranker", "nothing", "query", "position", ",", "device,device"],
    "--position-base": ["0", "1", "2", "-5"],
    "--memory-limit": ["50MB", "1GB", "0", "-1", "1", "900TB", "x"],
    "--table": ["log", "main.log"],
    "--block": ["device=mobile", "ranker=a", "nothing=1", "device"],
    "--page-number": ["position", "page", "nothing"],
    "--page-size": ["10", "0"],
    "--repeat": ["first", "last"],
    "--format": ["ubi", "pages", "ga4", "nothing"],
    "--ubi-queries": ["rankings.parquet", "nothing.jsonl"],
    "--inputs": ["queries=nothing", "results=log.parquet", "x"],
    "--clicks-from": ["clicks.parquet", "log.parquet", "nothing"],
    "--within": ["30min", "1s", "2h", "0s", "-1min", "1", "min", "999999999999d"],
    "--spark-master": ["local"],
}
HARVEST_OPTIONS = {
    "--unit": ["context", "query"],
    "--max-position": ["2", "3", "10", "1"],
    "--rankings": ["rankings.parquet", "rankings.parquet", "log.parquet", "nothing"],
    "--traffic": ["a=50,b=50,c=1", "a=1", "a=0", "x=1"],
    "--swap": ["2", "5", "1", "1=.5,2=.5", "1=1", "2=.3"],
    "--placements": ["placements.parquet", "placements.parquet", "rankings.parquet", "nothing"],
    "--placement": ["placed", "placed", "position", "query", "nothing"],
    "--team-draft": ["5", "2", "0", "-1"],
}
CLUSTER = {"--cluster": ["query", "doc", "user", "page", "device", "nothing"]}
MAX_CLICKS = {"--max-clicks": ["1", "10", "50", "1000"]}
LEVEL = {"--level": ["0.9", "0.5", "0.999999", "1e-9", "1"]}
ANCHOR = {"--anchor": ["1", "2", "3", "99"]}
SEED = {"--seed": ["0", "7"]}
OPTIONS: dict[str, dict[str, list[str]]] = {
    "check": LOG_OPTIONS | HARVEST_OPTIONS | ANCHOR,
    "harvest": LOG_OPTIONS
    | HARVEST_OPTIONS
    | CLUSTER
    | MAX_CLICKS
    | {"--emit-sql": ["bigquery", "snowflake", "trino", "nothing"]},
    "show": {},
    "tally": LOG_OPTIONS | {"--keep": ["user", "device", "user,device", "page", "nothing", "clicks", ","]},
    "plan": LOG_OPTIONS
    | HARVEST_OPTIONS
    | LEVEL
    | ANCHOR
    | {
        "--width": ["0.1", "0.001", "5"],
        "--days": ["14", "0.5", "1e6"],
        "--pages": ["1000", "1", "1e12"],
        "--positions": ["2", "5", "1000"],
        "--queries": ["1", "100", "1000000"],
        "--swaps": ["auto", "neighbours=.05", "1-2=.05,2-3=.05", "1-2=1", "2-2=.1", "1-99=.1", "1=.1", "1-2-3=.1"],
        "--click-rates": ["0.3,0.2", "0.3", "1,1,1", "0,0", "2", "nan", "0.3,"],
        "--steepness": ["0", "1", "10"],
        "--spread": ["0", "0.5", "3"],
    },
    "judgments": LOG_OPTIONS
    | LEVEL
    | {
        "--as": ["table", "quepid", "qrels", "opensearch", "nothing"],
        "--rating": ["grade", "relevance"],
        "--cutoffs": ["0.5,1,2", "1", "0", "3,2,1", "nan", "1,1", "0.1,0.2,0.3,0.4,0.5"],
        "--scale": ["corpus", "query", "rate"],
        "--name": ["shop"],
    },
    "labels": LOG_OPTIONS | LEVEL,
    "rerank": {
        "--query": ["query", "doc", "a", "nothing", ""],
        "--doc": ["doc", "query", "a", "nothing", ""],
        "--memory-limit": ["50MB", "1GB", "0", "x"],
    },
    "export": {"--name": ["shop"]},
    "propensities": LEVEL | {"--table": ["x"]},
    "weigh": LOG_OPTIONS | {"--clip": ["0.1", "auto", "1", "2"]},
    "compare": LEVEL | {"--log": ["log.parquet"], "--baseline-log": ["log.parquet"], "--max-position": ["3"]},
    "report": LEVEL | LOG_OPTIONS | HARVEST_OPTIONS | {"--title": ["A page"], "--log": ["log.parquet"]},
    "fit": LOG_OPTIONS
    | HARVEST_OPTIONS
    | CLUSTER
    | MAX_CLICKS
    | ANCHOR
    | SEED
    | {
        "--objective": ["clickshare", "allpairs"],
        "--curve": ["constant", "linear", "power"],
        "--shape": ["rank=2", "width=3"],
        "--penalty": ["0", "1", "1e12"],
        "--intervals": ["sandwich", "none", "clustered"],
        "--relevance": ["constant"],
        "--weighting": ["paper"],
        "--bootstrap": ["2", "5"],
    },
    "rank": LOG_OPTIONS
    | LEVEL
    | SEED
    | {
        "--learner": [*("svm", "linear", "lightgbm", "xgboost") * 4, "auto"],
        "--loss": ["softmax", "poisson", "pairwise", "lambda", "robust", "hinge"],
        "--missing": ["drop", "error"],
        "--clip": ["0.1", "auto"],
        "--C": ["1", "0.1"],
        "--features": ["a", "a,b", "x", ""],
        "--test-share": ["0.3", "0.9"],
        "--judgements": ["judgements.parquet", "features.parquet", "nothing"],
    },
    "simulate": SEED
    | {
        "--queries": ["20", "100", "200"],
        "--positions": ["2", "5", "30"],
        "--pages": ["10", "200"],
        "--sweeps": ["1", "2.5", "0.1"],
        "--training-queries": ["50", "100"],
        "--test-queries": ["0", "10"],
        "--eta": ["0", "1", "100"],
        "--zeta": ["0", "0.5"],
        "--examination": ["power", "nothing"],
        "--clicks": ["pbm", "cascade", "trust", "ubm", "dcm", "dbn"],
        "--noise": ["0", "1"],
        "--traffic": ["1,1", "80,15,5", "1", "0,0"],
        "--repetition": ["even", "zipf"],
        "--deployment": ["ab", "consecutive"],
        "--corpus": ["corpus.txt", "synthetic", "log.parquet", "nothing"],
        "--threshold": ["1", "2"],
        "--cache": ["cache", "log.parquet"],
    },
    "reproduce": {"--jobs": ["1", "2"], "--corpus": ["nothing", "corpus.txt"], "--page": ["page.md"]},
}
FLAGS = {
    "check": ["--json"], "harvest": ["--json"], "show": ["--json"], "propensities": ["--json", "--simultaneous"],
    "weigh": ["--json", "--normalise", "--policy-aware"], "compare": ["--json"], "report": ["--json"],
    "fit": ["--json"],
    "rank": ["--json"], "tally": ["--json"], "plan": ["--json", "--new-queries"], "labels": ["--json"],
    "judgments": ["--json", "--no-placement"], "rerank": ["--json"], "export": [],
    "simulate": ["--json", "--force"], "reproduce": ["--no-run", "--quick"],
}  # fmt: skip
ENDS = {
    "harvest": (".parquet",), "propensities": (".parquet", ".csv"), "weigh": (".parquet",), "report": (".html",),
    "fit": (".safetensors",), "rank": (".json",), "simulate": ("",),
    "tally": (".parquet",), "judgments": (".csv", ".parquet", ".txt", ".json"), "labels": (".parquet",),
    "rerank": (".parquet",), "export": (".json", ".onnx"),
}  # fmt: skip
EXPORTS = {
    "ga4": "ga4", "snowplow": "snowplow", "product_interactions": "snowplow", "segment": "segment",
    "metarank": "metarank", "elastic": "elastic", "adobe": "adobe", "algolia": "algolia", "pages": "pages",
}  # fmt: skip
"""Exports that the tests read, and the format of each."""
ENGINES = ("elasticsearch", "opensearch", "solr", "vespa", "onnx", "lightgbm", "xgboost")
"""What rankers are exported to."""
