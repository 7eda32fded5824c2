"""Accuracy of the estimators against a known truth, on the protocol of Fang, Agarwal and Joachims (2019).

    PYTHONPATH=src python3 benchmarks/accuracy.py --jobs 16 --json accuracy.json      # the whole thing
    PYTHONPATH=src python3 benchmarks/accuracy.py --seeds 1 --queries 800 --settings s5,fold
    PYTHONPATH=src python3 benchmarks/accuracy.py --json accuracy.json --report       # tell what a file holds

Needs NumPy and SciPy, no engine. Every result goes into the JSON file as soon as it is there, and what the
file already holds is not computed again, so that an interrupted run goes on where it was. A run of all settings and
models at full size and six seeds or more writes its table into `benchmarks/tables`. Exits with 1 where a bar is
missed. Nothing is chosen by looking at the truth: it enters after the fit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from tables import write_table, write_whole

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.model.propensities import Propensities

HERE = Path(__file__).resolve().parent
QUERIES, TEST_QUERIES, POSITIONS, SEEDS = 11_473, 2_000, 10, 6


@dataclass(frozen=True)
class Setting:
    """One variant of the protocol; the fields are arguments of `simulate_protocol`."""

    sweeps: float
    eta: float = 0.5
    examination: str = "power"
    traffic: tuple[int, ...] = (1, 1)


SETTINGS = {
    "s0.5": Setting(0.5),
    "s1": Setting(1),
    "s5": Setting(5),
    "s10": Setting(10),
    "eta1": Setting(5, eta=1.0),
    "fold": Setting(5, examination="fold"),
    "bump": Setting(5, examination="bump"),
    "traffic": Setting(5, traffic=(80, 15, 5)),
}
LABELS = {
    "s0.5": "η=.5, ½ sweep",
    "s1": "η=.5, 1 sweep",
    "s5": "η=.5, 5 sweeps",
    "s10": "η=.5, 10 sweeps",
    "eta1": "η=1, 5 sweeps",
    "fold": "fold, 5 sweeps",
    "bump": "bump, 5 sweeps",
    "traffic": "traffic 80/15/5, 5 sweeps",
}

AUTO, LINEAR = "ClickShare auto", "ClickShare linear"
NETWORKS, DEEPER = "AllPairs networks", "AllPairs two-layer networks"
PBM_SHARE, PBM_PAIRS = "PBM ClickShare", "PBM AllPairs"
RECIPE = {
    "objective": "allpairs",
    "curve": "mlp",
    "relevance": "mlp",
    "penalty": 0.0,
    "optimiser": "adam",
    "early_stopping": False,
    "starts": 1,
}
"""The paper's recipe: no penalty, Adam on the full batch, the last epoch counts."""
MODELS: dict[str, dict[str, Any]] = {
    AUTO: {"curve": "auto"},
    DEEPER: RECIPE | {"width": 12},
    NETWORKS: RECIPE | {"width": 0},
    LINEAR: {"curve": "linear"},
    PBM_PAIRS: {"objective": "allpairs"},
    PBM_SHARE: {"objective": "clickshare"},
}
"""Models and their options, the slowest first: long work that starts last would hold everything up."""

BARS = {
    ("s0.5", AUTO): 0.10,
    ("s1", AUTO): 0.065,
    ("s5", AUTO): 0.035,
    ("s10", AUTO): 0.025,
    ("eta1", AUTO): 0.05,
    ("s10", NETWORKS): 0.10,
    ("fold", AUTO): 0.06,
    ("bump", AUTO): 0.06,
    ("traffic", AUTO): 0.05,
}
"""Largest mean RelError of a setting and model."""

ASKED = ("setting", "protocol", "seed", "model", "options", "queries")
"""Fields of a record that say what was asked for, and tell records apart."""

ROOMS = ("model", "estimation", "simulate")
"""The rooms whose code the results depend on."""

Record = dict[str, Any]
Results = dict[str, Record]


@dataclass(frozen=True, eq=False)
class Case:
    """The interventions of one simulated log, test contexts, and the true examination there [m, K]."""

    interventions: Interventions
    contexts: dict[str, Any]
    truth: Any


