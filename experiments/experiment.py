"""What an experiment is: a claim, the runs that test it, and what is made of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import nan
from pathlib import Path
from typing import Any

from experiments.runs import Results, Run

SYNTHETIC = "synthetic"
"""The world whose corpus is made up."""
TEXTS = Path(__file__).with_name("texts.md")

Row = dict[str, str | int | float | None]
"""One row of a table, by column."""


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        quick: whether logs are small and seeds few, for a first look and for CI.
        world: the corpus that logs are simulated on; an experiment with a world of its own gets that.
        source: the file of the corpus, None for the synthetic one.
    """

    quick: bool = False
    world: str = SYNTHETIC
    source: Path | None = None


@dataclass(frozen=True)
class Check:
    """A claim, whether our results bear it out, and a sentence with the numbers.

    Attributes:
        claim: what is claimed.
        passed: whether it holds.
        sentence: the numbers.
        cause: why it fails, as an experiment of its own has established; empty where nobody knows.
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
        """Why the check fails, as a sentence; empty where it passes."""
        if self.passed:
            return ""
        return f"Cause: {self.cause}." if self.cause else "Cause unknown."


@dataclass(frozen=True)
class Headline:
    """A number of the paper beside ours.

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

    @classmethod
    def of(
        cls, what: str, name: str, ours: Results, clickshare: Results | None = None, *, paper: float | None = None
    ) -> Headline:
        """Return the means and standard deviations of a number over the runs of both estimators."""
        shares, runs = clickshare or Results(), len(ours.values(name))
        return cls(what, paper, ours.mean(name), shares.mean(name), runs, ours.sd(name), shares.sd(name))


@dataclass(frozen=True)
class Experiment:
    """One table or figure. Its title, claim and notes are a section of `texts.md`.

    Attributes:
        id: its name on the command line.
        runs: what to measure, by plan.
        rows: results to the rows of a table, all with the same columns.
        headlines: results to numbers beside the paper's.
        checks: results to the claims, each passed or failed.
        chart: results to an Altair chart, or None.
        world: the world of all its runs; None where the corpus is the user's choice.
        unavailable: returns why the experiment cannot run here, None where it can.
    """

    id: str
    runs: Callable[[Plan], Sequence[Run]]
    rows: Callable[[Results], list[Row]]
    headlines: Callable[[Results], list[Headline]]
    checks: Callable[[Results], list[Check]]
    chart: Callable[[Results], Any] = lambda results: None
    world: str | None = None
    unavailable: Callable[[], str | None] = lambda: None

    def plan(self, *, quick: bool, world: str, source: Path | None = None) -> Plan:
        """Return the plan of this experiment, in its own world if it has one."""
        return Plan(quick, world, source) if self.world is None else Plan(quick, self.world)

    @property
    def text(self) -> tuple[str, str, list[str]]:
        """The title, the claim, and the notes on where we differ from the paper; all are Markdown."""
        title, claim, *notes = read_texts().get(self.id, [self.id, "None."])
        return title, claim, notes


@cache
def read_texts() -> dict[str, list[str]]:
    """Return the title and the paragraphs of every section of `texts.md`, each on one line."""
    sections = TEXTS.read_text(encoding="utf-8").split("\n## ")[1:]
    texts = {}
    for section in sections:
        head, *paragraphs = (paragraph.replace("\n", " ").strip() for paragraph in section.split("\n\n"))
        name, _, title = head.partition(": ")
        texts[name] = [title, *paragraphs]
    return texts
