"""Does `validate` tell sound logs from ones that mislead, and does the budget hold against random pages?

    .venv/bin/python benchmarks/validate.py --jobs 2          # all worlds; writes the table
    .venv/bin/python benchmarks/validate.py --worlds "two rankers that know users a little" --logs 1

Worlds are those of `budget_worlds`, with the results of one page in twenty in random order. `validate` was not changed
after one of them was looked at; it was developed on those of `tests/checks/worlds.py`. Steepness is that of all devices
together, since no context is named. Needs NumPy, SciPy and DuckDB.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import many_logs
import numpy as np
import pyarrow as pa
from budget_worlds import Pages, cascade, filtered, lost_clicks, make, misplaced, power

from clickharvest import read_log, validate

SHARE, LOGS = 0.05, 5
Log = dict[str, Any]


def shuffled(pages: Pages, share: float = SHARE) -> Pages:
    """Let chance order the results of some pages, whose ranker is `random`."""
    chosen = pages.random.random(len(pages.query)) < share
    order = np.argsort(pages.random.random(pages.shown.shape), axis=1)
    for name in ("shown", "appeal"):
        own = getattr(pages, name)
        setattr(pages, name, np.where(chosen[:, None], np.take_along_axis(own, order, axis=1), own))
    pages.columns["ranker"] = np.where(chosen, "random", np.array(list("abcdefgh"))[pages.ranker])
    return pages


def ordinary_alone(step: Callable[[Pages], Pages]) -> Callable[[Pages], Pages]:
    """Return a fault that the random pages do not have."""

    def apply(pages: Pages) -> Pages:
        shape = pages.shown.shape
        sound = {
            "clicks": pages.random.random(shape) < pages.examined * pages.appeal,
            "kept": np.ones(shape),
            "position": np.tile(np.arange(1, shape[1] + 1), (shape[0], 1)),
        }
        pages = step(pages)
        chosen = (pages.columns["ranker"] == "random")[:, None]
        for name, own in sound.items():
            if (faulty := getattr(pages, name)) is not None:
                setattr(pages, name, np.where(chosen, own, faulty))
        return pages

    return apply


WORLDS: dict[str, tuple[str, dict[str, Any], Callable[[Pages], Pages]]] = {
    "three rankers": ("sound", {}, Pages.draw),
    "mild decline": ("sound", {"curve": power(0.3, 0.5)}, Pages.draw),
    "five rankers, steep": ("sound", {"rankers": 5, "curve": power(1.2, 1.2)}, Pages.draw),
    "a heavy head": ("sound", {"zipf": 1.3}, Pages.draw),
    "rankers that hardly differ": ("sound", {"noise": 0.08}, Pages.draw),
    "two rankers that know users": ("misleads", {"rankers": 2, "taste": 0.6, "known": 1.0}, Pages.draw),
    "two rankers that know users a little": ("misleads", {"rankers": 2, "taste": 0.6, "known": 0.3}, Pages.draw),
    "a season that rankers follow": ("misleads", {"change": 0.6, "follow": True, "noise": 0.15}, Pages.draw),
    "ranks before a filter": ("misleads", {}, ordinary_alone(filtered)),
    "a third of the pages misplaced": ("misleads", {}, ordinary_alone(misplaced)),
    "lost clicks on all pages": ("both alike", {}, lost_clicks),
    "users leave after a click": ("both alike", {}, cascade),
}
"""By name: what the fault does, the options of `make`, and the step that ends in clicks."""


def measure(world: str, seed: int) -> Log:
    """Return what `validate` says of a log."""
    _, options, step = WORLDS[world]
    pages = step(shuffled(make(1_000 + seed, 80_000, **{"single": True} | options)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = validate(read_log(pa.table(pages.table())), random={"ranker": "random"})
    return {
        "agrees": found.agrees, "p": found.p, "held": found.held, "hidden": found.hidden,
        "word": "" if found.budget is None else found.budget.word,
        "random": found.random.power, "harvested": found.harvested.power,
    }  # fmt: skip


def table(kept: many_logs.Kept) -> tuple[list[str], list[str]]:
    """Return the table of how often both kinds of pages agree, and the bars."""
    lines = [
        "| world | the fault | logs | agree | differ | too few clicks | power harvested | random | budget held |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for world, (kind, *_) in WORLDS.items():
        logs: list[Log] = kept.get(world, [])
        if logs:
            counts = [sum(log["agrees"] is answer for log in logs) for answer in (True, False, None)]
            powers = [f"{median(log[name] for log in logs):.2f}" for name in ("harvested", "random")]
            held = sum(bool(log["held"]) for log in logs)
            lines.append(f"| {world} | {kind} | {len(logs)} | {' | '.join(map(str, [*counts, *powers, held]))} |")
    sound = [log for world, (kind, *_) in WORLDS.items() if kind == "sound" for log in kept.get(world, [])]
    wrong = sum(log["agrees"] is False for log in sound)
    bar = "PASS" if wrong <= 0.12 * len(sound) else "FAIL"
    return lines, [f"{bar}: {wrong} of {len(sound)} sound logs are said to differ (one in twenty by chance)"]


if __name__ == "__main__":
    many_logs.main("validate", __doc__, dict.fromkeys(WORLDS, LOGS), measure, table)
