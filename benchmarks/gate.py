"""The gate: what a change of the engine must not make worse. Accuracy of `auto`, coverage and width of intervals, time.

    .venv/bin/python benchmarks/gate.py --keep           # measure, and keep the figures as those to compare with
    .venv/bin/python benchmarks/gate.py                  # measure again and print both, before / after
    .venv/bin/python benchmarks/gate.py --only "8 queries,eta1" --logs 5
    .venv/bin/python benchmarks/gate.py --parts          # what each part of an interval buys; writes its table

RelError is that of `accuracy`, on the protocol of the paper, for three seeds; coverage is that of `coverage`, in the
same cells with other seeds. Both runs have the same seeds, so that differences are judged by the standard error of
paired logs: a figure that is worse by more than twice that, RelError that is more than 3 % larger, and coverage outside
90 to 99 % are marked `!`. Exits with 1 where anything is marked. Seconds compare on one machine alone. The whole gate
takes about a quarter of an hour on two cores; it needs NumPy and SciPy, no engine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import accuracy
import coverage
import numpy as np
from coverage import CELLS, HONEST, figures
from tables import write_table

HERE = Path(__file__).resolve().parent
KEPT = HERE / "gate.json"
SEEDS, LOGS = 3, 60
WORSE, SHOWN = 0.03, 2
"""Share by which RelError may grow; cells that are shown of each part."""

PARTS = {
    "queries that differ": ("query_random_effects", "_variances", lambda told, overdispersion: (0.0, 0.0)),
    "what the penalty hides": ("local_linear_fit", "excess", lambda curvature, square: np.zeros_like(curvature)),
    "what the curve misses": ("fitting", "misfit", lambda *_: None),
    "other curves": (
        "fitting",
        "curve_disagreement",
        lambda judged, x: (np.zeros((len(judged[0].fit.curve.positions),) * 2), {}),
    ),
}
"""What intervals are made of beside the model's own covariance: where each is, and what takes its place."""

Figures = dict[str, list[dict[str, Any]]]
"""By the name of a setting or cell, one record of each seed or log."""


def main() -> int:
    """Measure, print before / after, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), help="these settings and cells alone")
    parser.add_argument("--logs", type=int, default=LOGS, help="logs of a cell")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--before", type=Path, default=KEPT, help="file of the figures to compare with")
    parser.add_argument("--parts", action="store_true", help="leave parts of the intervals out, one at a time")
    parser.add_argument("--keep", action="store_true", help="write the figures into that file")
    options = parser.parse_args()
    names = [name for name in (*accuracy.SETTINGS, *CELLS) if options.only is None or name in options.only]
    begun = time.perf_counter()
    if options.parts:
        print("\n".join(lines := parts([name for name in names if name in CELLS], options)))
        if options.only is None and options.logs == LOGS:
            write_table("parts", "\n".join(lines))
        return 0
    after = measure(names, options)
    before: Figures = json.loads(options.before.read_text()) if options.before.exists() else {}
    lines, worse = table(before, after)
    print("\n".join(lines))
    print(f"\n{(time.perf_counter() - begun) / 60:.1f} minutes, {options.jobs} processes; {worse} marked.")
    if options.keep:
        accuracy.write_whole(options.before, spelled(before | after))
    return int(worse > 0)


def parts(names: list[str], options: argparse.Namespace) -> list[str]:
    """Return the lines of a table of the cells that change most without each part of the intervals."""
    whole = measure(names, options)
    lines = ["| without | cell | covered | all at once | width |", "|---|---|--:|--:|--:|"]
    for part in PARTS:
        left = measure(names, options, part)
        pairs = {name: list(zip(own, left[name], strict=True)) for name, own in whole.items()}

        def fall(name: str, pairs: dict[str, Any] = pairs) -> float:
            values = [figures(list(own), "together") for own in zip(*pairs[name], strict=True)]
            return float(values[0].mean() - values[1].mean()) if len(values[0]) else 0.0

        for name in sorted(pairs, key=fall, reverse=True)[:SHOWN]:
            cells = [spell(pairs[name], figure) for figure in ("covered", "together", "width")]
            lines.append(f"| {' | '.join([part, name, *cells])} |")
    return lines


def measure(names: list[str], options: argparse.Namespace, without: str | None = None) -> Figures:
    """Return the figures of some settings and cells, without one of `PARTS` of the intervals."""
    settings = [name for name in names if name in accuracy.SETTINGS]
    found: Figures = {name: [] for name in names}
    with coverage.processes(options.jobs) as (pool, folder):
        seeds = range(SEEDS if settings else 0)
        for made in [pool.submit(accuracy.simulate, seed, settings, accuracy.QUERIES, folder) for seed in seeds]:
            made.result()
        work = {pool.submit(of_setting, name, seed, folder): name for name in reversed(settings) for seed in seeds}
        cells = [(name, log) for log in range(options.logs) for name in names if name in CELLS]
        work |= {pool.submit(of_cell, name, log, without): name for name, log in cells}
        for done, future in enumerate(as_completed(work), 1):
            found[work[future]].append(future.result())
            if done % 20 == 0:
                accuracy.say(f"{done} of {len(work)}")
    return {name: sorted(own, key=lambda one: one["log"]) for name, own in found.items()}


def of_setting(name: str, seed: int, folder: str) -> dict[str, Any]:
    """Return RelError and time of `auto` on one log of the paper's protocol."""
    asked = {"setting": name, "seed": seed, "model": accuracy.AUTO}
    began = time.process_time()
    record = accuracy.measure(asked, folder)
    return {"log": seed, "error": record["rel_error"], "seconds": time.process_time() - began}


