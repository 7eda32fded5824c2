"""How far are browsing models from the truth, impression by impression, and do their intervals hold?

    .venv/bin/python benchmarks/browsing.py --jobs 2
    .venv/bin/python benchmarks/browsing.py --worlds ubm cascade --logs 5 --json some.json
    .venv/bin/python benchmarks/browsing.py --report    # writes the table of what was measured so far

Logs of known truth (`simulate --clicks …`) are fitted with `--model examination`, `--model browsing` and, the first few
of each cell, `--model reading`, as a user would. The truth of an impression is the probability that its result was
examined *given the clicks above on its page and the results there* (`simulate.SimulatedUsers.examination_given`).
Errors are over all impressions below position 1; the truth is 0 where a result above that nobody skips was not clicked,
so that errors relative to it need care:

- `log`: mean |log p̂/p| where p > 0;
- `rel`: mean |1 − p̂/p| where p > 0, RelError as the experiments define it;
- `seen`: Σ |p̂ − p| / Σ p, the same over the impressions that are examined, zeros included;
- `state`: as `log`, but p the mean over all impressions of the same state: what nothing but the last click can tell.

Coverage is of log γ of linked states, where the truth is one number for each state.

The Yandex log is used where it lies beside the repository. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import many_logs
import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.browsing.fitted import number_of
from clickharvest.simulate import Simulation, simulate_protocol

Array = NDArray[np.float64]
Outcome = dict[str, Any]

YANDEX = Path(__file__).resolve().parents[2] / "shared" / "data" / "yandex_sessions.parquet"
LOGS, TWICE, THIRD, COVERED = 20, 2.0, 0.8946 / 3, (0.93, 0.99)
READ = 2
"""Logs of each cell that the reading model is fitted to, too."""
MODELS = ("examination", "browsing", "reading")
MOODS = (0.15, 0.9)
"""What users of two moods click of what they examine and like."""
FIGURES = ("log", "rel", "seen", "state")


@dataclass(frozen=True)
class Cell:
    """A kind of logs.

    Attributes:
        clicks: the click model of the simulation.
        examination: its true curve.
        queries: queries, each shown `sweeps` times by both rankers.
        sweeps: sweeps.
        moods: whether some users click six times as much as others.
        same: whether the truth is one number for each state, so that coverage can be told.
        logs: logs at most.
    """

    clicks: str
    examination: str = "power"
    queries: int = 1_000
    sweeps: float = 10.0
    moods: bool = False
    same: bool = False
    logs: int = LOGS


CELLS = {
    "pbm": Cell("pbm", same=True, logs=100),
    "ubm": Cell("ubm", same=True, logs=100),
    "ubm, fold": Cell("ubm", "fold", same=True),
    "ubm, bump": Cell("ubm", "bump", same=True),
    "pbm, fold": Cell("pbm", "fold", same=True),
    "pbm, bump": Cell("pbm", "bump", same=True),
    "ubm, few clicks": Cell("ubm", queries=200, same=True, logs=100),
    "pbm, few clicks": Cell("pbm", queries=200, same=True, logs=100),
    "dcm": Cell("dcm"),
    "dbn": Cell("dbn"),
    "cascade": Cell("cascade"),
    "pbm, moods": Cell("pbm", moods=True),
    "cascade, 11,473 queries": Cell("cascade", queries=11_473, logs=1),
}


def simulate(cell: Cell, log: int) -> Simulation:
    """Return a simulated log of a cell."""
    simulation = simulate_protocol(
        queries=cell.queries, test_queries=10, sweeps=cell.sweeps, clicks=cell.clicks, examination=cell.examination,
        eta=0.0, seed=log,
    )  # fmt: skip
    if not cell.moods:
        return simulation
    random = np.random.default_rng([log, 9])
    rankers, queries, positions = simulation.shown.shape
    page = np.repeat(np.arange(rankers * queries), simulation.served.ravel())
    shown = simulation.shown.reshape(-1, positions)[page]
    likes = np.where(simulation.train.relevant[shown], 1.0, 0.1) * random.choice(MOODS, (len(page), 1))
    curve = simulation.examination(simulation.train_contexts)[page % queries]
    return replace(simulation, clicked=random.random(likes.shape) < curve * likes)


def measure(name: str, log: int) -> Outcome:
    """Simulate a log, fit the models, and compare them with the truth of every impression."""
    if name == "yandex":
        return of_yandex()
    from clickharvest import PBM, harvest, read_log
    from clickharvest.click_models.browsing import Browsing

    cell = CELLS[name]
    simulation = simulate(cell, log)
    rows = simulation.rows(truth=True)
    positions = simulation.shown.shape[2]
    columns = ("position", "click", "examination")
    rank, clicked, truth = (rows[column].to_numpy().reshape(-1, positions) for column in columns)
    last = np.maximum.accumulate(np.where(clicked, rank, 0), axis=1)
    last = np.concatenate([np.zeros_like(last[:, :1]), last[:, :-1]], axis=1)
    number = number_of(rank, last)[:, 1:]
    clicks = read_log(rows)
    model, began = Browsing(seed=log), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        states = model.harvest(clicks)
        fitted = model.fit(states)
        seconds = time.perf_counter() - began
        plain = PBM(intervals=None, seed=log).fit(harvest(clicks, clicked_only=True))
        read = {"reading": by_reading(clicks, positions, log)} if log < READ else {}
    by_state, by_rank = fitted.predict(), plain.predict().propensity
    estimates = {"browsing": by_state.propensity[0, number - 1], "examination": by_rank[0, rank[:, 1:] - 1]}
    estimates |= read
    outcome: Outcome = {
        "clicks": int(clicked.sum()),
        "zeros": float(np.mean(truth[:, 1:] == 0)),
        "seconds": seconds,
        "covered": covered(by_state, number, truth[:, 1:]) if cell.same else None,
    }
    return outcome | {kind: errors(p, truth[:, 1:], number) for kind, p in estimates.items()}


def by_reading(clicks: Any, positions: int, seed: int) -> Array:
    """Return the propensities that a reading model gives to all impressions below position 1, [pages, K − 1]."""
    from clickharvest import weigh
    from clickharvest.click_models.reading import Reading, reading_log

    model = Reading(intervals=None, seed=seed)
    fitted = model.fit(model.harvest(clicks))
    weighed = weigh(reading_log(clicks, fitted.base, None), fitted.places_model).table.select(
        "page", "position", "propensity"
    )
    rows = clicks.engine.fetch(weighed.order_by("page", "position"), task="Weighing")
    found: Array = rows["propensity"].to_numpy().reshape(-1, positions)[:, 1:]
    return found


def errors(estimate: Array, truth: Array, number: NDArray[np.int64]) -> dict[str, float]:
    """Return the errors of impressions, by their names."""
    there = truth > 0
    ratio = estimate[there] / truth[there]
    mean = np.bincount(number.ravel(), truth.ravel()) / np.maximum(np.bincount(number.ravel()), 1)
    seen = mean[number] > 0
    return {
        "log": float(np.abs(np.log(ratio)).mean()),
        "rel": float(np.abs(1 - ratio).mean()),
        "seen": float(np.abs(estimate - truth).sum() / truth.sum()),
        "state": float(np.abs(np.log(estimate[seen] / mean[number][seen])).mean()),
    }


def covered(predicted: Any, number: NDArray[np.int64], truth: Array) -> float:
    """Return the share of linked states whose interval covers the truth, which is one number for each."""
    states, first = np.unique(number, return_index=True)
    target, at = truth.ravel()[first], states - 1
    inside = (predicted.lower[0, at] <= target) & (target <= predicted.upper[0, at])
    return float(inside[predicted.supported[0, at]].mean())


def of_yandex() -> Outcome:
    """Return how much better the last click above explains held-out queries of the Yandex log."""
    from clickharvest import PBM, harvest, read_log
    from clickharvest.checks import Evidence, read_displays
    from clickharvest.checks.clicks_above import held_out_gain

    log = read_log(YANDEX, page="session")
    fitted, displays = PBM(intervals=None).fit(harvest(log)).propensities_, read_displays(log)
    largest = np.argmax(np.bincount(displays.query, displays.clicks))
    found = {}
    for clicks, kept in (("all", displays), ("largest left out", displays.take(displays.query != largest))):
        gain = held_out_gain(Evidence(kept, fitted))
        assert gain is not None
        found[clicks] = [gain.gain, 1.96 * gain.standard_error, gain.times, gain.clicks]
    return {"gains": found}


def table(kept: dict[str, list[Outcome]]) -> tuple[list[str], list[str]]:
    """Return the lines of the tables, and a sentence for every bar."""
    head = " | ".join(f"{figure}: examination | browsing | reading" for figure in FIGURES)
    lines = [
        f"| cell | logs | clicks | truth 0 | {head} | covered |",
        "|---|--:|--:|--:|" + "--:|" * (3 * len(FIGURES) + 1),
    ]
    for name in (name for name in CELLS if kept.get(name)):
        own = kept[name]
        cells = " | ".join(mean_of(own, kind, figure) for figure in FIGURES for kind in MODELS)
        told = [one["covered"] for one in own if one["covered"] is not None]
        inside = f"{np.mean(told):.1%}" if told else ""
        lines.append(
            f"| {name} | {len(own)} | {np.mean([one['clicks'] for one in own]):,.0f} "
            f"| {np.mean([one['zeros'] for one in own]):.0%} | {cells} | {inside} |"
        )
    return lines + yandex_lines(kept), bars(kept)


def mean_of(own: list[Outcome], kind: str, figure: str) -> str:
    """Return the mean of a figure over the logs that have it; nothing where none has."""
    told = [one[kind][figure] for one in own if kind in one]
    return f"{np.mean(told):.3f}" if told else ""


def yandex_lines(kept: dict[str, list[Outcome]]) -> list[str]:
    """Return the lines on the Yandex log."""
    if not kept.get("yandex"):
        return []
    lines = ["", "| Yandex log | clicks | below a click | gain per click | 95 % |", "|---|--:|--:|--:|---|"]
    for name, (gain, margin, times, clicks) in kept["yandex"][0]["gains"].items():
        ends = f"{gain - margin:.4f} to {gain + margin:.4f}"
        lines.append(f"| {name} | {clicks:,} | × {times:.2f} | {gain:.4f} | {ends} |")
    return lines


def bars(kept: dict[str, list[Outcome]]) -> list[str]:
    """Return a sentence for every bar of which there are figures."""

    def typical(name: str, kind: str, figure: str) -> float:
        return float(np.mean([one[kind][figure] for one in kept[name] if kind in one]))

    found = []
    for kind in ("", ", fold", ", bump", ", few clicks"):
        if kept.get(f"ubm{kind}") and kept.get(f"pbm{kind}"):
            ours, theirs = typical(f"ubm{kind}", "browsing", "log"), typical(f"pbm{kind}", "examination", "log")
            met = "PASS" if ours <= TWICE * theirs else "FAIL"
            found.append(f"{met}: ubm{kind}: log {ours:.3f}, at most twice the PBM's error under a PBM, {theirs:.3f}")
    for name in (name for name, cell in CELLS.items() if cell.same and kept.get(name)):
        inside = float(np.mean([one["covered"] for one in kept[name]]))
        met = "PASS" if COVERED[0] <= inside <= COVERED[1] else "FAIL"
        found.append(f"{met}: {name}: intervals cover {inside:.1%}, expected {COVERED[0]:.0%} to {COVERED[1]:.0%}")
    name = "cascade, 11,473 queries"
    for kind in ("browsing", "reading") if kept.get(name) else ():
        ours = typical(name, kind, "rel")
        met = "PASS" if ours <= THIRD else "FAIL"
        found.append(f"{met}: {name}: {kind}: rel {ours:.3f}, at most a third of beyond-cascade's .8946: {THIRD:.3f}")
    if kept.get("yandex"):
        gain, margin, *_ = kept["yandex"][0]["gains"]["all"]
        found.append(f"{'PASS' if gain > margin else 'FAIL'}: yandex: gain {gain:.4f} ± {margin:.4f} above 0")
    return found


if __name__ == "__main__":
    logs = {name: cell.logs for name, cell in CELLS.items()} | ({"yandex": 1} if YANDEX.exists() else {})
    many_logs.main("browsing", __doc__, logs, measure, table)
