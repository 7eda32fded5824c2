"""Other packages beside ours, on the same simulated logs.

    make benchmark-peers                                        # three seeds; writes its table
    .venv/bin/python benchmarks/peers.py --quick                # a small log, one seed; prints the table
    .venv/bin/python benchmarks/peers.py --seeds 6 --sweeps 5   # more of it; prints the table
    .venv/bin/python benchmarks/peers.py --report               # compute nothing, tell what the file holds

The peers get a virtual environment under `benchmarks/data`, made at the first run (6 GB, as two of them want PyTorch).
A peer that cannot be installed or fails has a row that says so. Contenders take turns, each in a process of its own
(`benchmarks/peers/`), which reads the log from files; the truth enters only afterwards, here. Every result goes into
the JSON file as soon as it is there, and a run leaves out what the file holds of the same code, size and seed.

This process stays small on purpose: on Linux a child's peak memory is at least that of the parent that started it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from accuracy import TEST_QUERIES, fingerprint, machine, names, say, spread
from tables import write_table, write_whole

HERE = Path(__file__).resolve().parent
SCRIPTS, DATA = HERE / "peers", HERE / "data"
QUERIES, SWEEPS, ETA, SEEDS, QUICK = 2_000, 1.0, 0.5, 3, 800
POLICIES = ("weak", "strong")
"""How good the rankers are that made a log, see `peers/simulated.py`."""
LIMIT = 1800
"""Seconds after which a contender is stopped."""

REQUIREMENTS = {
    "lightgbm": ("lightgbm==4.7.0",),
    "xgboost": ("xgboost-cpu==3.2.0", "scikit-learn"),
    "ultr": ("ultr-bias-toolkit==0.0.5", "pyarrow"),
    "clax": ("clax-models==0.1.1", "jax<0.8"),
}
"""What the peers' environment needs for each script; it is installed in this order, so that a failure costs one."""


@dataclass(frozen=True)
class Contender:
    """A model of a peer: the script that runs it, its name there, its name in the table, whether it knows contexts."""

    script: str
    model: str
    label: str
    contextual: bool = False


CONTENDERS = {
    f"{found.script}-{found.model}": found
    for found in (
        Contender("ours", "auto", "clickharvest CPBM, curve auto", contextual=True),
        Contender("ours", "linear", "clickharvest CPBM, curve linear", contextual=True),
        Contender("ours", "pbm", "clickharvest PBM"),
        Contender("ours", "allpairs", "clickharvest AllPairs"),
        Contender("ours", "pivot", "clickharvest PivotOne"),
        Contender("ours", "chain", "clickharvest AdjacentChain"),
        Contender("ours", "ctr", "clickharvest CTR"),
        Contender("ours", "em", "clickharvest EM"),
        Contender("ours", "regression", "clickharvest regression-EM"),
        Contender("clax", "context", "CLAX PBM, deep examination", contextual=True),
        Contender("clax", "towers", "CLAX two towers, deep examination", contextual=True),
        Contender("clax", "pbm", "CLAX PBM"),
        Contender("ultr", "allpairs", "ultr-bias-toolkit AllPairs"),
        Contender("ultr", "chain", "ultr-bias-toolkit AdjacentChain"),
        Contender("ultr", "pivot", "ultr-bias-toolkit PivotOne"),
        Contender("ultr", "ctr", "ultr-bias-toolkit CTR"),
        Contender("xgboost", "norm1", "XGBoost lambdarank_unbiased, bias_norm 1"),
        Contender("xgboost", "norm0", "XGBoost lambdarank_unbiased, bias_norm 0"),
        Contender("lightgbm", "lambdarank", "LightGBM lambdarank with positions"),
    )
}

Record = dict[str, Any]
Results = dict[str, Record]


def main() -> None:
    """Run the benchmark."""
    options = parse_options()
    wanted = plan(options)
    results = {} if options.fresh else read_results(options.json)
    missing = [] if options.report else [asked for asked in wanted if key_of(asked) not in results]
    failures = run(missing, results, options) if missing else {}
    found = [results[key_of(asked)] for asked in wanted if key_of(asked) in results]
    text = "\n".join([*table(found, failures, options.contenders), "", *notes(found)])
    print(text)
    told = {record["contender"] for record in found} | set(failures)
    if is_full(options) and told == set(CONTENDERS):
        write_table("peers", text)
    sys.exit(bool(failures))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Other packages beside ours, on the same simulated logs.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds, each with a corpus of its own")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of a log")
    parser.add_argument("--sweeps", type=float, default=SWEEPS, help="how often each of two rankers serves each query")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} queries and one seed")
    parser.add_argument("--contenders", type=names(CONTENDERS), default=list(CONTENDERS), help=", ".join(CONTENDERS))
    parser.add_argument("--json", type=Path, default=DATA / "peers.json", help="file of the results, added to")
    parser.add_argument("--fresh", action="store_true", help="forget what the file holds")
    parser.add_argument("--report", action="store_true", help="compute nothing, tell what the file holds")
    options = parser.parse_args()
    if options.quick:
        options.queries, options.seeds = min(options.queries, QUICK), 1
    return options