def main() -> None:
    """Run the benchmark."""
    options = parse_options()
    wanted = plan(options)
    results = read_results(options.json)
    missing = [] if options.report else [asked for asked in wanted if key_of(asked) not in results]
    failures = run(missing, results, options) if missing else []
    found = [results[key_of(asked)] for asked in wanted if key_of(asked) in results]
    bars = judge(found, options.settings, options.models)
    text = "\n".join([*table(found), "", *(f"- {bar}" for bar in bars), "", *notes(found)])
    print("\n".join([text, *failures]))
    if is_full(wanted) and len(found) == len(wanted):
        write_table("accuracy", text)
    sys.exit(bool(failures) or any(bar.startswith("FAIL") for bar in bars))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Accuracy of the estimators against a known truth.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds, each with a corpus of its own")
    parser.add_argument("--settings", type=names(SETTINGS), default=list(SETTINGS), help=f"of {','.join(SETTINGS)}")
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS), help=f"of {','.join(MODELS)}")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of a log; fewer for a try")
    parser.add_argument("--jobs", type=int, default=1, help="processes at work; they share the cores")
    parser.add_argument("--json", type=Path, help="file of the results, read first and added to")
    parser.add_argument("--report", action="store_true", help="compute nothing, tell what the file holds")
    return parser.parse_args()


def names(known: dict[str, Any]) -> Any:
    """Return a reader of comma-separated names."""

    def read(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        if unknown := set(chosen) - set(known):
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}: expected some of {', '.join(known)}")
        return [name for name in known if name in chosen]

    return read


def plan(options: argparse.Namespace) -> list[Record]:
    """Return what is asked for: what bars need first, then the slowest models."""
    wanted = [
        {
            "setting": setting,
            "protocol": json.loads(json.dumps(asdict(SETTINGS[setting]))),
            "seed": seed,
            "model": model,
            "options": MODELS[model],
            "queries": options.queries,
        }
        for model in options.models
        for seed in range(options.seeds)
        for setting in options.settings
    ]
    return sorted(wanted, key=lambda asked: (asked["setting"], asked["model"]) not in BARS)


def is_full(wanted: Sequence[Record]) -> bool:
    """Return whether a plan has every setting and model, at full size and with enough seeds."""
    cases = {(asked["setting"], asked["model"]) for asked in wanted}
    seeds = {asked["seed"] for asked in wanted}
    full_size = all(asked["queries"] == QUERIES for asked in wanted)
    return len(cases) == len(SETTINGS) * len(MODELS) and len(seeds) >= SEEDS and full_size


def run(missing: Sequence[Record], results: Results, options: argparse.Namespace) -> list[str]:
    """Simulate the logs, fit the models, and add to the results; return what failed."""
    share_machine(options.jobs)
    code = fingerprint()
    failures: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="accuracy-") as folder,
        ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool,
    ):
        logs: dict[int, list[str]] = {}
        for asked in missing:
            logs.setdefault(asked["seed"], []).append(asked["setting"])
        simulated = {
            pool.submit(simulate, seed, sorted(set(settings)), options.queries, folder): f"logs of seed {seed}"
            for seed, settings in logs.items()
        }
        for _ in collect(simulated, failures):
            pass
        fits = {pool.submit(measure, asked, folder): describe(asked) for asked in missing}
        for measured in collect(fits, failures):
            results[key_of(measured)] = measured | {"code": code, "jobs": options.jobs, "machine": machine()}
            write_results(options.json, results)
    return failures


