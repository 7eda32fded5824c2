"""The logbook: what a run of the whole reproduction took, kept beside its results for the page to tell."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from clickharvest.experiments.runner.experiment import Row
from clickharvest.experiments.runner.measuring import read_times
from clickharvest.experiments.runner.runs import Run
from clickharvest.experiments.runner.store import Store
from clickharvest.files import atomic_path

FILE = "whole_run.json"


@dataclass(frozen=True)
class Logbook:
    """What a run took that measured everything it was asked for.

    Attributes:
        corpus: its corpus.
        seeds: seeds of each model on each log.
        processes: processes that measured at a time.
        seconds: from begin to end.
        runs: number of runs by family and model.
        run_seconds: seconds of these runs, added up; their logs are simulated in the first of each.
        checks: number of checks that were judged.
        passed: number of those that passed.
    """

    corpus: str
    seeds: int
    processes: int
    seconds: float
    runs: dict[str, int]
    run_seconds: dict[str, float]
    checks: int
    passed: int

    def told(self) -> str:
        """Return the sentence of the page.

        Example:
            >>> Logbook("synthetic", 1, 2, 3600.0, {"a": 2}, {"a": 7000.0}, 5, 4).told()[-84:]
            'measured 2 runs in 60 minutes, 2 at a time; 4 of 5 checks passed. What took longest:'
        """
        return (
            f"On the {self.corpus} corpus `clickharvest reproduce --seeds {self.seeds}`, begun with an empty folder of "
            f"results, measured {sum(self.runs.values()):,} runs in {self.seconds / 60:.0f} minutes, "
            f"{self.processes} at a time; {self.passed} of {self.checks} checks passed. What took longest:"
        )

    def rows(self) -> list[Row]:
        """Return what took longest, ten rows at most."""
        names = sorted(self.runs, key=lambda name: -self.run_seconds[name])
        return [
            {"runs of": name, "runs": self.runs[name], "minutes, added up": round(self.run_seconds[name] / 60)}
            for name in names[:10]
        ]


def keep_logbook(
    store: Store,
    measured: Sequence[Run],
    *,
    corpus: str,
    seeds: int,
    processes: int,
    seconds: float,
    checks: Sequence[bool],
) -> None:
    """Write the logbook of a run that measured these runs, all that there were to measure.

    Args:
        store: where results and their times are kept.
        measured: the runs.
        corpus: its corpus.
        seeds: seeds of each model on each log.
        processes: processes that measured at a time.
        seconds: from begin to end.
        checks: whether each check passed.
    """
    times = read_times(store)
    runs: dict[str, int] = defaultdict(int)
    run_seconds: dict[str, float] = defaultdict(float)
    for run in measured:
        name = ", ".join([run.family.replace("_", " "), *filter(None, [run.fit.get("model"), run.fit.get("learner")])])
        runs[name] += 1
        run_seconds[name] += times.get(run.key, 0.0)
    book = Logbook(corpus, seeds, processes, round(seconds), dict(runs), dict(run_seconds), len(checks), sum(checks))
    with atomic_path(store.folder / FILE) as partial:
        partial.write_text(json.dumps(asdict(book), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def find_logbook(folder: Path) -> Logbook | None:
    """Return the logbook beside results, None where there is none."""
    try:
        return Logbook(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