def plan(options: argparse.Namespace) -> list[Record]:
    """Return what is asked for, seed by seed."""
    code = fingerprint()
    return [
        {
            "contender": contender,
            "policy": policy,
            "seed": seed,
            "queries": options.queries,
            "sweeps": options.sweeps,
            "needs": list(REQUIREMENTS.get(CONTENDERS[contender].script, ())),
            "script": script_code(CONTENDERS[contender].script),
            "code": code,
        }
        for seed in range(options.seeds)
        for policy in POLICIES
        for contender in options.contenders
    ]


def is_full(options: argparse.Namespace) -> bool:
    """Return whether a run has every contender, at full size and with enough seeds."""
    size = (options.queries, options.sweeps)
    return set(options.contenders) == set(CONTENDERS) and size == (QUERIES, SWEEPS) and options.seeds >= SEEDS


def run(missing: Sequence[Record], results: Results, options: argparse.Namespace) -> dict[str, str]:
    """Simulate the logs, run the contenders, add to the results; return why contenders failed."""
    scripts = {CONTENDERS[asked["contender"]].script for asked in missing}
    python, failed = environment([script for script in REQUIREMENTS if script in scripts])
    failures = {asked["contender"]: reason for asked in missing if (reason := failed.get(script_of(asked)))}
    for seed, policy in sorted({(asked["seed"], asked["policy"]) for asked in missing}):
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            say(f"simulating the log of seed {seed}, {policy} rankers")
            log, truth = Path(folder) / "log", Path(folder) / "truth.npy"
            log.mkdir()
            simulate(log, truth, options, policy, seed)
            for asked in (one for one in missing if (one["seed"], one["policy"]) == (seed, policy)):
                if script_of(asked) in failed:
                    continue
                try:
                    measured = measure(asked, log, truth, python)
                except ContenderError as error:
                    failures[asked["contender"]] = str(error)
                    say(f"seed {seed}, {policy}, {asked['contender']}: {error}")
                    continue
                results[key_of(asked)] = asked | measured | {"machine": machine()}
                write_whole(options.json, json.dumps(list(results.values()), indent=1) + "\n")
                told = f"{measured['rel_error']:.4f}, {measured['seconds']:.1f} s"
                say(f"seed {seed}, {policy}, {asked['contender']}: {told}")
    return failures


class ContenderError(Exception):
    """A contender did not come to a result; the message says why."""


