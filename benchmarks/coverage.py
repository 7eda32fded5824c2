"""Do 95 % intervals cover the truth? Seventeen kinds of simulated logs, fitted as a user would, many logs of each.

    .venv/bin/python benchmarks/coverage.py --jobs 2                                 # all; writes the table
    .venv/bin/python benchmarks/coverage.py --cells "8 queries,places" --logs 20     # some; prints their table

The cells are those of `gate`, the seeds are not. Coverage is of log p_k(x) / p_1(x) at supported positions k ≥ 2, in
contexts of the log. A run of all cells writes the table into `benchmarks/tables` and the counts into `README.md`; it
takes half an hour of CPU. Needs NumPy and SciPy, no engine.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import machine, say
from cells import Array, Cell, World, simulate
from shared_cells import ZIPF, SharedCell, simulate_shared
from tables import write_between_markers, write_table

HERE = Path(__file__).resolve().parent
FIRST_PAGE = HERE.parent / "README.md"
CATEGORIES = Cell(300, positions=8, displays=6.0)
CELLS: dict[str, Cell | SharedCell] = {
    "8 queries": Cell(8),
    "50 queries": Cell(50),
    "300 queries": Cell(300),
    "a query with 40 % of the displays": Cell(100, share=0.4),
    "12 levels": replace(CATEGORIES, levels=12, curve="auto"),
    "6 numbers": replace(CATEGORIES, numbers=6, bumps=0.1, curve="auto"),
    "one query links the last position": Cell(100, links=1),
    "3 positions": Cell(300, positions=3),
    "10 positions": Cell(300, positions=10),
    "50 positions": Cell(300, positions=50),
    "clusters by user": replace(ZIPF, mood=1.0),
    "no effect of context": replace(CATEGORIES, levels=4, truth="none", curve="auto"),
    "a fold of the page": Cell(300, positions=10, fold=1.0),
    "a number with a threshold": Cell(300, positions=8, numbers=1, truth="threshold", curve="auto"),
    "an unseen level": replace(CATEGORIES, levels=10, unseen=True),
    "places": Cell(300, positions=12, grid=True, levels=10, bumps=0.2, curve="auto"),
    "AllPairs": Cell(300, objective="allpairs"),
}
LOGS, REPLICATES = 200, 200
CLOSE, HONEST = (0.93, 0.98), (0.90, 0.99)
"""What intervals should cover, and the bounds beyond which a cell is named."""

Outcome = dict[str, Any]


def main() -> None:
    """Measure the cells, print the table, and write it if it has all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=LOGS, help="logs of each cell")
    parser.add_argument("--cells", type=lambda text: text.split(","), default=list(CELLS), help="some of the cells")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    if unknown := set(options.cells) - set(CELLS):
        parser.error(f"no cell {', '.join(sorted(unknown))}: expected some of {', '.join(CELLS)}")
    outcomes: dict[str, list[Outcome]] = {name: [] for name in options.cells}
    with processes(options.jobs) as (pool, _):
        work = {pool.submit(measure, name, log): name for log in range(options.logs) for name in options.cells}
        for done, future in enumerate(as_completed(work), 1):
            outcomes[work[future]].append(future.result())
            if done % 100 == 0:
                say(f"{done} of {len(work)} logs")
    text = "\n".join([*table(outcomes), "", misses(outcomes), "", f"{options.logs} logs of each cell; {machine()}."])
    print(text)
    if options.cells == list(CELLS):
        write_table("coverage", text)
        write_between_markers(FIRST_PAGE, "coverage", summary(outcomes))


@contextmanager
def processes(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, str]]:
    """Yield processes of one core each, and a folder that goes with them."""
    with tempfile.TemporaryDirectory(prefix="fits-") as folder:
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            yield pool, folder


def simulated(cell: Cell | SharedCell, name: str, *log: int) -> World:
    """Return a log of a cell and its truth; the seed is the name with the number of the log."""
    random = np.random.default_rng([*log, *name.encode()])
    return simulate_shared(cell, random) if isinstance(cell, SharedCell) else simulate(cell, random)


