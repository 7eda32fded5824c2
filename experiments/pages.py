"""The page and the tables: for every experiment the claim, a figure, our numbers beside the paper's, and its checks.

Both are made from results and from nothing else: the page (`make_page`) for readers, and beside the results every row,
every check with its numbers and the notes (`make_tables`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from pathlib import Path

from experiments.experiment import Check, Headline, Row
from experiments.outcomes import Outcome, figure_name
from experiments.repeating import FILE as REPEATED
from experiments.repeating import TOLERANCE
from experiments.runs import REFUSED

TABLES = "README.md"
"""The file of the tables, in the folder of results."""

PAGE = """\
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
NUMBERS = """\
# All numbers of the reproduction

`python -m experiments` writes this file from `*/runs.jsonl`, which has a line for every run: its settings and what
came out. The same tables are beside them as `*/ID.csv`. *by the authors' code* is RelError as the authors compute it,
mean |1 − p/p̂|; *mean abs log* is mean |log(p̂/p)|, which does not reward underestimation.

A mean of more than ten times the median is made by one or two runs. It is left out with its standard deviation, and
checks and figures use the median.
"""


def make_page(outcomes: Sequence[Outcome], folder: Path, page: Path) -> str:
    """Return the page of outcomes, sorted by experiment and then by world.

    Args:
        outcomes: what the experiments came to.
        folder: the folder of results.
        page: the file of the page, for links.
    """
    results = Path(os.path.relpath(folder.resolve(), page.resolve().parent))
    groups = _by_experiment(outcomes)
    checks = [check for outcome in outcomes for check in outcome.checks]
    passed = sum(check.passed for check in checks)
    parts = [PAGE.format(tables=(results / TABLES).as_posix())]
    if groups:
        rows: list[Row] = [
            {"experiment": name, "what it shows": group[0].experiment.text[0], "checks that pass": _passing(group)}
            for name, group in groups.items()
        ]
        summary = f"{passed} of {len(checks)} checks pass. {describe_repetition(folder)}"
        parts += ["## At a glance", summary, markdown_table(rows)]
    for group in groups.values():
        parts += _page_section(group, folder, results)
    return _joined(parts)


def make_tables(outcomes: Sequence[Outcome], folder: Path) -> str:
    """Return the tables of all outcomes that have rows."""
    done = [outcome for outcome in outcomes if outcome.rows]
    lines = [_headline_row(outcome, line) for outcome in done for line in outcome.headlines]
    parts = [NUMBERS, describe_repetition(folder, details=True), "## Beside the paper's", markdown_table(lines)]
    for name, group in _by_experiment(done).items():
        title, _, notes = group[0].experiment.text
        parts += [f"## {name}: {title}", *notes]
        parts += [part for outcome in group for part in _tables_section(outcome)]
    return _joined(parts)


def describe_repetition(folder: Path, *, details: bool = False) -> str:
    """Return how many repeated runs came out the same, with the differences if wanted; empty without a repetition."""
    if not (folder / REPEATED).exists():
        return ""
    families = json.loads((folder / REPEATED).read_text(encoding="utf-8")).values()
    repeated = sum(family["repeated"] for family in families)
    differing = [sentence for family in families for sentence in family["differing"]]
    return (
        f"{repeated} runs, one of every model and corpus, were last measured again on "
        f"{max(family['date'] for family in families)}: {repeated - len(differing)} came out within {TOLERANCE:.1%} of "
        "what is kept here." + "".join(f"\n- {sentence}" for sentence in differing if details)
    )


def spell(value: str | int | float | None, *, digits: int = 4) -> str:
    """Return a number for people: `digits` decimals for fractions, thousands separated, a dash for none.

    From a thousand million on, only its size is given.

    Example:
        >>> spell(0.16944), spell(114730), spell(None), spell(float("nan")), spell("power × 6")
        ('0.1694', '114,730', '-', '-', 'power × 6')
        >>> spell(1234567.8), spell(4138396747.2)
        ('1,234,568', '4.1e+09')
    """
    if value is None or (isinstance(value, float) and isnan(value)):
        return "-"
    if isinstance(value, float):
        if abs(value) < 1000:
            return f"{value:.{digits}f}"
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.1e}"
    return value if isinstance(value, str) else f"{value:,}"


def markdown_table(rows: Sequence[Mapping[str, str | int | float | None]]) -> str:
    """Return rows as a table in Markdown; columns of numbers are aligned to the right.

    Example:
        >>> print(markdown_table([{"model": "PBM", "error": 0.4}, {"model": "CPBM", "error": None}]))
        | model | error |
        |---|--:|
        | PBM | 0.4000 |
        | CPBM | - |
    """
    if not rows:
        return "No rows."
    has_words = {name: any(any(c.isalpha() for c in str(row[name] or "")) for row in rows) for name in rows[0]}
    rule = "|" + "".join("---|" if words else "--:|" for words in has_words.values())
    lines = [_line(spell(row[name]) for name in has_words) for row in rows]
    return "\n".join([_line(name.strip() for name in has_words), rule, *lines])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _by_experiment(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.experiment.id, []).append(outcome)
    return groups