def environment(scripts: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """Make the peers' environment where needed; return its Python, and why scripts cannot be served.

    What is installed is kept in a file beside it. Each installation names all that came before, so that pip keeps
    what the others need.
    """
    home = DATA / "peers-venv"
    python, state = home / "bin" / "python", home / "installed.json"
    installed: list[str] = json.loads(state.read_text()) if state.exists() else []
    failed: dict[str, str] = {}
    for script in scripts:
        needs = [need for need in REQUIREMENTS[script] if need not in installed]
        if not needs:
            continue
        if not python.exists():
            say("making the peers' environment")
            venv.create(home, with_pip=True)
        say(f"installing {' '.join(needs)}")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *installed, *needs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            failed[script] = f"could not be installed: {(errors or ['pip failed'])[-1].removeprefix('ERROR: ')}"
            say(f"{script} {failed[script]}")
        else:
            installed += needs
            write_whole(state, json.dumps(installed) + "\n")
    return python, failed


def simulate(log: Path, truth: Path, options: argparse.Namespace, policy: str, seed: int) -> None:
    """Simulate one log, in a process of its own."""
    test_queries = min(TEST_QUERIES, options.queries)
    sizes = {
        "policy": policy,
        "queries": options.queries,
        "test-queries": test_queries,
        "sweeps": options.sweeps,
        "eta": ETA,
        "seed": seed,
    }
    settings = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    subprocess.run([sys.executable, SCRIPTS / "simulated.py", log, truth, *settings], check=True)


def measure(asked: Record, log: Path, truth: Path, peers_python: Path) -> Record:
    """Run one contender on one log, and compare its curves with the truth."""
    import numpy as np

    contender = CONTENDERS[asked["contender"]]
    python = sys.executable if contender.script == "ours" else peers_python
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        arguments = [SCRIPTS / f"run_{contender.script}.py", log, folder, contender.model, str(asked["seed"])]
        begin = time.perf_counter()
        call([python, *arguments], Path(folder) / "output.txt")
        process_seconds = time.perf_counter() - begin
        report = json.loads((Path(folder) / f"{contender.model}.json").read_text())
        found = np.load(Path(folder) / f"{contender.model}.npy")
    return report | {"process_seconds": process_seconds, **errors(found, np.load(truth))}


def call(command: Sequence[Any], output: Path) -> None:
    """Run a command on the CPU, or say in one line why it failed."""
    cpu = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    with output.open("w") as file:
        try:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | cpu, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            raise ContenderError(f"was stopped after {LIMIT} s") from None
    if done.returncode:
        lines = output.read_text().split()
        raise ContenderError(f"failed with exit code {done.returncode}: {' '.join(lines)[-200:]}")


def errors(found: Any, truth: Any) -> Record:
    """Return RelError and the mean |log(p̂/p)| over contexts and positions, both relative to position 1.

    Args:
        found: p̂ [m, K], or [1, K] where it is the same for all contexts.
        truth: p [m, K].
    """
    import numpy as np

    if found.shape not in (truth.shape, (1, truth.shape[1])) or not np.isfinite(found).all() or (found < 0).any():
        raise ContenderError(f"gave no curve: expected {truth.shape[1]} finite values ≥ 0, found {found.tolist()[0]}")
    ratio = found / truth
    with np.errstate(divide="ignore"):
        return {"rel_error": float(np.abs(1 - ratio).mean()), "abs_log": float(np.abs(np.log(ratio)).mean())}


def table(found: Sequence[Record], failures: dict[str, str], contenders: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table, mean ± sd over seeds."""
    of_logs = [f"{name}, {policy}" for policy in POLICIES for name in ("RelError", "mean \\|log(p̂/p)\\|")]
    figures = (*of_logs, "seconds", "CPU seconds", "with imports", "peak MB", "logs")
    lines = [f"| contender | contexts | {' | '.join(figures)} |", "|---|---|" + "--:|" * len(figures)]
    for name in contenders:
        own = [record for record in found if record["contender"] == name]
        contender = CONTENDERS[name]
        start = f"| {contender.label} | {'yes' if contender.contextual else 'no'}"
        if own:
            means = [
                fmean(record[figure] for record in own) for figure in ("seconds", "cpu_seconds", "process_seconds")
            ]
            peak = f"{max(record['peak_mb'] for record in own):,.0f}"
            by_policy = [[record for record in own if record["policy"] == policy] for policy in POLICIES]
            cells = [spread(some, name) if some else "" for some in by_policy for name in ("rel_error", "abs_log")]
            cells += [*(f"{mean:.1f}" for mean in means), peak]
            lines.append(f"{start} | {' | '.join(cells)} | {len(own)} |")
        if name in failures:
            reason = failures[name].replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"{start} | {reason} {'| ' * len(figures)}|")
    return lines


def notes(found: Sequence[Record]) -> list[str]:
    """Return lines on the size, the versions, and where the results come from."""
    if not found:
        return ["No results."]
    sizes = sorted({f"{record['queries']:,} queries, sweeps: {record['sweeps']:g}" for record in found})
    versions = sorted({describe(record["versions"]) for record in found})
    places = sorted({record["machine"] for record in found})
    return [f"{', '.join(sizes)}; {'; '.join(versions)}.", f"{'; '.join(places)}; code {found[0]['code']}."]


def describe(versions: dict[str, str]) -> str:
    """Return a package with what it computes with, such as `clax-models 0.1.1 (jax 0.7.2)`."""
    first, *others = (f"{name} {number}" for name, number in versions.items())
    return f"{first} ({', '.join(others)})" if others else first


def script_code(script: str) -> str:
    """Return eight digits that change with what a contender runs and reads."""
    files = [SCRIPTS / f"{name}.py" for name in ("exchange", "simulated", f"run_{script}")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def script_of(asked: Record) -> str:
    """Return the script that runs what is asked for."""
    return CONTENDERS[asked["contender"]].script


def key_of(record: Record) -> str:
    """Return what tells a record apart."""
    asked = ("contender", "policy", "seed", "queries", "sweeps", "needs", "script", "code")
    return json.dumps({name: record.get(name) for name in asked}, sort_keys=True)


def read_results(path: Path) -> Results:
    """Return the results of a file, none where there is no file yet."""
    if not path.exists():
        return {}
    return {key_of(record): record for record in json.loads(path.read_text())}


if __name__ == "__main__":
    main()
