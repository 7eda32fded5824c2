"""A fit on one screen: what was read and compared, the curve, how far off it can be, and what to do next."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import TYPE_CHECKING

from clickharvest.commands.options import LogOptions
from clickharvest.positions.places import name_place, name_places, spell_label
from clickharvest.words import clean_text, count

if TYPE_CHECKING:
    from clickharvest.checks import Budget, Finding
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

WIDTH, MARGIN = 80, 10
"""Columns of a line, and those that the first word of a paragraph has to itself."""
MOST_COLUMNS, MOST_ROWS, MOST_ROW_NAME = 4, 6, 12
MOST_PROBLEMS, MOST_LINES = 3, 24
OURS = "_clickharvest"
"""How columns begin that reading a log has added."""
FOR_CHECKS = ("ranker", "user", "page", "time")


def spell_fit(
    model: Propensities,
    budget: Budget | None,
    findings: Sequence[Finding],
    *,
    log: ClickLog | None = None,
    interventions: Interventions | None = None,
    sentences: Sequence[str] = (),
) -> str:
    """Return the lines that `check` and `fit` print, but for the last."""
    from clickharvest.model.summary import spell_counts, spell_thinned

    parts = []
    if log is not None:
        parts += [paragraph("read", spell_read(log))]
    if interventions is not None:
        parts += [paragraph("compared", spell_compared(interventions))]
    elif counts := spell_counts(model.info):
        parts += [paragraph("compared", ", ".join(counts))]
    parts += ["", *curve_table(model), ""]
    for sentence in sentences:
        parts += wrapped(sentence)
    if unlinked := model.unsupported:
        parts += [
            *wrapped(f"No estimate at {name_places(unlinked, model.places)}: no result was shown there and elsewhere.")
        ]
    if thinned := spell_thinned(model.info):
        parts += wrapped(thinned)
    if budget is None:
        parts += wrapped("Nothing was checked: how far off the curve can be is not known.")
    else:
        parts += spell_budget(budget)
        room = MOST_LINES - sum(part.count("\n") + 1 for part in parts)
        told, *fewer = ([*problems(findings, most)] for most in range(MOST_PROBLEMS, 0, -1))
        parts += next((lines for lines in (told, *fewer) if len(lines) <= room), told)
    return "\n".join(parts)


def paragraph(first: str, text: str) -> str:
    """Return a text with a word in the margin."""
    lines = wrapped(text, width=WIDTH - MARGIN)
    return "\n".join(f"{head.ljust(MARGIN)}{line}" for head, line in zip_longest([first], lines, fillvalue=""))


def wrapped(text: str, indent: str = "", width: int = WIDTH) -> list[str]:
    """Return a text in lines of at most 80 columns, no number apart from its percent sign."""
    lines = textwrap.wrap(text.replace(" %", "\xa0%"), width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def spell_read(log: ClickLog) -> str:
    """Return which rows and columns were read."""
    used = [clean_text(log.roles[role], 24) for role in log.roles if role not in FOR_CHECKS]
    used = [name for name in used if not name.startswith(OURS)]
    used += [clean_text(name, 24) for name in (*(log.places.columns if log.places else ()), *log.context)]
    more = [clean_text(log.roles[role], 24) for role in FOR_CHECKS if role in log.roles]
    rows = "rows" if log.facts is None else count(log.facts.rows, "row")
    lists = f"; rows were pages, with lists in {clean_text(own, 48)}" if (own := log.prepared.get("lists")) else ""
    return f"{rows}: {', '.join(used)}" + (f"; and for the checks {', '.join(more)}" if more else "") + lists


def spell_compared(interventions: Interventions) -> str:
    """Return what was compared: results at several positions, with their clicks and queries."""
    import numpy as np

    what = name_places(np.unique(interventions.position).tolist(), interventions.places)
    units, queries = (len(np.unique(column)) for column in (interventions.unit, interventions.query))
    return (
        f"{count(units, 'result')} seen at two or more of {what}: {count(interventions.clicks.sum(), 'click')}, "
        f"{count(queries, 'query', 'queries')}"
    )


def curve_table(model: Propensities) -> list[str]:
    """Return the curve as a table of some positions and contexts."""
    import numpy as np

    from clickharvest.model.typical import typical_context, varied_contexts

    names, rows = ["" if model.encoder is None else "typical"], [typical_context(model)]
    varied = varied_contexts(model)
    if model.encoder is not None and len({one.column for one in varied}) == 1:
        names, rows = [], []
    for one in varied[:MOST_ROWS]:
        names.append(one.name.split(" = ")[-1] if len({own.column for own in varied}) == 1 else one.name)
        rows.append(one.x)
    found = model.predict_encoded(np.concatenate(rows))
    others = [i for i, k in enumerate(found.positions) if k != model.curve.anchor and found.supported[0, i]]
    if not others:
        return ["no position can be compared"]
    spread = (0, 1, (len(others) + 1) // 2 - 1, len(others) - 1) if len(others) > MOST_COLUMNS else range(len(others))
    columns = [others[i] for i in sorted(set(spread))]
    intervals = np.isfinite(found.lower[:, columns]).any()
    header = [name_header(model, found.positions[i]) for i in columns]
    cells = [
        [
            spell_share(found.propensity[row, i], found.lower[row, i], found.upper[row, i])
            if found.supported[row, i]
            else "-"
            for i in columns
        ]
        for row in range(len(names))
    ]
    left = max(len(clean_text(name, MOST_ROW_NAME * 2)) for name in names)
    widths = [max(len(line[i]) for line in [header, *cells]) for i in range(len(columns))]
    what = model.info.get("what", "examination" if "outcome" not in model.info else "what comes of a click")
    told = f"{what} relative to {name_place(model.curve.anchor, model.places)}{', 95 % interval' * bool(intervals)}"
    lines = [told]
    for name, line in zip(["", *names], [header, *cells], strict=True):
        own = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        lines.append(f"{clean_text(name, MOST_ROW_NAME * 2).ljust(left)}{'  ' * bool(left)}{own}".rstrip()[:WIDTH])
    return lines


def name_header(model: Propensities, position: int) -> str:
    """Return the name of a position, or a place, above a column."""
    if model.places is None:
        return str(position)
    return clean_text(",".join(map(spell_label, model.places.labels[position - 1])), 16)


def spell_share(share: float, lower: float, upper: float) -> str:
    """Return a propensity with its interval, if it has one.

    Example:
        >>> spell_share(0.6612, 0.65, 0.6711), spell_share(0.0612, 0.055, 0.0699), spell_share(0.5, math.nan, math.nan)
        ('.66 (.65-.67)', '.061 (.055-.070)', '.50')
    """
    digits = 2 if share >= 0.1 else 3 if share >= 0.01 else 4
    told = [f"{value:.{digits}f}".removeprefix("0") for value in (share, lower, upper)]
    return f"{told[0]} ({told[1]}-{told[2]})" if math.isfinite(lower) and math.isfinite(upper) else told[0]


def spell_budget(budget: Budget) -> list[str]:
    """Return the budget, its terms and what was not tested."""
    return [line for told in budget.lines() for line in wrapped(told)]


def problems(findings: Sequence[Finding], most: int = MOST_PROBLEMS) -> Iterator[str]:
    """Yield what is wrong, how much it matters and what to do, the most serious first."""
    wrong = [finding for finding in findings if finding.severity in ("decisive", "warning")]
    wrong.sort(key=lambda one: (one.severity != "decisive", -max(float(bound.max()) for bound in one.bounds)))
    for finding in wrong[:most]:
        yield from wrapped(f"! {finding.sentence} {finding.counsel}", "  ")
    if len(wrong) > most:
        yield f"and {len(wrong) - most} more: --verbose"


def every_finding(findings: Sequence[Finding]) -> str:
    """Return every finding, one paragraph each."""
    marks = {"ok": " ", "untested": "?", "note": "·", "warning": "!", "decisive": "✗"}
    width = max((len(finding.kind) for finding in findings), default=0)
    lines = []
    for finding in findings:
        head = f"{marks[finding.severity]} {finding.kind.ljust(width)}  "
        lines += textwrap.wrap(
            f"{finding.sentence} {finding.counsel}",
            WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def words_of_log(words: Sequence[str]) -> list[str]:
    """Return what a command line says of the log alone: the options that say how it is read, with their values.

    Example:
        >>> words_of_log(["fit", "log.csv", "--query", "q", "--curve", "power", "--context=device"])
        ['--query', 'q', '--context=device']
    """
    flags = {f"--{field.name.replace('_', '-')}" for field in fields(LogOptions)} - {"--source"}
    found, follows = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if follows or name in flags:
            found.append(word)
            follows = not follows and not equals
    return found