def _passing(group: Sequence[Outcome]) -> str:
    counts = []
    for outcome in group:
        passed = sum(check.passed for check in outcome.checks)
        count = f"{outcome.world} {passed} of {len(outcome.checks)}"
        counts.append(count if passed == len(outcome.checks) else f"**{count}**")
    return ", ".join(counts)


def _page_section(group: Sequence[Outcome], folder: Path, results: Path) -> list[str]:
    """Return the section of an experiment, with all its worlds."""
    experiment = group[0].experiment
    title, claim, _ = experiment.text
    who = "We expect" if experiment.id.startswith(("beyond", "real")) else "The paper"
    parts = [f"## {experiment.id}: {title}", f"**{who}.** {claim}"]
    for outcome in group:
        if outcome.missing:
            runs = outcome.missing + len(outcome.results)
            parts.append(f"{outcome.world}: Not finished: {outcome.missing} of {runs} runs are missing.")
    done = [outcome for outcome in group if outcome.rows]
    if done and (folder / figure_name(experiment)).is_file():
        parts.append(f"![{title}]({(results / figure_name(experiment)).as_posix()})")
    if any(outcome.headlines for outcome in done):
        parts.append(markdown_table(_headline_rows(done)))
    if any(outcome.checks for outcome in done):
        parts += [markdown_table(_claim_rows(done)), *_failures(done)]
    return parts


def _headline_rows(group: Sequence[Outcome]) -> list[Row]:
    """Return one row per number: the paper's, and ours in every world; columns without a number are left out."""
    names = dict.fromkeys(line.what for outcome in group for line in outcome.headlines)
    shares = any(not isnan(line.clickshare) for outcome in group for line in outcome.headlines)
    theirs, ours = (": paper's", ": ClickShare") if shares else ("", ": ClickShare")
    columns = ["paper", *(f"{outcome.world}{who}" for outcome in group for who in (theirs, ours))]
    rows: dict[str, Row] = {name: {"number": name, **dict.fromkeys(columns)} for name in names}
    for outcome in group:
        for line in outcome.headlines:
            row = rows[line.what]
            row["paper"] = row["paper"] or (None if line.paper is None else _mean(line.paper, nan))
            row[f"{outcome.world}{theirs}"] = _mean(line.ours, line.ours_sd)
            row[f"{outcome.world}{ours}"] = _mean(line.clickshare, line.clickshare_sd)
    empty = {name for name in columns if all(row[name] is None for row in rows.values())}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows.values()]


def _mean(mean: float, sd: float) -> str | None:
    if isnan(mean):
        return None
    digits = 3 if abs(mean) < 1_000 else 0
    return spell(mean, digits=digits) + ("" if isnan(sd) else f" ± {spell(sd, digits=digits)}")


def _claim_rows(group: Sequence[Outcome]) -> list[Row]:
    """Return one row per claim: whether it passes in every world."""
    rows: dict[str, Row] = {}
    for outcome in group:
        for check in outcome.checks:
            row = rows.setdefault(check.claim, {"claim": check.claim, **{one.world: "" for one in group}})
            row[outcome.world] = "pass" if check.passed else "**FAIL**"
    return list(rows.values())


def _failures(group: Sequence[Outcome]) -> list[str]:
    """Return the numbers of claims that fail, those with the same cause together."""
    causes: dict[str, list[str]] = {}
    for outcome in group:
        for check in outcome.checks:
            if not check.passed:
                line = f"- **FAIL**, {outcome.world}: {check.claim}. {_sentence(check)}"
                causes.setdefault(check.reason, []).append(line)
    return ["\n".join(lines) + f"\n\n{reason}" for reason, lines in causes.items()]


def _sentence(check: Check) -> str:
    text = check.sentence
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _tables_section(outcome: Outcome) -> list[str]:
    """Return the table of an experiment in one world, its checks, and the refusals and warnings of its fits."""
    parts = [f"### {outcome.world}", markdown_table(outcome.rows)]
    parts.append("\n".join(f"- **{check.verdict}** {check.claim}. {_sentence(check)}" for check in outcome.checks))
    refusals = sorted({r.numbers[REFUSED] for r in outcome.results.refused})
    if refusals:
        parts.append(
            f"{len(outcome.results.refused)} of {len(outcome.results)} fits were refused, such as: {refusals[0]}"
        )
    if warnings := [w for r in outcome.results for w in r.numbers.get("warnings", [])]:
        parts.append(f"{len(warnings)} of {len(outcome.results)} fits warned, such as: {warnings[0]}")
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
