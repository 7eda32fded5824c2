"""What command lines are drawn from: commands, options and their values, faults, places to write."""

from __future__ import annotations

from functools import cache

COMMANDS = {
    "check": 14, "harvest": 13, "show": 9, "propensities": 8, "weigh": 7, "tally": 6, "rerank": 6, "export": 6,
    "plan": 5, "judgments": 5, "labels": 4, "simulate": 4, "compare": 4, "fit": 3, "report": 3, "rank": 2,
    "validate": 4,
}  # fmt: skip
"""How many of a hundred cases each command has; those that fit or draw are dear."""
FAULTS = (
    "fsize", "full", "closed", "pipe", "no stderr", "interrupt", "terminate", "kill", "ascii", "columns", "no tmp",
    "umask", "nobody",
)  # fmt: skip
PLACES = (
    "old", "link", "dangling", "loop", "fifo", "folder", "lost", "long", "input", "hard link", "device", "hostile",
    "ending", "hidden",
)  # fmt: skip
"""What the place to write may be, where it is not just a new file."""
NAMES = (
    "my log", "log[1]", "x*", "a'b", 'a"b', "-x", "a\nb", "\x1b[31mx", "日本", "é", "a;b", "%20", "x" * 200, "~", "a,b",
    "a=b",
)  # fmt: skip
COLUMN_VALUES = ("query", "doc", "position", "click", "device", "ranker", "page", "user", "nothing", "")
VALID = {
    "--engine": ("duckdb",), "--memory-limit": ("1GB",), "--repeat": ("first",), "--page-size": ("5", "10"),
    "--unit": ("context", "query"), "--max-position": ("2", "3"), "--traffic": ("a=50,b=50", "a=90,b=10"),
    "--swap": ("3", "1=.4,2=.3,3=.3"), "--team-draft": ("4",), "--max-clicks": ("30", "1000"),
    "--emit-sql": ("bigquery", "snowflake", "spark", "duckdb", "trino"),
    "--model": ("examination", "browsing", "reading", "affine", "auto"), "--objective": ("clickshare", "allpairs"),
    "--curve": ("auto", "constant", "index", "linear", "lowrank", "mlp", "position", "power", "recurrent"),
    "--shape": ("rank=2", "width=3"), "--penalty": ("0", "1", "1000"), "--weighting": ("paper", "min", "harmonic"),
    "--relevance": ("auto", "constant", "mlp", "squares", "free"), "--bootstrap": ("5", "20"), "--seed": ("0", "7"),
    "--intervals": ("auto", "clustered", "bootstrap", "sandwich", "none"), "--title": ("Our shop",),
    "--level": ("0.5", "0.9", "0.999"), "--clip": ("auto", "0.1", "1"), "--after-click": ("same",),
    "--trust": ("checked", "all"), "--lists": ("auto", "query"), "--candidates": ("shown", "all"),
    "--width": ("0.1", "0.02"), "--days": ("14", "0.5"), "--pages": ("1000", "200000"), "--positions": ("2", "10"),
    "--queries": ("1", "50"), "--swaps": ("auto", "neighbours=.05", "1-2=.05,2-3=.05"),
    "--click-rates": ("0.3,0.2", "0.4,0.2,0.1,0.05"), "--steepness": ("0", "1"), "--spread": ("0", "0.5"),
    "--to": ("table", "quepid", "qrels", "opensearch"), "--rating": ("grade", "relevance"), "--name": ("shop",),
    "--cutoffs": ("0.5,1,2", "0.1,0.2,0.3"), "--scale": ("corpus", "query", "rate"), "--missing": ("drop", "error"),
    "--learner": ("linear", "svm", "lightgbm", "xgboost", "auto"), "--C": ("0.1", "1"), "--features": ("a", "a,b"),
    "--loss": ("softmax", "poisson", "pairwise", "lambda", "hinge"), "--test-share": ("0.2", "0.5"),
    "--judgements": ("grades.csv",), "--tolerance": ("10%", "0.5"), "--fold": ("3", "2,4"),
    "--instrument": ("ranker",),
}  # fmt: skip
"""Valid values of options that do not depend on the log; those of columns are in `small_logs.py`."""
DOUBTFUL: dict[str, tuple[str, ...]] = {
    **{f"--{name}": COLUMN_VALUES for name in (
        "query", "doc", "position", "click", "clicks", "impressions", "ranker", "page", "user", "time", "original",
    )},
    "--context": ("device", "device", "device,ranker", "nothing", "query", "position", ",", "device,device"),
    "--position-base": ("0", "1", "2", "-5"), "--memory-limit": ("50MB", "1GB", "0", "-1", "1", "900TB", "x"),
    "--random": ("ranker=a", "device=mobile", "nothing=1", "device"),
    "--table": ("log", "main.log"), "--block": ("device=mobile", "ranker=a", "nothing=1", "device"),
    "--page-number": ("position", "page", "nothing"), "--page-size": ("10", "0"), "--repeat": ("first", "last"),
    "--format": ("ubi", "pages", "ga4", "nothing"), "--ubi-queries": ("rankings.parquet", "nothing.jsonl"),
    "--inputs": ("queries=nothing", "results=log.parquet", "x"),
    "--clicks-from": ("clicks.parquet", "log.parquet", "nothing"),
    "--within": ("30min", "1s", "2h", "0s", "-1min", "1", "min", "999999999999d"),
    "--max-position": ("2", "3", "10", "1"), "--rankings": ("rankings.parquet", "log.parquet", "nothing"),
    "--traffic": ("a=50,b=50,c=1", "a=1", "a=0", "x=1"), "--swap": ("2", "5", "1", "1=.5,2=.5", "1=1", "2=.3"),
    "--placements": ("placements.parquet", "rankings.parquet", "nothing"),
    "--placement": ("placed", "placed", "position", "query", "nothing"), "--team-draft": ("5", "2", "0", "-1"),
    "--cluster": ("query", "doc", "user", "page", "device", "nothing"), "--max-clicks": ("1", "10", "50", "1000"),
    "--level": ("0.9", "0.5", "0.999999", "1e-9", "1"), "--anchor": ("1", "2", "3", "99"),
    "--emit-sql": ("bigquery", "snowflake", "trino", "nothing"), "--relevance": ("constant",),
    "--keep": ("user", "device", "user,device", "page", "nothing", "clicks", ","), "--log": ("log.parquet",),
    "--width": ("0.1", "0.001", "5"), "--days": ("14", "0.5", "1e6"), "--pages": ("1000", "1", "1e12"),
    "--positions": ("2", "5", "1000"), "--queries": ("1", "100", "1000000"), "--baseline-log": ("log.parquet",),
    "--swaps": ("auto", "neighbours=.05", "1-2=.05,2-3=.05", "1-2=1", "2-2=.1", "1-99=.1", "1=.1", "1-2-3=.1"),
    "--click-rates": ("0.3,0.2", "0.3", "1,1,1", "0,0", "2", "nan", "0.3,"), "--steepness": ("0", "1", "10"),
    "--tolerance": ("10%", "1", "0", "-1", "x%", ""), "--fold": ("3", "99", "0", "x", "1-3", "3-1"),
    "--spread": ("0", "0.5", "3"), "--to": ("table", "quepid", "qrels", "opensearch", "nothing"),
    "--cutoffs": ("0.5,1,2", "1", "0", "3,2,1", "nan", "1,1", "0.1,0.2,0.3,0.4,0.5"),
    "--clip": ("0.1", "auto", "1", "2"), "--penalty": ("0", "1", "1e12"), "--curve": ("constant", "linear", "power"),
    "--learner": (*("svm", "linear", "lightgbm", "xgboost") * 4, "auto"), "--features": ("a", "a,b", "x", ""),
    "--judgements": ("judgements.parquet", "features.parquet", "nothing"),
    "--place": ("row,column", "slot", "nothing"), "--bootstrap": ("2", "5"),
    "--outcome": ("bought", "click", "nothing"),
    "--after-click": ("same", "after.safetensors", "log.parquet", "nothing"),
    "--estimators": ("all", "ctr,clickshare"), "--chart": ("curves.svg",),
    "--features-from": ("features.parquet", "nothing.csv"),
}  # fmt: skip
"""Values of options with bent files: valid ones, and ones at or beyond the bounds; else those of `VALID`."""
OF_COMMANDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("simulate", "--queries"): ("20", "100", "200"), ("simulate", "--positions"): ("2", "5", "30"),
    ("simulate", "--pages"): ("10", "200"), ("simulate", "--sweeps"): ("1", "2.5", "0.1"),
    ("simulate", "--training-queries"): ("50", "100"), ("simulate", "--test-queries"): ("0", "10"),
    ("simulate", "--eta"): ("0", "1", "100"), ("simulate", "--zeta"): ("0", "0.5"),
    ("simulate", "--examination"): ("power", "nothing"), ("simulate", "--noise"): ("0", "1"),
    ("simulate", "--clicks"): ("pbm", "cascade", "trust", "ubm", "dcm", "dbn"),
    ("simulate", "--traffic"): ("1,1", "80,15,5", "1", "0,0"), ("simulate", "--repetition"): ("even", "zipf"),
    ("simulate", "--deployment"): ("ab", "consecutive"), ("simulate", "--threshold"): ("1", "2"),
    ("simulate", "--corpus"): ("corpus.txt", "synthetic", "log.parquet", "nothing"),
    ("simulate", "--cache"): ("cache", "log.parquet"),
    ("fit", "--model"): ("examination",), ("validate", "--model"): ("theirs.csv", "log.parquet", "nothing"),
    ("validate", "--pages-with"): ("click", "device", "nothing"),
}  # fmt: skip
"""Values of options that mean something else, or cost more, with one command."""
NOT_TRIED = {
    "--spark-master": "a Spark session outlasts all other cases together",
    "--log-to": "MLflow outlasts all other cases together",
    "--help-all": "it prints the help, and nothing else",
    "--start": "it needs a model of the same options, which a combination does not have",
}
"""Options that no case has, and why."""


@cache
def options_of(command: str) -> dict[str, bool]:
    """Return the options of a command, of the command line itself, and whether each is a flag."""
    from typer.main import get_command

    from clickharvest.commands.app import assemble

    taken = get_command(assemble([command])).commands[command].params  # type: ignore[attr-defined]
    options = [one for one in taken if one.param_type_name == "option"]
    named = {name: bool(one.is_flag) for one in options for name in (*one.opts, *one.secondary_opts)}
    return {
        name: flag for name, flag in named.items() if name.startswith("--") and name not in (*NOT_TRIED, "--output")
    }


def doubtful_values(command: str, option: str) -> tuple[str, ...]:
    """Return values of an option, some of which are refused."""
    return OF_COMMANDS.get((command, option)) or DOUBTFUL.get(option) or VALID.get(option) or ("1", "x", "")


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