def of_cell(name: str, log: int, without: str | None) -> dict[str, Any]:
    """Return error, coverage, width and time on one log of a cell."""
    began = time.process_time()
    with ExitStack() as stack:
        if without is not None:
            module, function, instead = PARTS[without]
            stack.enter_context(patch(f"clickharvest.estimation.{module}.{function}", instead))
        record = coverage.measure(name, log, "gate")
    kept = {figure: record[figure] for figure in ("log", "error", "covered", "together", "width", "supported")}
    return kept | {"seconds": time.process_time() - began}


def table(before: Figures, after: Figures) -> tuple[list[str], int]:
    """Return the lines of the table, and how many figures are marked."""
    head = ("setting or cell", "error", "covered", "all at once", "width", "supported", "CPU seconds", "")
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * 6}---|"]
    worse = 0
    for name, own in after.items():
        old = {one["log"]: one for one in before.get(name, [])}
        pairs = [(old.get(one["log"], one), one) for one in own]
        marks = []
        limit = WORSE if name in accuracy.SETTINGS else 0.0
        if is_larger([a["error"] for a, _ in pairs], [b["error"] for _, b in pairs], limit):
            marks.append("error")
        covered = figures(own, "covered")
        if len(covered) and not HONEST[0] <= covered.mean() <= HONEST[1]:
            marks.append("covered")
        cells = [spell(pairs, figure) for figure in ("error", "covered", "together", "width", "supported", "seconds")]
        worse += len(marks)
        lines.append(f"| {' | '.join([name, *cells, ' '.join(f'! {mark}' for mark in marks)])} |")
    return lines, worse


def is_larger(before: list[Any], after: list[Any], limit: float) -> bool:
    """Return whether values have grown by more than a share of them, and by more than chance."""
    pairs = np.array([pair for pair in zip(before, after, strict=True) if None not in pair], dtype=np.float64)
    if len(pairs) < 2:
        return False
    grown = pairs[:, 1] - pairs[:, 0]
    chance = 0.0 if limit else 2 * grown.std(ddof=1) / np.sqrt(len(grown))
    return bool(grown.mean() > max(limit * pairs[:, 0].mean(), chance, 1e-5))


def spell(pairs: list[tuple[dict[str, Any], dict[str, Any]]], figure: str) -> str:
    """Return the mean of a figure before / after."""
    means = [figures(list(own), figure) for own in zip(*pairs, strict=True)]
    form = ".1%" if figure in ("covered", "together", "supported") else ".1f" if figure == "seconds" else ".4f"
    return " / ".join(f"{values.mean():{form}}" if len(values) else "" for values in means)


def spelled(found: Figures) -> str:
    """Return figures as JSON, a line for each record."""
    records = (
        f"{json.dumps(name)}: [\n"
        + ",\n".join(
            json.dumps({key: round(value, 5) if isinstance(value, float) else value for key, value in one.items()})
            for one in own
        )
        + "\n]"
        for name, own in found.items()
    )
    return "{\n" + ",\n".join(records) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
