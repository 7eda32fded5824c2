"""The page: every table and figure beside the paper's claim, as Markdown made from results and from nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path

from clickharvest.experiments import experiment_ids, load_experiment
from clickharvest.experiments.families.corpora import SYNTHETIC
from clickharvest.experiments.runner.experiment import Headline, Row
from clickharvest.experiments.runner.publishing import Outcome, judge
from clickharvest.experiments.runner.store import Store

QUICK = "quick"
"""The folder of quick results, inside the folder of results."""
MOST_ROWS = 60

INTRODUCTION = """\
# The paper, reproduced

The experiments of Fang, Agarwal and Joachims, *Intervention Harvesting for Context-Dependent Examination-Bias
Estimation* (SIGIR 2019), one by one: what the paper says, what comes out here, and whether its claims hold. After them,
what lies beyond the paper. `clickharvest reproduce` makes this page from the results it keeps; nothing on it is written
by hand.

- **Paper's estimator** is AllPairs: for the PBM with constants, for the CPBM with a network for examination, and a
  model of relevance chosen on queries kept aside (see the notes of table-pbm). **ClickShare** is ours, with curve and
  penalty chosen by cross-validation. Nothing is chosen by the truth.
- **RelError** is the mean of |1 − p̂/p| over test contexts and positions, both relative to position 1. The authors' code
  divides by the estimate; that figure stands beside it for parity. RelError rewards underestimation, so the mean
  |log(p̂/p)| is told too. **sd** is over runs, each with rankers, contexts and clicks of its own, and a corpus where
  that is synthetic.
- The paper's corpus, Yahoo's, may not be passed on. Ours are a **synthetic** corpus of its size and manner, and public
  LETOR corpora where they are at hand. Absolute numbers depend on the corpus, so the claims are what is compared; they
  are checks that can fail, and those that do are listed first.
- The paper's private log of arXiv searches is replaced by a simulator of the same design and sizes, with a known truth.
"""


def find_outcomes(folder: Path, *, quick: bool) -> list[Outcome]:
    """Return what the results in a folder come to, complete or not, by experiment and then by world."""
    store = Store(folder)
    worlds = sorted((p.name for p in folder.glob("*") if (p / "runs").is_dir()), key=lambda w: (w != SYNTHETIC, w))
    found = []
    for name in experiment_ids():
        experiment = load_experiment(name)
        for world in [experiment.world] if experiment.world is not None else worlds:
            if experiment.world is None and not _is_corpus(world):
                continue
            outcome = judge(experiment, store, quick=quick, corpus=world)
            if outcome.results:
                found.append(outcome)
    return found


def make_page(outcomes: Sequence[Outcome], figures: Path) -> str:
    """Return the page.

    Args:
        outcomes: what the experiments came to.
        figures: the folder of results, as seen from the page.
    """
    done = [outcome for outcome in outcomes if outcome.complete]
    parts = [INTRODUCTION, *_overview(done)]
    for name in dict.fromkeys(outcome.experiment.id for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.experiment.id == name]
        experiment = own[0].experiment
        who = "We expect" if name.startswith(("beyond", "real")) else "The paper"
        parts += [f"## {name}: {experiment.title}", f"**{who}.** {experiment.claim}"]
        parts += [part for outcome in own for part in _section(outcome, figures)]
        if experiment.notes:
            parts.append("**Where we differ, and why.** " + "\n\n".join(experiment.notes))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def spell(value: str | int | float | None, *, digits: int = 4) -> str:
    """Return a number for people: `digits` decimals for fractions, thousands separated, a dash for none.

    Example:
        >>> spell(0.16944), spell(114730), spell(None), spell(float("nan")), spell("power × 6")
        ('0.1694', '114,730', '-', '-', 'power × 6')
    """
    if value is None or (isinstance(value, float) and isnan(value)):
        return "-"
    if isinstance(value, float):
        return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
    return value if isinstance(value, str) else f"{value:,}"


def page_of(folder: Path, page: Path, *, quick: bool) -> str:
    """Return the page that stands for a folder of results, with links as `page` needs them."""
    figures = Path(os.path.relpath(folder.resolve(), page.resolve().parent))
    return make_page(find_outcomes(folder, quick=quick), figures)


def _overview(done: Sequence[Outcome]) -> list[str]:
    failed = [(o, check) for o in done for check in o.checks if not check.passed]
    total = sum(len(outcome.checks) for outcome in done)
    parts = ["## What holds and what does not", f"{total - len(failed)} of {total} checks pass."]
    if failed:
        told = [
            f"- **FAIL** {o.experiment.id}, {o.world}: {check.claim}. {_sentence(check.sentence)}"
            for o, check in failed
        ]
        parts.append("\n".join(told))
    lines = [(outcome, line) for outcome in done for line in outcome.headlines]
    if lines:
        parts += ["## All numbers beside the paper's", _markdown([_headline_row(*entry) for entry in lines])]
    return parts


def _section(outcome: Outcome, figures: Path) -> list[str]:
    name, world = outcome.experiment.id, outcome.world
    if not outcome.complete:
        return [
            f"### {world}",
            f"Not finished: {outcome.missing} of {outcome.missing + len(outcome.results)} runs are missing.",
        ]
    parts = [f"### {world}"]
    if outcome.experiment.chart.__name__ != "no_chart":
        parts.append(f"![{outcome.experiment.title}, {world}]({(figures / world / f'{name}.png').as_posix()})")
    parts.append(_markdown(outcome.rows[:MOST_ROWS]))
    parts.append("\n".join(f"- **{c.verdict}** {c.claim}. {_sentence(c.sentence)}" for c in outcome.checks))
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


def _is_corpus(world: str) -> bool:
    return all(load_experiment(name).world != world for name in experiment_ids())
