"""What commands say in plain text, at most 80 columns wide: a fit on one screen, its budget, problems and verdicts."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from clickharvest.positions.places import name_place, name_places, spell_label
from clickharvest.words import clean_text, count, spell_times

if TYPE_CHECKING:
    from clickharvest.checks import Budget, Finding
    from clickharvest.checks.experiment_curve import CurveEstimate
    from clickharvest.checks.validating import Validation
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities
    from clickharvest.rank.comparison import Comparison
    from clickharvest.rank.estimates import Estimate
    from clickharvest.rank.tables import Clicks

WIDTH, MARGIN = 80, 10
"""Columns of a line, and those that the first word of a paragraph has to itself."""
MOST_COLUMNS, MOST_ROWS, MOST_ROW_NAME = 4, 6, 24
MOST_PROBLEMS, MOST_LINES = 3, 24
MOST_COMPARED = 9
"""Positions of the table of `validate`; the others are in --json, and all with --verbose."""
OURS = "_clickharvest"
"""How columns begin that reading a log has added."""
FOR_CHECKS = ("ranker", "user", "page", "time")
VERDICT = "dcg@10"
"""The metric that the verdict on a ranker goes by."""
MOST_TIMES = 1_000
"""How many times a log are worth collecting to tell two rankers apart."""
LEAST_SHOWN = 0.8
"""Share of the new ranking that users must have seen for a verdict."""
NOT_CHECKED = "Nothing was checked: how far off the curve can be is not known."


def fit_screen(
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
        parts += [paragraph("read", columns_read(log))]
    if interventions is not None:
        parts += [paragraph("compared", results_compared(interventions))]
    elif counts := spell_counts(model.info):
        parts += [paragraph("compared", ", ".join(counts))]
    parts += ["", *curve_table(model), ""]
    for sentence in sentences:
        parts += wrapped(sentence)
    if unlinked := model.unsupported:
        where = name_places(unlinked, model.places)
        parts += wrapped(f"No estimate at {where}: no result was shown there and elsewhere.")
    if thinned := spell_thinned(model.info):
        parts += wrapped(thinned)
    if budget is None:
        parts += wrapped(NOT_CHECKED)
    else:
        parts += budget_lines(budget)
        room = MOST_LINES - sum(part.count("\n") + 1 for part in parts)
        every, *fewer = ([*problems(findings, most)] for most in range(MOST_PROBLEMS, 0, -1))
        parts += next((lines for lines in (every, *fewer) if len(lines) <= room), every)
    return "\n".join(parts)


def paragraph(first: str, text: str) -> str:
    """Return a text with a word in the margin."""
    lines = wrapped(text, width=WIDTH - MARGIN)
    return "\n".join(f"{head.ljust(MARGIN)}{line}" for head, line in zip_longest([first], lines, fillvalue=""))


def wrapped(text: str, indent: str = "", width: int = WIDTH) -> list[str]:
    """Return a text in lines of at most 80 columns; a number and its percent sign stay together."""
    lines = textwrap.wrap(text.replace(" %", "\xa0%"), width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def columns_read(log: ClickLog) -> str:
    """Return which rows and columns were read."""
    columns = [clean_text(log.roles[role], 24) for role in log.roles if role not in FOR_CHECKS]
    columns = [name for name in columns if not name.startswith(OURS)]
    columns += [clean_text(name, 24) for name in (*(log.places.columns if log.places else ()), *log.context)]
    for_checks = [clean_text(log.roles[role], 24) for role in FOR_CHECKS if role in log.roles]
    rows = "rows" if log.facts is None else count(log.facts.rows, "row")
    more = f"; and for the checks {', '.join(for_checks)}" if for_checks else ""
    if lists := log.prepared.get("lists"):
        more += f"; rows were pages, with lists in {clean_text(lists, 48)}"
    return f"{rows}: {', '.join(columns)}{more}"


def results_compared(interventions: Interventions) -> str:
    """Return how many results were seen at several positions, with how many clicks and queries."""
    import numpy as np

    where = name_places(np.unique(interventions.position).tolist(), interventions.places)
    units, queries = (len(np.unique(column)) for column in (interventions.unit, interventions.query))
    return (
        f"{count(units, 'result')} seen at two or more of {where}: {count(interventions.clicks.sum(), 'click')}, "
        f"{count(queries, 'query', 'queries')}"
    )


def curve_table(model: Propensities) -> list[str]:
    """Return the curve as a table of some positions and contexts."""
    import numpy as np

    from clickharvest.model.typical import typical_context, varied_contexts

    varied = varied_contexts(model)
    one_column = len({one.column for one in varied}) == 1
    names, contexts = ["" if model.encoder is None else "typical"], [typical_context(model)]
    if model.encoder is not None and one_column:
        names, contexts = [], []
    names += [one.name.split(" = ")[-1] if one_column else one.name for one in varied[:MOST_ROWS]]
    contexts += [one.x for one in varied[:MOST_ROWS]]
    predicted = model.predict_encoded(np.concatenate(contexts))
    shown = predicted.supported
    others = [i for i, k in enumerate(predicted.positions) if k != model.curve.anchor and shown[0, i]]
    if not others:
        return ["no position can be compared"]
    spread = (0, 1, (len(others) + 1) // 2 - 1, len(others) - 1) if len(others) > MOST_COLUMNS else range(len(others))
    columns = [others[i] for i in sorted(set(spread))]
    bounds = (predicted.propensity, predicted.lower, predicted.upper)
    rows = [["", *(_header(model, predicted.positions[i]) for i in columns)]]
    for j, name in enumerate(names):
        cells = (spell_share(*(values[j, i] for values in bounds)) if shown[j, i] else "-" for i in columns)
        rows.append([clean_text(name, MOST_ROW_NAME), *cells])
    what = model.info.get("what", "examination" if "outcome" not in model.info else "what comes of a click")
    interval = ", 95 % interval" * bool(np.isfinite(predicted.lower[:, columns]).any())
    lines = aligned(rows if any(names) else [row[1:] for row in rows])
    return [f"{what} relative to {name_place(model.curve.anchor, model.places)}{interval}", *lines]


def _header(model: Propensities, position: int) -> str:
    """Return the name of a position, or a place, above a column."""
    if model.places is None:
        return str(position)
    return clean_text(",".join(map(spell_label, model.places.labels[position - 1])), 16)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, every column as wide as its longest cell.

    Example:
        >>> aligned([["", "2"], ["mobile", ".53"]])
        ['        2', 'mobile  .53']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [line.rstrip()[:WIDTH] for line in lines]


def spell_share(share: float, lower: float = math.nan, upper: float = math.nan) -> str:
    """Return a propensity with its interval, if it has one.

    Example:
        >>> spell_share(0.6612, 0.65, 0.6711), spell_share(0.0612, 0.055, 0.0699), spell_share(0.5)
        ('.66 (.65-.67)', '.061 (.055-.070)', '.50')
    """
    digits = 2 if share >= 0.1 else 3 if share >= 0.01 else 4
    value, low, high = (f"{number:.{digits}f}".removeprefix("0") for number in (share, lower, upper))
    return f"{value} ({low}-{high})" if math.isfinite(lower) and math.isfinite(upper) else value


def budget_lines(budget: Budget) -> list[str]:
    """Return the budget, its terms and what was not tested."""
    return [line for text in budget.lines() for line in wrapped(text)]


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
            finding.text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
        )
    return "\n".join(lines)


def users_of(info: Any) -> str:
    """Return what kind of users the log shows, where `fit --model auto` has looked; empty elsewhere."""
    users = info.get("users")
    return users if isinstance(users, str) else ""


def validation_lines(validation: Validation, *, verbose: bool) -> Iterator[str]:
    """Yield the curve of ordinary pages beside that of the experiment, and what follows."""
    from clickharvest.checks import findings_of
    from clickharvest.logs.parts import spell_part

    if validation.parts is not None:
        yield paragraph("ordinary", spell_part(validation.parts.ordinary))
        yield paragraph("random", spell_part(validation.parts.random))
    places = None if validation.model is None else validation.model.places
    others = validation.others
    if len(others) > MOST_COMPARED and not verbose:
        step = (len(others) - 1) / (MOST_COMPARED - 1)
        others = [others[round(step * i)] for i in range(MOST_COMPARED)]
    curves = {"model": validation.harvested, validation.what: validation.random, "click rates": validation.rates}
    rows = [("", *curves)]
    rows += [
        (name_place(validation.positions[i], places), *(_spell_estimate(curve, i) for curve in curves.values()))
        for i in others
    ]
    if places is None:
        rows.append(("power of k", *map(_spell_power, curves.values())))
    yield f"\nexamination relative to {name_place(validation.anchor, places)}, 95 % interval"
    yield from aligned(rows)
    yield ""
    if verbose and validation.model is not None:
        findings = findings_of(validation.model)
        yield f"{validation.model}\n" + (f"\n{every_finding(findings)}\n" if findings else "")
    for sentence in validation.sentences():
        yield from wrapped(sentence, "  " if sentence.startswith("!") else "")


def _spell_estimate(curve: CurveEstimate, i: int) -> str:
    share, lower, upper = curve.interval(i)
    return spell_share(share, lower, upper) if curve.error[i] else spell_share(share)


def _spell_power(curve: CurveEstimate) -> str:
    power, lower, upper = (f"{value:.2f}".removeprefix("0").replace("-0.", "-.") for value in curve.power_interval)
    return f"{power} ({lower} to {upper})" if curve.power_error else power


def verdict(best: str, row: Comparison, clicks: Clicks) -> str:
    """Return whether the new ranker beats the best that was shown, and whether propensities helped it.

    Args:
        best: the best ranking that was shown.
        row: the comparison by the metric of `VERDICT`.
        clicks: the clicks that it rests on.
    """
    from clickharvest.rank.comparison import NAIVE, NEW
    from clickharvest.rank.tables import STEADY

    shown = f"what was shown ({clean_text(best)})"
    if clicks.reason:
        return f"No verdict: keep {shown}; propensities are not known, since {clicks.reason.rstrip('.')}."
    if (unseen := row.estimates[NEW].unseen) > 1 - LEAST_SHOWN:
        return f"No verdict: {unseen:.0%} of the new ranking was never shown, and clicks tell nothing of it. Test it."
    if clicks.lists == "query" and clicks.steady < STEADY:
        why = f"a result is on {clicks.steady:.0%} of the other pages of its query"
        return f"No verdict: {why}, so that these documents never competed. Name the column of pages (--page)."
    gap, gain = row.differences[best], row.differences[NAIVE]
    if gap.lower > 0:
        answer = f"Better: the new ranker beats {shown}, {_spell_metric(gap)}."
    elif gap.upper < 0:
        answer = f"Worse: keep {shown}; the new ranker loses to it, {_spell_metric(gap)}."
    else:
        answer = f"No verdict: keep {shown}, or test both; {_spell_metric(gap)}. {_clicks_needed(gap)}"
    if gain.value == 0 and gain.std_error == 0:
        helped = "Propensities changed nothing: those of most clicks are too uncertain, or all are alike."
    elif gain.lower > 0:
        helped = f"Propensities helped: {_spell_metric(gain)} over the same ranker at face value."
    elif gain.upper < 0:
        helped = f"Propensities harmed: {_spell_metric(gain)} to the same ranker at face value."
    else:
        helped = f"Propensities made no clear difference: {_spell_metric(gain)} over the same ranker at face value."
    return f"{answer} {helped}"


def spell_gap(gap: Estimate) -> str:
    """Return a difference of two rankers with its interval."""
    return f"{gap.value:+.3f} ({gap.lower:+.3f} to {gap.upper:+.3f})"


def _spell_metric(gap: Estimate) -> str:
    return f"{gap.metric} {spell_gap(gap)}"


def _clicks_needed(gap: Estimate) -> str:
    """Return how many clicks would tell a difference of this size from none."""
    reach = gap.std_error * float(NormalDist().inv_cdf((1 + gap.level) / 2))
    end = gap.lower if gap.value > 0 else -gap.upper
    if end + reach <= 0:
        return "More clicks alone do not decide it: propensities may be too far off (clickharvest show MODEL)."
    times = (reach / gap.value) ** 2
    if times > MOST_TIMES:
        return "A difference this small takes more clicks than are worth collecting."
    return f"About {spell_times(times)} times these clicks would decide, if the difference is this large."
