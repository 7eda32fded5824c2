"""The page: every table and figure beside the paper's claim, as Markdown made from results and from nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from clickharvest.experiments.runner.experiment import SYNTHETIC, Experiment, Headline, Row
from clickharvest.experiments.runner.logbook import Logbook, find_logbook
from clickharvest.experiments.runner.publishing import Outcome, judge
from clickharvest.experiments.runner.spelling import spell
from clickharvest.experiments.runner.store import Store

QUICK = "quick"
"""The folder of quick results, inside the folder of results."""
MOST_ROWS = 60
LEFT_OUT = "A model is left out on logs where some of its seeds are missing, and so is what would be judged by them."
OTHER_CODE = "were measured with other code than that which is here now"

INTRODUCTION = """\
# The paper, reproduced

The experiments of Fang, Agarwal and Joachims, *Intervention Harvesting for Context-Dependent Examination-Bias
Estimation* (SIGIR 2019), one by one: what the paper says, what comes out here, and whether its claims hold. After them,
what lies beyond the paper. `clickharvest reproduce` makes this page from the results it keeps; nothing on it is written
by hand.

- **Paper's estimator** is AllPairs: for the PBM with constants; for the CPBM with the network that the paper prints for
  examination, ridges and a model of relevance, or the PBM, chosen on queries kept aside (*CPBM AllPairs, robust*; in
  fig-learn and beyond the paper still *CPBM AllPairs*, without ridges; see the notes of table-pbm). **ClickShare** is
  ours, with curve and penalty chosen by cross-validation. Nothing is chosen by the truth, but for the rows that say so
  and show what the authors' code does.
- **RelError** is the mean of |1 − p̂/p| over test contexts and positions, both relative to position 1. The authors' code
  divides by the estimate; that figure stands beside it for parity. RelError rewards underestimation, so the mean
  |log(p̂/p)| is told too. **sd** is over runs, each with rankers, contexts and clicks of its own, and a corpus where
  that is synthetic.
- Numbers are means over runs, and tables have the **median** beside them. A mean of more than ten times the median is
  made by one or two runs and says nothing of the others: it is left out with its standard deviation, and checks and
  figures use the median instead.
- The paper's corpus, Yahoo's, may not be passed on. Ours are a **synthetic** corpus of its size and manner, and public
  LETOR corpora where they are at hand. Absolute numbers depend on the corpus, so the claims are what is compared; they
  are checks that can fail, and those that do are listed first.
- The paper's private log of arXiv searches is replaced by a simulator of the same design and sizes, with a known truth.
"""


def find_outcomes(
    experiments: Sequence[Experiment], folder: Path, *, quick: bool, seeds: int | None = None
) -> list[Outcome]:
    """Return what the results in a folder come to, complete or not, by experiment and then by world; see `judge`."""
    store = Store(folder)
    own_worlds = {experiment.world for experiment in experiments}
    corpora = sorted(set(store.worlds()) - own_worlds, key=lambda world: (world != SYNTHETIC, world))
    found = []
    for experiment in experiments:
        for world in corpora if experiment.world is None else [experiment.world]:
            outcome = judge(experiment, store, quick=quick, corpus=world, seeds=seeds)
            if outcome.results:
                found.append(outcome)
    return found


def make_page(outcomes: Sequence[Outcome], figures: Path, logbook: Logbook | None = None) -> str:
    """Return the page.

    Args:
        outcomes: what the experiments came to.
        figures: the folder of results, as seen from the page.
        logbook: what a whole run took, where that is kept.
    """
    done = [outcome for outcome in outcomes if outcome.rows]
    parts = [INTRODUCTION, *_overview(done)]
    if logbook is not None:
        parts += ["## What a whole run takes", logbook.told(), _markdown(logbook.rows())]
    for name in dict.fromkeys(outcome.experiment.id for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.experiment.id == name]
        experiment = own[0].experiment
        who = "We expect" if name.startswith(("beyond", "real")) else "The paper"
        parts += [f"## {name}: {experiment.title}", f"**{who}.** {experiment.claim}"]
        parts += [part for outcome in own for part in _section(outcome, figures)]
        if experiment.notes:
            parts.append("**Where we differ, and why.** " + "\n\n".join(experiment.notes))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def page_of(
    experiments: Sequence[Experiment], folder: Path, page: Path, *, quick: bool, seeds: int | None = None
) -> str:
    """Return the page that tells of experiments by a folder of results, with links as `page` needs them.

    Where the folder holds the logbook of a whole run, the page tells of it too.
    """
    figures = Path(os.path.relpath(folder.resolve(), page.resolve().parent))
    return make_page(find_outcomes(experiments, folder, quick=quick, seeds=seeds), figures, find_logbook(folder))


def _overview(done: Sequence[Outcome]) -> list[str]:
    failed = [(o, check) for o in done for check in o.checks if not check.passed]
    total = sum(len(outcome.checks) for outcome in done)
    parts = ["## What holds and what does not", f"{total - len(failed)} of {total} checks pass."]
    if stale := {result.run for outcome in done for result in outcome.stale}:
        runs = {result.run for outcome in done for result in outcome.results}
        again = "`clickharvest reproduce` measures them again"
        parts.append(f"{len(stale):,} of {len(runs):,} runs {OTHER_CODE}; {again}.")
    if failed:
        told = [
            f"- **FAIL** {o.experiment.id}, {o.world}: {check.claim}. {_sentence(check.sentence)}{check.reason}"
            for o, check in failed
        ]
        parts.append("\n".join(told))
    lines = [(outcome, line) for outcome in done for line in outcome.headlines]
    if lines:
        parts += ["## All numbers beside the paper's", _markdown([_headline_row(*entry) for entry in lines])]
    return parts


def _section(outcome: Outcome, figures: Path) -> list[str]:
    name, world = outcome.experiment.id, outcome.world
    parts = [f"### {world}"]
    if not outcome.complete:
        told = f"Not finished: {outcome.missing} of {outcome.missing + len(outcome.results)} runs are missing."
        parts.append(told + (f" {LEFT_OUT}" if outcome.rows else ""))
    if not outcome.rows:
        return parts
    if outcome.stale:
        parts.append(f"{len(outcome.stale):,} of these {len(outcome.results):,} runs {OTHER_CODE}.")
    if outcome.experiment.chart.__name__ != "no_chart":
        parts.append(f"![{outcome.experiment.title}, {world}]({(figures / world / f'{name}.png').as_posix()})")
    parts.append(_markdown(outcome.rows[:MOST_ROWS]))
    parts.append("\n".join(f"- **{c.verdict}** {c.claim}. {_sentence(c.sentence)}{c.reason}" for c in outcome.checks))
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


def _markdown(rows: Sequence[Row]) -> str:
    if not rows:
        return "No rows."
    names = list(rows[0])
    number = {name: all(not isinstance(row[name], str) for row in rows) for name in names}
    lines = [_row(name.strip() for name in names)]
    lines.append("|" + "".join("--:|" if number[name] else "---|" for name in names))
    lines += [_row(spell(row[name]) for name in names) for row in rows]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
