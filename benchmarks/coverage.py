"""Do 95 % intervals cover the truth? Many simulated logs, each fitted with PBM or CPBM as a user would.

    PYTHONPATH=src python benchmarks/coverage.py --logs 200 --jobs 16 --json coverage.json
    .venv/bin/python benchmarks/coverage.py --families linear --logs 40 --replicates 100

Each log has 300 queries with 4 documents, shown at 2 to 4 of 6 positions. Displays per query, relevance, and how a
query's users read differ at random (a factor from 0 to 2 for every query and position), so that the clicks of a query
depend on each other and examination given the context is what the curve says on average. The truth lies inside the
family that is fitted; the penalty is fixed.

Needs NumPy, SciPy, JAX and optax only. With `--json` a run goes on where an earlier one ended; once all cases have
200 logs the table in `benchmarks/README.md` is written. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Key = tuple[str, str, int]

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- coverage:begin -->", "<!-- coverage:end -->"

CASES = {"pbm": ("bootstrap", "sandwich"), "linear": ("bootstrap", "sandwich"), "lowrank": ("bootstrap",)}
LEVEL = 0.95
BAR = (0.93, 0.97)
FULL = 200
"""Logs from which on a case is judged in the README."""

K, FEATURES, QUERIES, UNITS = 6, 3, 300, 4
TEST_CONTEXTS = 50
DISPLAYS = 15
"""Displays of a document at a position, in a typical query."""


@dataclass(frozen=True)
class Outcome:
    """One log, fitted with one kind of intervals; everything about log p_k(x) / p_1(x), k ≥ 2.

    Attributes:
        family: the family of the truth and the fit.
        method: kind of the intervals.
        log: number of the log.
        covered: share of the cells whose interval covers the truth.
        by_position: the same of each position.
        together: share of the contexts whose simultaneous band covers all positions.
        width: mean width of an interval.
        sd: root mean square of the standard errors.
        error: root mean square of the errors of the estimate.
        bias: mean error of the estimate.
        clicks: clicks of the log.
        seconds: what fit and prediction took.
    """

    family: str
    method: str
    log: int
    covered: float
    by_position: list[float]
    together: float
    width: float
    sd: float
    error: float
    bias: float
    clicks: int
    seconds: float

    @property
    def key(self) -> Key:
        """What tells outcomes apart."""
        return self.family, self.method, self.log


@dataclass(frozen=True)
class Settings:
    """What outcomes must share to be merged."""

    replicates: int
    penalty: float
    queries: int = QUERIES
    units: int = UNITS
    seed: int = 0


def main() -> None:
    """Run what is missing, print the table, and judge it."""
    options = parse_options()
    settings = Settings(options.replicates, options.penalty, options.queries)
    done, ran_on = read_outcomes(options.json, settings)
    wanted = [(f, m, log) for f in options.families for m in CASES[f] for log in range(options.logs)]
    missing = [key for key in wanted if key not in done]
    # Every process has one core, and a problem of this size is faster there than on a GPU.
    os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if missing:
        ran_on = machine(options.jobs)
    for outcomes in run(missing, settings, options.jobs):
        done |= {outcome.key: outcome for outcome in outcomes}
        write_outcomes(options.json, settings, ran_on, done)
        say(f"{sum(key in done for key in wanted)} of {len(wanted)} fits")
    bars = judge(done)
    text = "\n".join([*table(done), "", *(f"- {bar}" for bar in bars), "", ran_on])
    print(text)
    if all(sum(key[:2] == (f, m) for key in done) >= FULL for f in CASES for m in CASES[f]):
        write_between_markers(README, "\n".join([told(settings), "", text]))
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=FULL, help="simulated logs of each case")
    parser.add_argument("--replicates", type=int, default=200, help="bootstrap replicates, or draws of the sandwich")
    parser.add_argument("--families", default=",".join(CASES), type=lambda text: text.split(","))
    parser.add_argument("--penalty", type=float, default=1.0, help="λ of the CPBMs")
    parser.add_argument("--queries", type=int, default=QUERIES, help="queries of a log")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="file to keep outcomes in, and to go on from")
    options = parser.parse_args()
    if unknown := set(options.families) - CASES.keys():
        parser.error(f"no family {', '.join(unknown)}: expected {', '.join(CASES)}")
    return options


def run(keys: list[Key], settings: Settings, jobs: int) -> Iterator[list[Outcome]]:
    """Yield the outcomes of some cases, part by part; every part shares one compiled program in its process."""
    parts = [[key for key in keys if key[:2] == (f, m)][i::jobs] for f in CASES for m in CASES[f] for i in range(jobs)]
    parts = [part[i : i + 10] for part in parts for i in range(0, len(part), 10)]
    if jobs == 1:
        yield from (measure_all(part, settings) for part in parts)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(measure_all, part, settings) for part in parts]):
            yield future.result()


def measure_all(keys: list[Key], settings: Settings) -> list[Outcome]:
    """Return the outcomes of some cases."""
    return [measure(*key, settings) for key in keys]


def measure(family: str, method: str, log: int, settings: Settings) -> Outcome:
    """Simulate a log, fit it, and compare its intervals with the truth."""
    share_programs()
    from clickharvest.estimation.estimators import CPBM, PBM

    truth = Truth.of(family)
    interventions = simulate(truth, np.random.default_rng([settings.seed, log]), settings)
    own: dict[str, Any] = {"intervals": method, "replicates": settings.replicates, "seed": log}
    model = PBM(**own) if family == "pbm" else CPBM(curve=family, penalty=settings.penalty, **shape(family), **own)
    began = time.perf_counter()
    model.fit(interventions)
    x = np.random.default_rng(50).normal(size=(1 if family == "pbm" else TEST_CONTEXTS, FEATURES))
    contexts = None if family == "pbm" else columns(x)
    pointwise = model.predict(contexts, level=LEVEL)
    together = model.predict(contexts, level=LEVEL, simultaneous=True)
    seconds = time.perf_counter() - began
    if pointwise.propensity.shape[1] != K or np.isnan(pointwise.lower).any():
        raise SystemExit(f"log {log} of {family} does not link all {K} positions: simulate more queries")
    target = truth.relative(x)[:, 1:]
    value, lower, upper = (np.log(part[:, 1:]) for part in (pointwise.propensity, pointwise.lower, pointwise.upper))
    inside = (lower <= target) & (target <= upper)
    band = (np.log(together.lower[:, 1:]) <= target) & (target <= np.log(together.upper[:, 1:]))
    return Outcome(
        *(family, method, log),
        covered=float(inside.mean()),
        by_position=inside.mean(axis=0).tolist(),
        together=float(band.all(axis=1).mean()),
        width=float((upper - lower).mean()),
        sd=float(np.sqrt((((upper - lower) / (2 * 1.959964)) ** 2).mean())),
        error=float(np.sqrt(((value - target) ** 2).mean())),
        bias=float((value - target).mean()),
        clicks=int(interventions.clicks.sum()),
        seconds=seconds,
    )


def shape(family: str) -> dict[str, int]:
    """Return the shape parameters of a curve."""
    return {"rank": 1} if family == "lowrank" else {}


def columns(x: Array) -> dict[str, Array]:
    """Return contexts as columns."""
    return {f"x{i}": column for i, column in enumerate(x.T, start=1)}


@dataclass(frozen=True)
class Truth:
    """log p_k(x) = b_k + W_k·x, with W = 0 (constant), of full rank (linear) or of rank one."""

    b: Array
    w: Array

    @classmethod
    def of(cls, family: str) -> Truth:
        """Return the truth of a family."""
        b = -np.log(np.arange(1, K + 1))
        if family == "pbm":
            return cls(b, np.zeros((FEATURES, K)))
        if family == "lowrank":
            return cls(b, np.outer([0.3, -0.25, 0.2], b))
        w = 0.25 * np.random.default_rng(7).normal(size=(FEATURES, K))
        return cls(b, w * (np.arange(K) > 0))

    def relative(self, x: Array) -> Array:
        """Return log p_k(x) / p_1(x), [n, K]."""
        return self.b + x @ self.w


def simulate(truth: Truth, random: np.random.Generator, settings: Settings) -> Any:
    """Return the interventions of a log; all logs of one size have as many units and rows."""
    from clickharvest.harvesting.interventions import Interventions

    queries, units = settings.queries, settings.units
    x = random.normal(size=(queries, FEATURES))
    p = 0.3 * np.exp(truth.relative(x)) * random.uniform(0, 2, (queries, K))
    displays = DISPLAYS * random.lognormal(0, 0.6, queries)
    taste = random.normal(-1.2, 0.7, queries)
    unit = np.arange(queries * units)
    query = unit // units
    relevance = 1 / (1 + np.exp(-taste[query] - random.normal(0, 1, len(unit))))
    order = random.permuted(np.tile(np.arange(K), (len(unit), 1)), axis=1)
    shown = np.zeros((len(unit), K), dtype=bool)
    np.put_along_axis(shown, order, np.arange(K) < (2 + unit % 3)[:, None], axis=1)
    row, position = np.nonzero(shown)
    impressions = 1 + random.poisson(displays[query[row]])
    rate = np.minimum(1.0, p[query[row], position] * relevance[row])
    return Interventions(
        unit=unit[row],
        query=query[row],
        position=position + 1,
        exposure=impressions.astype(np.float64),
        clicks=random.binomial(impressions, rate),
        impressions=impressions,
        contexts=columns(x[query[row]]),
    )


def share_programs() -> None:
    """Let all fits of one curve in this process share one compiled program: compiling takes longer than running."""
    import jax

    from clickharvest.estimation import estimators, loss

    if getattr(estimators.Fit, "shared", False):
        return

    class SharedFit(loss.Fit):
        """A fit whose data are padded to one shape and go into the program of the first fit of its curve."""

        shared = True
        first: dict[Any, SharedFit] = {}  # noqa: RUF012

        def __new__(cls, curve: Any, objective: Any, sample: Any) -> SharedFit:
            return cls.first.setdefault(curve, super().__new__(cls))

        def __init__(self, curve: Any, objective: Any, sample: Any) -> None:
            rows = sample.n_units
            objective.data = [padded(block, rows) for block in objective.data]
            if not hasattr(self, "programs"):
                super().__init__(curve, objective, sample)
                self.programs: dict[str, Any] = {}
            self.x, self.objective = sample.x, objective
            self.__dict__.pop("_inputs", None)

        def _directional(self, function: Any, flat: Any) -> Any:
            # The functions differ between fits by constants alone, which are the same in all logs of a run.
            name = function.__qualname__
            if name not in self.programs:
                self.programs[name] = jax.jit(lambda p, d, x, data: jax.jvp(lambda q: function(q, x, data), (p,), (d,)))
            point = jax.numpy.asarray(flat)
            directions = jax.numpy.eye(len(point))
            program, inputs = self.programs[name], self._inputs
            return np.stack([np.asarray(program(point, d, *inputs)[1]) for d in directions], axis=1)

    estimators.Fit = SharedFit  # type: ignore[misc]


def padded(block: dict[str, Any], rows: int) -> dict[str, Any]:
    """Return a block of click shares with units without clicks added, which change nothing."""
    more = rows - len(block["cluster"])
    return {name: np.concatenate([a, np.zeros((more, *a.shape[1:]), a.dtype)]) for name, a in block.items()}


def read_outcomes(path: Path | None, settings: Settings) -> tuple[dict[Key, Outcome], str]:
    """Return the outcomes in a file and the machine they come from; none where there is no file."""
    if path is None or not path.exists():
        return {}, ""
    stored = json.loads(path.read_text())
    if stored["settings"] != asdict(settings):
        sys.exit(f"{path} was made with {stored['settings']}, this run has {asdict(settings)}: name another file")
    outcomes = [Outcome(**outcome) for outcome in stored["outcomes"]]
    return {outcome.key: outcome for outcome in outcomes}, stored["machine"]


def write_outcomes(path: Path | None, settings: Settings, ran_on: str, done: dict[Key, Outcome]) -> None:
    """Write outcomes to a file, whole or not at all."""
    if path is None:
        return
    outcomes = [asdict(done[key]) for key in sorted(done)]
    replace_file(path, json.dumps({"settings": asdict(settings), "machine": ran_on, "outcomes": outcomes}))


def cases(done: dict[Key, Outcome]) -> Iterator[tuple[str, str, list[Outcome]]]:
    """Yield family, method and outcomes of each case that has some."""
    for family, methods in CASES.items():
        for method in methods:
            own = [outcome for key, outcome in done.items() if key[:2] == (family, method)]
            if own:
                yield family, method, own


def table(done: dict[Key, Outcome]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [
        "| model | intervals | logs | coverage | ± | by position 2-6 | width | rms error / rms sd | bias "
        "| all positions at once | seconds |",
        "|---|---|--:|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for family, method, own in cases(done):
        covered, error = mean_and_error([o.covered for o in own])
        together, band_error = mean_and_error([o.together for o in own])
        by_position = " ".join(f"{100 * share:.1f}" for share in np.mean([o.by_position for o in own], axis=0))
        ratio = np.sqrt(np.mean([o.error**2 for o in own]) / np.mean([o.sd**2 for o in own]))
        width, bias, seconds = (np.mean([getattr(o, name) for o in own]) for name in ("width", "bias", "seconds"))
        lines.append(
            f"| {family} | {method} | {len(own)} | {100 * covered:.1f} % | {100 * error:.1f} | {by_position} "
            f"| {width:.3f} | {ratio:.3f} | {bias:+.4f} | {100 * together:.1f} ± {100 * band_error:.1f} % "
            f"| {seconds:.1f} |"
        )
    return lines


def judge(done: dict[Key, Outcome]) -> list[str]:
    """Return a sentence for each case."""
    bars = []
    for family, method, own in cases(done):
        covered, error = mean_and_error([o.covered for o in own])
        verdict = "PASS" if BAR[0] <= covered <= BAR[1] else "FAIL"
        bars.append(
            f"{verdict}: {family}, {method}: 95 % intervals cover {100 * covered:.1f} ± {100 * error:.1f} % of the "
            f"cells of {len(own)} logs (bar: {100 * BAR[0]:.0f}-{100 * BAR[1]:.0f} %)"
        )
    return bars


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Return the mean over logs and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def told(settings: Settings) -> str:
    """Return what a reader must know of the settings."""
    return (
        f"{settings.queries} queries of {settings.units} documents each, K = {K}, {FEATURES} context features, "
        f"{settings.replicates} replicates, penalty {settings.penalty:g} (fixed), {TEST_CONTEXTS} test contexts. "
        "Widths, errors and bias are those of log p_k(x) / p_1(x); ± is a standard error over logs."
    )


def machine(jobs: int) -> str:
    """Return a line on the machine, the versions and the day."""
    return (
        f"{os.cpu_count()} cores, {jobs} processes; Python {platform.python_version()}, JAX {version('jax')}, "
        f"NumPy {version('numpy')}; {datetime.now(UTC):%Y-%m-%d}."
    )


def write_between_markers(path: Path, text: str) -> None:
    """Replace what stands between the markers of a file."""
    before, rest = path.read_text().split(BEGIN)
    replace_file(path, f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def replace_file(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text)
    partial.replace(path)


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