def measure(name: str, log: int, series: str = "coverage") -> Outcome:
    """Simulate a log of a cell, fit it, and compare the intervals with the truth; a series has seeds of its own."""
    from clickharvest.errors import NotIdentifiedError
    from clickharvest.estimation import CPBM, PBM

    cell = CELLS[name]
    world = simulated(cell, f"{series}: {name}", log)
    intervals = "bootstrap" if cell.objective == "allpairs" else "clustered"
    own: dict[str, Any] = {"intervals": intervals, "objective": cell.objective, "replicates": REPLICATES, "seed": log}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = CPBM(curve=cell.curve, **own) if world.contexts else PBM(**own)
        try:
            model = estimator.fit(world.interventions).propensities_
        except NotIdentifiedError:
            nothing = dict.fromkeys(("covered", "together", "width", "error", "rel_error"))
            return {"log": log, "supported": 0.0, **nothing}
    alone, together = (model.predict(world.contexts or None, simultaneous=band) for band in (False, True))
    asked = np.array(alone.positions) > 1
    target = world.truth[:, np.array(alone.positions) - 1][:, asked]
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
        "together": mean((band | ~supported).all(axis=1)[supported.any(axis=1)]),
        "width": mean((upper - lower)[supported]),
        "error": mean(np.abs(value - target)[supported]),
        "rel_error": mean(np.abs(np.exp(value - target) - 1)[supported]),
    }


def mean(values: Any) -> float | None:
    """Return the mean; None of nothing."""
    return float(np.mean(values)) if np.size(values) else None


def figures(own: list[Outcome], name: str) -> Array:
    """Return a figure of all logs that have it."""
    return np.array([one[name] for one in own if one.get(name) is not None], dtype=np.float64)


def table(outcomes: dict[str, list[Outcome]]) -> list[str]:
    """Return the lines of a Markdown table."""
    head = ("cell", "covered", "all positions at once", "half width of log p", "RelError", "supported")
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * 5}"]
    for name, own in outcomes.items():
        covered, together, width, error, supported = (
            figures(own, figure) for figure in ("covered", "together", "width", "rel_error", "supported")
        )
        known = ["–"] * 4
        if len(width):
            known = [spell(covered), spell(together), f"{width.mean() / 2:.2f}", f"{error.mean():.3f}"]
        cells = (name, *known, f"{supported.mean():.1%}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def spell(values: Array) -> str:
    """Return mean and standard error over logs."""
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():.1%} ± {error:.1%}"


def outside(outcomes: dict[str, list[Outcome]], bounds: tuple[float, float]) -> dict[str, float]:
    """Return the pointwise coverage, in tenths of a percent, of the cells outside of some bounds."""
    covered = {name: values for name, own in outcomes.items() if len(values := figures(own, "covered"))}
    rounded = {name: round(float(values.mean()), 3) for name, values in covered.items()}
    return {name: share for name, share in rounded.items() if not bounds[0] <= share <= bounds[1]}


def misses(outcomes: dict[str, list[Outcome]]) -> str:
    """Return a sentence that names every cell outside of the honest bounds."""
    named = ", ".join(f"{name} ({share:.1%})" for name, share in outside(outcomes, HONEST).items())
    return f"Outside 90 to 99 % pointwise: {named or 'no cell'}."


def summary(outcomes: dict[str, list[Outcome]]) -> str:
    """Return how many cells are within both bounds, for the first page."""
    known = sum(len(figures(own, "covered")) > 0 for own in outcomes.values())
    close, honest = (known - len(outside(outcomes, bounds)) for bounds in (CLOSE, HONEST))
    return (
        f"The 95 % intervals cover 93 to 98 % of the true values in {close} of {known} kinds of simulated logs, and 90 "
        f"to 99 % in {honest}.\n{misses(outcomes)}"
    )


if __name__ == "__main__":
    main()