def share_machine(jobs: int) -> None:
    """Set what child processes inherit: their share of the cores."""
    threads = str(max(1, len(os.sched_getaffinity(0)) // jobs))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = threads


def collect(work: dict[Future[Any], str], failures: list[str]) -> Iterator[Any]:
    """Yield results as they come, with a line of progress each; add errors to `failures`."""
    for done, future in enumerate(as_completed(work), 1):
        progress = f"{done} of {len(work)}, {work[future]}"
        if error := future.exception():
            failures.append(f"FAIL: {work[future]}: {type(error).__name__}: {error}")
            say(f"{progress}: {error}")
        else:
            result = future.result()
            say(progress if result is None else f"{progress}: {result['rel_error']:.4f}, {result['seconds']:.1f} s")
            yield result


def simulate(seed: int, settings: Sequence[str], queries: int, folder: str) -> None:
    """Simulate the logs of one seed, all from one corpus, and keep what fits need in a folder."""
    from clickharvest.simulate import simulate_protocol, synthetic_corpus
    from clickharvest.simulate.corpus import training_queries
    from clickharvest.simulate.protocol import SPARE

    test_queries = min(TEST_QUERIES, queries)
    rankers = max(len(setting.traffic) for setting in SETTINGS.values())
    needed = training_queries(rankers) + queries + test_queries
    corpus = synthetic_corpus(int(SPARE * needed) + 100, seed=seed)
    for name in settings:
        simulation = simulate_protocol(
            **asdict(SETTINGS[name]),
            zeta=1.0,
            positions=POSITIONS,
            queries=queries,
            test_queries=test_queries,
            seed=seed,
            corpus=corpus,
        )
        save_case(case_path(folder, name, seed), simulation)


def case_path(folder: str, setting: str, seed: int) -> Path:
    """Return where a simulated log is kept."""
    return Path(folder) / f"{setting}-{seed}.npz"


def save_case(path: Path, simulation: Any) -> None:
    """Keep the interventions, test contexts and truth of a simulation."""
    import numpy as np

    found = simulation.interventions()
    columns = ("unit", "query", "position", "exposure", "clicks", "impressions")
    np.savez(
        path,
        **{name: getattr(found, name) for name in columns},
        x=np.stack([found.contexts[name] for name in simulation.context], axis=1),
        test_x=simulation.test_contexts,
        truth=simulation.test_examination,
        names=np.array(simulation.context),
    )


def load_case(path: Path) -> Case:
    """Read what `save_case` kept."""
    import numpy as np

    from clickharvest.harvesting.interventions import Interventions

    with np.load(path) as file:
        arrays = dict(file)
    contexts = {str(name): arrays["x"][:, j] for j, name in enumerate(arrays["names"])}
    test = {str(name): arrays["test_x"][:, j] for j, name in enumerate(arrays["names"])}
    columns = ("unit", "query", "position", "exposure", "clicks", "impressions")
    found = Interventions(**{name: arrays[name] for name in columns}, contexts=contexts, exposure_kind="design")
    return Case(found, test, arrays["truth"])


def measure(asked: Record, folder: str) -> Record:
    """Fit one model to one log and compare it with the truth."""
    case = load_case(case_path(folder, asked["setting"], asked["seed"]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        found = fit_model(asked["model"], case.interventions, asked["seed"])
        seconds = time.perf_counter() - begin
    return asked | {
        **errors(found, case),
        "curve": found.curve.spec,
        "penalty": found.info.get("penalty"),
        "clicks": int(case.interventions.clicks.sum()),
        "seconds": seconds,
        "warnings": [str(warning.message) for warning in caught],
    }


def fit_model(model: str, interventions: Interventions, seed: int) -> Propensities:
    """Fit a model without intervals."""
    from clickharvest.estimation.estimators import CPBM, PBM

    estimator = PBM if model in (PBM_SHARE, PBM_PAIRS) else CPBM
    return estimator(**MODELS[model], intervals=None, seed=seed).fit(interventions).propensities_


def errors(found: Propensities, case: Case) -> Record:
    """Return RelError and the mean |log(p̂/p)| over test contexts and positions, relative to position 1."""
    import numpy as np

    prediction = found.predict(case.contexts)
    if prediction.positions != tuple(range(1, POSITIONS + 1)) or not prediction.supported.all():
        raise RuntimeError(f"some positions have no estimate: {found.curve.positions} of {POSITIONS}; use more queries")
    ratio = prediction.propensity / (case.truth / case.truth[:, :1])
    return {"rel_error": float(np.abs(1 - ratio).mean()), "abs_log": float(np.abs(np.log(ratio)).mean())}


def judge(found: Sequence[Record], settings: Sequence[str], models: Sequence[str]) -> list[str]:
    """Return a sentence for each bar that this run can tell of."""
    bars = []
    for (setting, model), bar in BARS.items():
        if setting in settings and model in models:
            own = [record["rel_error"] for record in found if (record["setting"], record["model"]) == (setting, model)]
            error = fmean(own) if own else float("nan")
            verdict = "PASS" if error <= bar else "FAIL"
            bars.append(f"{verdict}: {model}, {LABELS[setting]}: RelError {error:.4f} (bar: {bar}, seeds: {len(own)})")
    for model in (PBM_SHARE, PBM_PAIRS):
        own = [record["rel_error"] for record in found if (record["setting"], record["model"]) == ("s10", model)]
        if own:
            bars.append(f"NOTE: {model}, {LABELS['s10']}: RelError {fmean(own):.4f} (expected: about .4)")
    return bars


def table(found: Sequence[Record]) -> list[str]:
    """Return the lines of a Markdown table, mean ± sd over seeds."""
    lines = [
        "| setting | model | RelError | mean \\|log(p̂/p)\\| | curves chosen | clicks | seconds | seeds |",
        "|---|---|--:|--:|---|--:|--:|--:|",
    ]
    for setting in SETTINGS:
        for model in MODELS:
            own = [record for record in found if (record["setting"], record["model"]) == (setting, model)]
            if own:
                lines.append(f"| {LABELS[setting]} | {model} | {figures(own, model)} |")
    return lines


def figures(own: Sequence[Record], model: str) -> str:
    """Return the cells of one setting and model."""
    chosen = Counter(" ".join(str(value) for value in record["curve"].values()) for record in own)
    curves = ", ".join(f"{curve} × {count}" for curve, count in chosen.most_common()) if model == AUTO else ""
    clicks, seconds = (fmean(record[name] for record in own) for name in ("clicks", "seconds"))
    cells = [spread(own, "rel_error"), spread(own, "abs_log"), curves, f"{clicks:,.0f}", f"{seconds:.1f}"]
    return " | ".join([*cells, str(len(own))])


def spread(own: Sequence[Record], name: str) -> str:
    """Return mean ± sd of a figure."""
    values = [record[name] for record in own]
    return f"{fmean(values):.4f}" + (f" ± {stdev(values):.4f}" if len(values) > 1 else "")


def notes(found: Sequence[Record]) -> list[str]:
    """Return lines on the size, where the results come from, and what the fits warned of."""
    if not found:
        return ["No results."]
    sizes = sorted({f"{record['queries']:,} queries" for record in found})
    places = sorted({f"{record['machine']}, {record['jobs']} fits at a time" for record in found})
    versions = sorted({record["code"] for record in found})
    lines = [f"{', '.join(sizes)}; {'; '.join(places)}.", f"Fingerprint of the code: {', '.join(versions)}."]
    if len(versions) > 1:
        lines[-1] += " Results of several versions are mixed."
    warned = [record for record in found if record["warnings"]]
    if warned:
        lines.append(f"{len(warned)} of {len(found)} fits warned, such as: {warned[0]['warnings'][0]}")
    return lines


def describe(asked: Record) -> str:
    """Return a record's name for people."""
    return f"{asked['model']}, {LABELS[asked['setting']]}, seed {asked['seed']}"


def key_of(record: Record) -> str:
    """Return what tells a record apart."""
    return json.dumps({name: record[name] for name in ASKED}, sort_keys=True)


def read_results(path: Path | None) -> Results:
    """Return the results of a file, none where there is no file yet."""
    if path is None or not path.exists():
        return {}
    return {key_of(record): record for record in json.loads(path.read_text())}


def write_results(path: Path | None, results: Results) -> None:
    """Write all results, whole or not at all."""
    if path is not None:
        write_whole(path, json.dumps(list(results.values()), indent=1) + "\n")


def fingerprint() -> str:
    """Return eight digits that change with the code the results depend on."""
    package = HERE.parent / "src" / "clickharvest"
    files = [file for room in ROOMS for file in sorted((package / room).rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]


def machine(*packages: str) -> str:
    """Return the machine, the versions of some packages (NumPy and SciPy by default) and the day in a few words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {version(name.lower())}" for name in packages or ("NumPy", "SciPy"))
    python = f"Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, {python}, {versions}, {datetime.now(UTC):%Y-%m-%d}"


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
