"""Experiments: a claim, the runs that try it, and what is made of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from experiments.runner.runs import Results, Run

SYNTHETIC = "synthetic"
"""The world whose corpus is made up."""

Row = dict[str, str | int | float | None]
"""One row of a table, by column."""


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        quick: whether to run small logs and few seeds, for a first look and for CI.
        world: the corpus that logs are simulated on, `"synthetic"` or the name of a LETOR corpus; an experiment with
            a world of its own gets that.
    """

    quick: bool = False
    world: str = SYNTHETIC


@dataclass(frozen=True)
class Check:
    """A claim, whether our results bear it out, and a sentence with the numbers.

    Attributes:
        claim: what is claimed.
        passed: whether it holds.
        sentence: the numbers.
        cause: why it fails where it does, as an experiment of its own has established; empty where nobody knows.
    """

    claim: str
    passed: bool
    sentence: str
    cause: str = ""

    @property
    def verdict(self) -> str:
        """PASS or FAIL."""
        return "PASS" if self.passed else "FAIL"

    @property
    def reason(self) -> str:
        """Why it fails, as a sentence with a space before it; empty where it passes."""
        if self.passed:
            return ""
        return f" Cause: {self.cause}." if self.cause else " Cause unknown."


@dataclass(frozen=True)
class Headline:
    """A line of the last table: the paper's number beside ours.

    Attributes:
        what: what the number is.
        paper: the paper's number, None where it gives none.
        ours: our mean with the paper's estimator, NaN where there is none.
        clickshare: our mean with ClickShare, NaN where there is none.
        runs: number of runs that the means are over.
        ours_sd: standard deviation over runs.
        clickshare_sd: likewise.
    """

    what: str
    paper: float | None
    ours: float = nan
    clickshare: float = nan
    runs: int = 1
    ours_sd: float = nan
    clickshare_sd: float = nan


def no_chart(results: Results) -> None:
    """Return no chart, for experiments whose table says it all."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes:
        id: its name on the command line.
        title: what it shows, in a few words.
        claim: what the paper (or, beyond it, we) say comes out, with its numbers; Markdown.
        runs: what to measure, by plan.
        summarise: results to the rows of a table, all with the same columns.
        headline: results to lines of the last table.
        checks: results to the claims, each passed or failed.
        chart: results to an Altair chart, or None.
        notes: where we differ from the paper, and why; Markdown paragraphs.
        world: the world of all its runs; None where the corpus is the user's choice.
        by_model: whether it can tell of models and logs whose runs are there while others are missing.
        unavailable: returns why the experiment cannot run here, None where it can.
    """

    id: str
    title: str
    claim: str
    runs: Callable[[Plan], Sequence[Run]]
    summarise: Callable[[Results], list[Row]]
    headline: Callable[[Results], list[Headline]]
    checks: Callable[[Results], list[Check]]
    chart: Callable[[Results], Any] = no_chart
    notes: tuple[str, ...] = ()
    world: str | None = None
    by_model: bool = False
    unavailable: Callable[[], str | None] = lambda: None

    def plan(self, *, quick: bool, corpus: str) -> Plan:
        """Return the plan of this experiment, in its own world if it has one."""
        return Plan(quick=quick, world=self.world or corpus)
