"""The tables of all runs, beside the results: every row, every check with its numbers, and the notes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from experiments.runner.experiment import Headline, Row
from experiments.runner.publishing import Outcome
from experiments.runner.repeating import FILE as REPEATED
from experiments.runner.repeating import TOLERANCE
from experiments.runner.spelling import markdown_table, sentence

TABLES = "README.md"
"""The file of the tables, in the folder of results."""
LEFT_OUT = "A model is left out on logs where some of its seeds are missing, and so is what would be judged by them."

INTRODUCTION = """\
# All numbers of the reproduction

`python -m experiments` writes this file from `*/runs.jsonl`, which has a line for every run: its settings and what
came out. The same tables are beside them as `*/ID.csv`. *by the authors' code* is RelError as the authors compute it,
mean |1 − p/p̂|; *mean abs log* is mean |log(p̂/p)|, which does not reward underestimation.

A mean of more than ten times the median is made by one or two runs. It is left out with its standard deviation, and
checks and figures use the median.
"""


def make_tables(outcomes: Sequence[Outcome], folder: Path) -> str:
    """Return the tables of all outcomes that have rows."""
    done = [outcome for outcome in outcomes if outcome.rows]
    lines = [_headline_row(outcome, line) for outcome in done for line in outcome.headlines]
    parts = [INTRODUCTION, repetition(folder, details=True), "## Beside the paper's", markdown_table(lines)]
    for name in dict.fromkeys(outcome.experiment.id for outcome in done):
        own = [outcome for outcome in done if outcome.experiment.id == name]
        parts.append(f"## {name}: {own[0].experiment.title}")
        parts += own[0].experiment.notes
        parts += [part for outcome in own for part in _section(outcome)]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def missing_runs(outcome: Outcome) -> str:
    """Return how many runs are missing, and what that leaves out."""
    told = f"Not finished: {outcome.missing} of {outcome.missing + len(outcome.results)} runs are missing."
    return told + (f" {LEFT_OUT}" if outcome.rows else "")


def repetition(folder: Path, *, details: bool = False) -> str:
    """Return what the last repetition of a sample came to, with what differs if asked for; empty without one."""
    if not (folder / REPEATED).exists():
        return ""
    kept = json.loads((folder / REPEATED).read_text(encoding="utf-8"))
    repeated = sum(part["repeated"] for part in kept.values())
    same = repeated - sum(len(part["differing"]) for part in kept.values())
    latest = max(part["date"] for part in kept.values())
    return (
        f"{repeated} runs, one of every model and corpus, were last measured again on {latest}: {same} came out within "
        f"{TOLERANCE:.1%} of what is kept here."
        + "".join(f"\n- {told}" for part in kept.values() for told in part["differing"] if details)
    )


def _section(outcome: Outcome) -> list[str]:
    parts = [f"### {outcome.world}"]
    if not outcome.complete:
        parts.append(missing_runs(outcome))
    parts.append(markdown_table(outcome.rows))
    parts.append("\n".join(f"- **{c.verdict}** {c.claim}. {sentence(c.sentence)}" for c in outcome.checks))
    if outcome.results.refused:
        reasons = sorted({r.numbers["refused"] for r in outcome.results.refused})
        parts.append(
            f"{len(outcome.results.refused)} of {len(outcome.results)} fits were refused, such as: {reasons[0]}"
        )
    warned = [w for r in outcome.results for w in r.numbers.get("warnings", [])]
    if warned:
        parts.append(f"{len(warned)} of {len(outcome.results)} fits warned, such as: {warned[0]}")
    return parts


def _headline_row(outcome: Outcome, line: Headline) -> Row:
    return {
        "experiment": outcome.experiment.id,
        "corpus": outcome.world,
        "number": line.what,
        "paper": line.paper,
        "paper's estimator": line.ours,
        "sd": line.ours_sd,
        "ClickShare": line.clickshare,
        "sd ": line.clickshare_sd,
        "runs": line.runs,
    }
