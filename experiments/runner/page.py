"""The page: for every experiment the claim, a figure, our numbers beside the paper's, and whether its checks pass.

It is made from results and from nothing else. What it leaves out is in the tables beside the results, see `tables`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path

from experiments.runner.experiment import Row
from experiments.runner.publishing import Outcome, figure_name
from experiments.runner.spelling import markdown_table, sentence, spell
from experiments.runner.tables import TABLES, missing_runs, repetition

INTRODUCTION = """\
# The paper, reproduced

The experiments of Fang, Agarwal and Joachims, *Intervention Harvesting for Context-Dependent Examination-Bias
Estimation* (SIGIR 2019): what the paper says, what comes out here, and whether its claims hold. After them follow
experiments beyond the paper. `python -m experiments` writes this page from the results it keeps;
[all numbers, with notes]({tables}) are beside them.

- **Paper's** is the paper's estimator, AllPairs: with constants for the PBM; for the CPBM with the network that the
  paper prints, ridges chosen on queries kept aside (fig-learn and experiments beyond the paper: without ridges).
  **ClickShare** is our estimator, its curve and penalty chosen by cross-validation. Neither knows the true
  propensities.
- **RelError** is the mean of |1 − p̂/p| over test contexts and positions, relative to position 1. Numbers are means over
  runs ± standard deviation. Runs differ in rankers, contexts and clicks.
- The paper's corpus (Yahoo's) may not be passed on. **synthetic** is a made-up corpus of its size, **mq2007_part** a
  public one with a tenth of the queries. The paper's private log of arXiv searches is replaced by a simulated one of
  the same design and sizes, **arxiv**. Claims are compared, not absolute numbers: these depend on the corpus.
- Every claim is a check that can fail. The causes of failures were tested by the scripts that they name.
"""


def make_page(outcomes: Sequence[Outcome], folder: Path, page: Path) -> str:
    """Return the page.

    Args:
        outcomes: what the experiments came to, by experiment and then by world.
        folder: the folder of results.
        page: the file of the page, for links.
    """
    results = Path(os.path.relpath(folder.resolve(), page.resolve().parent))
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.experiment.id, []).append(outcome)
    parts = [INTRODUCTION.format(tables=(results / TABLES).as_posix()), *_overview(groups, folder)]
    for own in groups.values():
        parts += _section(own, folder, results)
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _overview(groups: Mapping[str, Sequence[Outcome]], folder: Path) -> list[str]:
    """Return how many checks pass, overall and by experiment."""
    every = [check for own in groups.values() for outcome in own for check in outcome.checks]
    passed = sum(check.passed for check in every)
    rows: list[Row] = [
        {"experiment": name, "what it shows": own[0].experiment.title, "checks that pass": _passing(own)}
        for name, own in groups.items()
    ]
    parts = ["## At a glance", f"{passed} of {len(every)} checks pass. {repetition(folder)}", markdown_table(rows)]
    return parts if rows else []


def _passing(own: Sequence[Outcome]) -> str:
    counts = []
    for outcome in own:
        passed = sum(check.passed for check in outcome.checks)
        count = f"{outcome.world} {passed} of {len(outcome.checks)}"
        counts.append(count if passed == len(outcome.checks) else f"**{count}**")
    return ", ".join(counts)


def _section(own: Sequence[Outcome], folder: Path, results: Path) -> list[str]:
    """Return the section of an experiment, with all its worlds."""
    experiment = own[0].experiment
    who = "We expect" if experiment.id.startswith(("beyond", "real")) else "The paper"
    parts = [f"## {experiment.id}: {experiment.title}", f"**{who}.** {experiment.claim}"]
    parts += [f"{outcome.world}: {missing_runs(outcome)}" for outcome in own if not outcome.complete]
    done = [outcome for outcome in own if outcome.rows]
    figure = figure_name(experiment)
    if done and (folder / figure).is_file():
        parts.append(f"![{experiment.title}]({(results / figure).as_posix()})")
    if any(outcome.headlines for outcome in done):
        parts.append(markdown_table(_numbers(done)))
    if any(outcome.checks for outcome in done):
        parts += [markdown_table(_claims(done)), *_failures(done)]
    return parts


def _numbers(own: Sequence[Outcome]) -> list[Row]:
    """Return one row per number: the paper's, and ours in every world; columns without a number are left out."""
    names = dict.fromkeys(line.what for outcome in own for line in outcome.headlines)
    rows: dict[str, Row] = {name: {"number": name, "paper": None} for name in names}
    shares = any(not isnan(line.clickshare) for outcome in own for line in outcome.headlines)
    theirs, ours = (": paper's", ": ClickShare") if shares else ("", ": ClickShare")
    columns = [f"{outcome.world}{who}" for outcome in own for who in (theirs, ours)]
    for row in rows.values():
        row.update(dict.fromkeys(columns))
    for outcome in own:
        for line in outcome.headlines:
            row = rows[line.what]
            row["paper"] = row["paper"] or (None if line.paper is None else _mean(line.paper, nan))
            row[f"{outcome.world}{theirs}"] = _mean(line.ours, line.ours_sd)
            row[f"{outcome.world}{ours}"] = _mean(line.clickshare, line.clickshare_sd)
    empty = {name for name in ("paper", *columns) if all(row[name] is None for row in rows.values())}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows.values()]


def _mean(mean: float, sd: float) -> str | None:
    if isnan(mean):
        return None
    digits = 3 if abs(mean) < 1_000 else 0
    return spell(mean, digits=digits) + ("" if isnan(sd) else f" ± {spell(sd, digits=digits)}")


def _claims(own: Sequence[Outcome]) -> list[Row]:
    """Return one row per claim: whether it passes in every world."""
    claims = dict.fromkeys(check.claim for outcome in own for check in outcome.checks)
    verdicts = {(outcome.world, check.claim): check.verdict for outcome in own for check in outcome.checks}
    spelled = {"PASS": "pass", "FAIL": "**FAIL**"}
    rows: list[Row] = []
    for claim in claims:
        found = {outcome.world: spelled.get(verdicts.get((outcome.world, claim), ""), "") for outcome in own}
        rows.append({"claim": claim, **found})
    return rows


def _failures(own: Sequence[Outcome]) -> list[str]:
    """Return the numbers of claims that fail, those with the same cause together."""
    causes: dict[str, list[str]] = {}
    for outcome in own:
        for check in outcome.checks:
            if not check.passed:
                told = f"- **FAIL**, {outcome.world}: {check.claim}. {sentence(check.sentence)}"
                causes.setdefault(check.reason, []).append(told)
    return ["\n".join(told) + f"\n\n{reason.strip()}" for reason, told in causes.items()]
