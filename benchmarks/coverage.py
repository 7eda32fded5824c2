"""Do 95 % intervals cover the truth? Many simulated logs of each hostile kind, fitted as a user would.

    PYTHONPATH=src python3 benchmarks/coverage.py --jobs 16
    .venv/bin/python benchmarks/coverage.py --logs 20 --cells "8 queries;auto: fold" --kinds clustered --json some.json

The kinds of logs are in `cells` and `shared_cells`, the kinds of intervals are all that `intervals` takes. Coverage is
of log p_k(x) / p_1(x), or relative to another anchor, over contexts that are in the log, at positions that the model
calls supported: pointwise, and of all positions of a context together.

Needs NumPy, SciPy, JAX, optax and lazy_loader, no engine. Outcomes are kept in `benchmarks/data/coverage.json`, and a
run goes on where an earlier one ended. Rows of cells that have all their logs replace those in `benchmarks/README.md`;
other rows stay. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from accuracy import machine, say, write_between_markers, write_whole
from cells import CELLS as BY_QUERY
from cells import Cell, World, simulate
from numpy.typing import NDArray
from shared_cells import SHARED, SharedCell, simulate_shared

from clickharvest.experiments.runner.fingerprint import fingerprint

Array = NDArray[np.float64]
Outcome = dict[str, Any]
Key = tuple[str, str]

HERE = Path(__file__).resolve().parent
README, KEPT = HERE / "README.md", HERE / "data" / "coverage.json"
FITS = HERE.parent / "src" / "clickharvest" / "estimation" / "estimators.py"
CELLS: dict[str, Cell | SharedCell] = BY_QUERY | SHARED
FULL, MORE, BAR, HONEST = 200, 600, (0.93, 0.98), 0.90
"""Logs of a cell, and of one whose logs take a second or two; the bars."""
SOME = ("8 queries", "20 queries", "50 queries", "300 queries", "last position linked by 1", "10 levels", "power")
KINDS: dict[str, tuple[str, ...]] = {
    "clustered": tuple(CELLS),
    "sandwich": SOME,
    "bootstrap": SOME,
    "allpairs": ("300 queries", "last position linked by 1", "10 levels", "power"),
}
"""Kinds of intervals, and the cells in which each is measured: refits take long. The last is AllPairs' bootstrap, which
is supported where no folds choose and where queries are many; beside contexts its penalty and relevance are named."""
NAMED = {"penalty": 0.1, "relevance": "squares"}
COUNTED = (
    "logs", "clicks", "supported", "covered", "last position", "all positions at once", "median width",
    "mean abs. error",
)  # fmt: skip
HEAD = ("cell", "intervals", *COUNTED, "bar", "curves chosen", "code")
REPLICATES = 200
PART, SECONDS = 5, 5
"""Logs that a process measures before it tells, and seconds after which what was told is kept."""


class Row(NamedTuple):
    """A row of the table, as it is printed; `code` is the fingerprint of the code that fits, or "earlier"."""

    cell: str
    intervals: str
    logs: str
    clicks: str
    supported: str
    covered: str
    last: str
    together: str
    width: str
    error: str
    bar: str
    curves: str
    code: str


def main() -> None:
    """Run what is missing, print the table, and judge it."""
    options = parse_options()
    wanted = [(c, k) for k in options.kinds for c in options.cells if c in KINDS[k]]
    kept = read_outcomes(options.json)
    run(wanted, kept, options)
    rows = {key: row(*key, kept[key]) for key in wanted if kept.get(key)}
    print(table(rows))
    if options.json == KEPT:
        whole = {key: one for key, one in rows.items() if len(kept[key]) >= logs_of(*key)}
        write_between_markers(README, "coverage", table(rows_in(README) | whole))
    sys.exit(bool(missed(rows)))


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, help="simulated logs of each cell; by default what the table needs")
    parser.add_argument("--cells", type=cells_of, default=list(CELLS), help="of those of the table, divided by ;")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS), help=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, default=KEPT, help="file to keep outcomes in, and to go on from")
    parser.add_argument("--report", action="store_true", help="run nothing, tell what the file holds")
    return parser.parse_args()


def cells_of(text: str) -> list[str]:
    """Return the cells of these names, or that begin so, divided by semicolons: commas are part of names."""
    found: set[str] = set()
    for one in text.split(";"):
        some = {one} & set(CELLS) or {name for name in CELLS if name.startswith(one)}
        if not some:
            raise argparse.ArgumentTypeError(f"no cell {one!r}: expected some of {'; '.join(CELLS)}")
        found |= some
    return [name for name in CELLS if name in found]


def run(wanted: list[Key], kept: dict[Key, list[Outcome]], options: argparse.Namespace) -> None:
    """Measure the logs that are missing, and keep them as they come."""
    missing = []
    for cell, kind in [] if options.report else wanted:
        done = {one["log"] for one in kept.get((cell, kind), [])}
        logs = [log for log in range(options.logs or logs_of(cell, kind)) if log not in done]
        missing += [(cell, kind, logs[i : i + PART]) for i in range(0, len(logs), PART)]
    if not missing:
        return
    # Every process has one core; programs compiled by one serve all.
    os.environ |= {"JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    common = {"code": fingerprint(FITS, engine=False)[:8], "machine": machine()}
    with (
        tempfile.TemporaryDirectory(prefix="coverage-") as folder,
        ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool,
    ):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        work = {pool.submit(measure_all, *part): part for part in sorted(missing, key=in_turn)}
        saved = time.monotonic()
        for done, future in enumerate(as_completed(work), 1):
            cell, kind, _ = work[future]
            kept.setdefault((cell, kind), []).extend(one | common for one in future.result())
            if time.monotonic() > saved + SECONDS or done == len(work):
                write_outcomes(options.json, kept)
                say(f"{done} of {len(work)} parts")
                saved = time.monotonic()


def logs_of(cell: str, kind: str) -> int:
    """Return how many logs of a cell the table has: more where they take a second or two, and both bars count."""
    own = CELLS[cell]
    small = own.queries <= 300 and (own.curve == "linear" or (own.curve == "auto" and own.positions <= 8))
    return MORE if kind == "clustered" and small and isinstance(own, Cell) and own.bar != "honest" else FULL


def in_turn(part: tuple[str, str, list[int]]) -> tuple[int, bool, int]:
    """Return a key that takes all cells in turns, slow ones first, so that a run that is stopped tells of each."""
    cell = CELLS[part[0]]
    return part[2][0], cell.curve != "auto", -cell.queries


def measure_all(name: str, kind: str, logs: list[int]) -> list[Outcome]:
    """Return the outcomes of some logs."""
    return [measure(name, kind, log) for log in logs]


def simulated(name: str, *seed: int) -> World:
    """Return a log of a cell and its truth."""
    cell, random = CELLS[name], np.random.default_rng([*seed, *name.encode()])
    return simulate_shared(cell, random) if isinstance(cell, SharedCell) else simulate(cell, random)


def measure(name: str, kind: str, log: int) -> Outcome:
    """Simulate a log of a cell, fit it, and compare its intervals with the truth."""
    from clickharvest.errors import NotIdentifiedError
    from clickharvest.estimation import CPBM, PBM

    cell = CELLS[name]
    world = simulated(name, log)
    anchor = cell.anchor if isinstance(cell, Cell) else 1
    own: dict[str, Any] = {"intervals": kind, "replicates": REPLICATES, "seed": log, "anchor": anchor}
    if kind == "allpairs":
        own |= {"intervals": "bootstrap", "objective": "allpairs", **(NAMED if world.contexts else {})}
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = CPBM(curve=cell.curve, **own) if world.contexts else PBM(**own)
        clicks = int(world.interventions.clicks.sum())
        try:
            model = estimator.fit(world.interventions).propensities_
        except NotIdentifiedError:
            nothing = dict.fromkeys(("covered", "last", "together", "width", "error"))
            return {"log": log, "supported": 0.0, **nothing, "clicks": clicks, "curve": "none", "seconds": 0.0}
    seconds = time.perf_counter() - began
    alone, together = (model.predict(world.contexts or None, simultaneous=band) for band in (False, True))
    shown = np.array(alone.positions) - 1
    asked = world.positions[shown] & (shown != anchor - 1)
    target = world.truth[:, shown][:, asked]
    with np.errstate(invalid="ignore"):
        value, lower, upper, low, high = (
            np.log(part[:, asked])
            for part in (alone.propensity, alone.lower, alone.upper, together.lower, together.upper)
        )
    supported = np.broadcast_to(alone.supported, alone.propensity.shape)[:, asked] & np.isfinite(value)
    inside, band = (lower <= target) & (target <= upper), (low <= target) & (target <= high)
    return {
        "log": log,
        "supported": float(supported.mean()),
        "covered": mean(inside[supported]),
        "last": mean(inside[:, -1][supported[:, -1]]),
        "together": mean((band | ~supported).all(axis=1)[supported.any(axis=1)]),
        "width": mean((upper - lower)[supported]),
        "error": mean(np.abs(value - target)[supported]),
        "clicks": clicks,
        "curve": " ".join(map(str, [model.curve.name, *model.curve.shape.values()])),
        "seconds": seconds,
    }


def mean(values: Any) -> float | None:
    """Return the mean, None of nothing."""
    return float(np.mean(values)) if np.size(values) else None


def figures(own: list[Outcome], name: str) -> Array:
    """Return a figure of all logs that have it."""
    return np.array([one[name] for one in own if one[name] is not None], dtype=np.float64)


def row(name: str, kind: str, own: list[Outcome]) -> Row:
    """Return the row of a cell."""
    cell = CELLS[name]
    clicks, support = np.mean([one["clicks"] for one in own]), np.mean([one["supported"] for one in own])
    chosen = Counter(one["curve"] for one in own) if cell.curve == "auto" else Counter()
    curves = ", ".join(f"{curve} × {count}" for curve, count in chosen.most_common())
    code = " ".join(sorted({one["code"] for one in own}))
    first, last = (name, kind, str(len(own)), f"{clicks:,.0f}", f"{support:.1%}"), (curves, code)
    if support == 0:
        return Row(*first, *[""] * 6, *last)
    covered, deepest, together = (figures(own, figure) for figure in ("covered", "last", "together"))
    return Row(
        *first, spell(covered), f"{deepest.mean():.1%}" if deepest.size else "", spell(together),
        f"{np.median(figures(own, 'width')):.2f}", f"{figures(own, 'error').mean():.3f}",
        judge(cell, float(covered.mean()), float(together.mean())), *last,
    )  # fmt: skip


def table(rows: dict[Key, Row]) -> str:
    """Return the table, and a sentence for every bar that is missed."""
    ordered = {key: rows[key] for cell in CELLS for kind in KINDS if (key := (cell, kind)) in rows}
    aligned = ["---:" if name in COUNTED else "---" for name in HEAD]
    lines = [f"| {' | '.join(line)} |" for line in (HEAD, aligned, *ordered.values())]
    return "\n".join([*lines, "", *missed(ordered)])


def missed(rows: dict[Key, Row]) -> list[str]:
    """Return a sentence for every bar that is missed."""
    return [
        f"- FAIL: {one.cell}: covered {one.covered}, all positions at once {one.together}: {one.bar}"
        for one in rows.values()
        if one.bar.startswith("misses") and one.intervals == "clustered"
    ]


def rows_in(path: Path) -> dict[Key, Row]:
    """Return the rows of the table in a file, of cells that there are."""
    text = path.read_text().partition("<!-- coverage:begin -->")[2].partition("<!-- coverage:end -->")[0]
    lines = [line[1:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    rows = [Row(*(part.strip() for part in line)) for line in lines[2:]]
    return {(one.cell, one.intervals): one for one in rows if one.cell in CELLS}


def judge(cell: Cell | SharedCell, covered: float, together: float) -> str:
    """Return whether a cell's bar is met, in a word or two."""
    if cell.bar == "shown":
        return "shown, no bar"
    if cell.bar == "honest":
        return "≥ 90 %" if covered >= HONEST else "misses 90 %"
    figures = covered, together
    wide, narrow = max(figures) > BAR[1], min(figures) < BAR[0]
    if narrow or wide:
        return "misses 93–98 %, " + ("too narrow" if narrow else "too wide")
    return "93–98 %"


def spell(values: Array) -> str:
    """Return mean and standard error over logs."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():.1%} ± {error:.1%}"


def read_outcomes(path: Path) -> dict[Key, list[Outcome]]:
    """Return the outcomes in a file; none where there is no file."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    found: dict[Key, list[Outcome]] = {}
    for one in stored["outcomes"]:
        found.setdefault((one.pop("cell"), one.pop("kind")), []).append(one | stored["runs"][one.pop("run")])
    return found


def write_outcomes(path: Path, kept: dict[Key, list[Outcome]]) -> None:
    """Write outcomes to a file, whole or not at all, one line each, and beside them the runs they come from."""
    runs: list[Outcome] = []
    lines = []
    for (cell, kind), own in sorted(kept.items()):
        for one in sorted(own, key=lambda one: one["log"]):
            run = {name: one[name] for name in ("code", "machine")}
            if run not in runs:
                runs.append(run)
            row = {"cell": cell, "kind": kind, "run": runs.index(run)} | {n: v for n, v in one.items() if n not in run}
            lines.append(json.dumps({n: round(v, 4) if isinstance(v, float) else v for n, v in row.items()}))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f'{{"runs": {json.dumps(runs)}, "outcomes": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
