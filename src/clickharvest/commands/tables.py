"""Tables that commands print for people: at most 80 columns, coloured on a terminal only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from clickharvest.commands.text import MOST_PROBLEMS, VERDICT, WIDTH, spell_gap
from clickharvest.positions.places import name_place, spell_label
from clickharvest.words import clean_lines, clean_text, cluster_nouns, count, name_positions

if TYPE_CHECKING:
    from clickharvest.baselines import EstimatorComparison
    from clickharvest.checks import Finding
    from clickharvest.checks.diagnosing import Diagnosis
    from clickharvest.estimation.comparison import ModelComparison
    from clickharvest.model.differences import Differences
    from clickharvest.rank.comparison import Comparison

MOST_POSITIONS = 25
HUGE = 1e9
"""Counts from here on are abbreviated in tables: with their commas, columns of them have no room beside each other."""
MARKS = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "decisive": ("✗", "red")}
ESTIMATOR_POSITIONS = (2, 3, 5, 10)
"""Positions of the table of estimators, and the last one."""
LONGEST_NAME = 24
MOST_DIFFERENCES = 14


class _Clean(RenderHook):
    """Replaces what is not printable in all that a console prints, but for its own colours."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what prints the same, clean."""
        return [_Cleaned(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Cleaned:
    renderable: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.renderable, options):
            yield segment if segment.is_control else Segment(clean_lines(segment.text), segment.style)


class _Screen(Console):
    """A console that prints tables of numbers whole: on a narrow terminal, 0.6… would be another number."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as a console does; a table with a header takes the columns it needs, and the terminal breaks lines."""
        width = self.width
        if any(isinstance(one, Table) and one.show_header for one in objects):
            self.width = WIDTH
        try:
            super().print(*objects, **options)
        finally:
            self.width = width


def screen() -> Console:
    """Return a console on standard output, never wider than 80 columns, that no text can steer."""
    console = _Screen(highlight=False, markup=False, emoji=False)
    console.push_render_hook(_Clean())
    console.width = min(WIDTH, console.width)
    return console


def plain_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    whole: int | None = None,
    collapse_padding: bool = False,
) -> Table:
    """Return a table without lines.

    Args:
        headers: names of the columns.
        rows: the cells.
        left: how many of the first columns are aligned to the left; the others to the right.
        whole: number of the first column whose cells are never broken: where there is no room, the others give way.
        collapse_padding: whether columns stand closer together.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=collapse_padding)
    for i, header in enumerate(headers):
        table.add_column(header, justify="left" if i < left else "right", no_wrap=whole is not None and i >= whole)
    for row in rows:
        table.add_row(*row)
    return table


def print_diagnosis(diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Print what was counted, what is wrong and the answer; with `verbose` a table of positions and every finding."""
    console = screen()
    totals = diagnosis.totals
    console.print(
        f"Log:     {count(totals['impressions'], 'impression')}, {count(totals['clicks'], 'click')}, "
        f"{count(totals['queries'], 'query', 'queries')}, {_positions_shown(diagnosis)}"
    )
    what = "positions" if diagnosis.places is None else "places"
    console.print(
        f"Harvest: {count(totals['units'], 'unit')} shown at two {what} or more, {totals['clicked_units']:,} of them "
        f"clicked, {count(totals['unit_clicks'], 'click')}\n"
    )
    findings = list(diagnosis.findings)
    if verbose:
        console.print(position_table(diagnosis))
    else:
        findings = [one for one in findings if one.severity in ("decisive", "warning")]
    for finding in findings if verbose else findings[:MOST_PROBLEMS]:
        console.print(finding_line(finding))
    if not verbose and len(findings) > MOST_PROBLEMS:
        console.print(f"and {len(findings) - MOST_PROBLEMS} more: --verbose")
    console.print()
    console.print(_answer(diagnosis))


def position_table(diagnosis: Diagnosis) -> Table:
    """Return the table of positions: what was shown, and how many clicks of interventions there are."""
    places = diagnosis.places
    columns = ("position",) if places is None else tuple(clean_text(column, 12) for column in places.columns)
    overlaps = {overlap.position: overlap for overlap in diagnosis.overlaps}
    rows: list[Sequence[str]] = []
    for shown in diagnosis.shown[:MOST_POSITIONS]:
        overlap = overlaps.get(shown.position)
        label = (shown.position,) if places is None else places.labels[shown.position - 1]
        counts = (overlap.units, overlap.clicks, overlap.effective_clicks) if overlap else (0, 0, 0)
        row = [clean_text(spell_label(value), 16) for value in label]
        row += [spell_count(shown.impressions), f"{shown.clicks / shown.impressions:.4f}" if shown.impressions else "-"]
        rows.append([*row, *map(spell_count, counts), "yes" if shown.position in diagnosis.linked else "NO"])
    if len(diagnosis.shown) > MOST_POSITIONS:
        rows.append((f"… {len(diagnosis.shown) - MOST_POSITIONS} more",))
    headers = (*columns, "impressions", "CTR", "units", "unit clicks", "effective", "linked")
    return plain_table(headers, rows, left=0, whole=len(columns))


def spell_count(number: float) -> str:
    """Return a count for a table: from a billion on in three digits, so that none are cut off.

    Example:
        >>> spell_count(12_345.6), spell_count(999_999_999), spell_count(2_100_000_000_030), spell_count(1e9)
        ('12,346', '999,999,999', '2.1e12', '1e9')
    """
    if number < HUGE:
        return f"{number:,.0f}"
    digits, power = f"{number:.2e}".split("e")
    return f"{float(digits):g}e{int(power)}"


def finding_line(finding: Finding) -> Table:
    """Return one finding as a marked, indented paragraph."""
    mark, colour = MARKS[finding.severity]
    line = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    line.add_row(Text(mark, style=colour), Text(finding.text))
    return line


def _answer(diagnosis: Diagnosis) -> Text:
    if diagnosis.identified:
        warnings = sum(finding.severity in ("warning", "decisive") for finding in diagnosis.findings)
        answer = f"This log reveals examination at {_positions_shown(diagnosis)}"
        if warnings:
            which = "the warning above (!)" if warnings == 1 else f"the {warnings} warnings above (!)"
            return Text(f"{answer}, subject to {which}.", style="bold yellow")
        return Text(f"{answer}.", style="bold green")
    if diagnosis.places is not None:
        missing = f" at {diagnosis.places.spell(diagnosis.unlinked or diagnosis.positions)}"
    else:
        # Where only one position was shown, none is without a link: there is nothing to compare it with.
        missing = f" at {name_positions(diagnosis.unlinked)}" if diagnosis.unlinked else ""
    return Text(f"This log does not reveal examination{missing}.", style="bold red")


def _positions_shown(diagnosis: Diagnosis) -> str:
    """Return all positions, or how many places, that were shown."""
    if diagnosis.places is None:
        return name_positions(diagnosis.positions)
    return f"{count(len(diagnosis.positions), 'place')} ({', '.join(diagnosis.places.columns)})"


def print_scores(comparison: ModelComparison, *, in_places: bool) -> None:
    """Print how well models explain the clicks of another log."""
    console = screen()
    harvested = comparison.clicks + sum(comparison.left_out.values())
    clusters = count(comparison.queries, *cluster_nouns(comparison.clustered_by))
    where = count(len(comparison.positions), "place") if in_places else name_positions(comparison.positions)
    console.print(
        f"Scored {comparison.clicks:,} of {count(harvested, 'harvested click')}, {clusters} "
        f"(as good as {comparison.effective_queries:,.0f} of equal size), {where}."
    )
    for reason, clicks in comparison.left_out.items():
        if clicks:
            console.print(f"Left out: {count(clicks, 'click')} {reason}.")
    console.print()
    scores = ((clean_text(name, LONGEST_NAME), f"{score:.5f}") for name, score in comparison.scores.items())
    console.print(plain_table(("", "log likelihood per click"), scores))
    console.print()
    gains = [
        (
            *(clean_text(name, LONGEST_NAME) for name in (gain.name, gain.over)),
            f"{gain.per_click:+.5f}",
            "-" if gain.lower is None else f"{gain.lower:+.5f} to {gain.upper:+.5f}",
        )
        for gain in comparison.gains
    ]
    console.print(
        plain_table(("gain of", "over", "per click", f"{100 * comparison.level:g} % interval"), gains, left=2)
    )
    console.print()
    for sentence in comparison.findings:
        console.print(sentence)


def print_differences(first: str, second: str, differences: Differences) -> None:
    """Print where one model differs from another beyond the intervals of both."""
    import numpy as np

    console = screen()
    anchor = name_place(differences.anchor, differences.places)
    console.print(f"{clean_text(second, 60)} against {clean_text(first, 60)}, relative to {anchor}:\n")
    cells = [(i, k) for i in range(len(differences.contexts)) for k in range(len(differences.positions))]
    differing = [cell for cell in cells if differences.differs[cell]]
    shown = sorted(
        differing or [cell for cell in cells if cell[0] == 0], key=lambda cell: (not differences.differs[cell], cell)
    )
    rows: list[Sequence[str]] = []
    for i, k in shown[:MOST_DIFFERENCES]:
        numbers = (f"{differences.ratio[i, k]:.3f}", f"{differences.lower[i, k]:.3f} to {differences.upper[i, k]:.3f}")
        if not np.isfinite(differences.ratio[i, k]):
            numbers = ("-", "not supported")
        name = (clean_text(differences.contexts[i], 36),) if differences.values else ()
        at = differences.positions[k]
        rows.append((*name, str(at) if differences.places is None else differences.places.name(at), *numbers))
    if len(shown) > MOST_DIFFERENCES:
        rows.append((f"… {len(shown) - MOST_DIFFERENCES} more",))
    what = "position" if differences.places is None else "place"
    context = ("context",) if differences.values else ()
    console.print(plain_table((*context, what, "times", "interval"), rows, left=len(context)))
    coverage = f"The intervals hold for all of them together, with {100 * differences.level:g} % confidence."
    console.print(f"\n{differences.verdict}\n{coverage}")


def print_estimators(comparison: EstimatorComparison) -> None:
    """Print the curves of estimators side by side, and how well each explains clicks of other queries."""
    console = screen()
    last = comparison.positions[-1]
    shown = [k for k in ESTIMATOR_POSITIONS if k in comparison.positions and k < last] + [last]
    rows = [
        (
            one.label,
            *(spell_estimate(one.propensity.get(k)) for k in shown),
            "-" if one.held_out is None else f"{one.held_out:.4f}",
        )
        for one in comparison.estimates.values()
    ]
    console.print(plain_table(("estimator", *map(str, shown), "held out"), rows, whole=1, collapse_padding=True))
    scored = f"{comparison.clicks:,} of {count(comparison.harvested, 'click')} on results that moved"
    console.print(
        f"\nExamination by position, relative to the anchor, ± or × the half width of its {100 * comparison.level:g} % "
        f"interval; held out: log likelihood per click of {count(comparison.folds, 'fold')} by query, {scored}.\n"
    )
    for sentence in comparison.findings:
        console.print(sentence)
    for label, reason in comparison.left_out.items():
        option = " (--features-from)" if "features" in reason else ""
        needs = reason.startswith("needs")
        console.print(f"Left out: {label}, which {reason}{option}." if needs else f"Left out: {label}: {reason}.")


def spell_estimate(estimate: tuple[float, float | None, float | None] | None) -> str:
    """Return an estimate with the half width of its interval.

    Example:
        >>> spell_estimate((0.5, 0.4, 0.625)), spell_estimate((0.04, 0.01, 0.16)), spell_estimate(None)
        ('0.500 ±25%', '0.040 ×4.0', '-')
    """
    if estimate is None:
        return "-"
    value, lower, upper = estimate
    if lower is None or upper is None or lower <= 0:
        return f"{value:.3f}"
    factor = (upper / lower) ** 0.5
    width = f"±{100 * (factor - 1):.0f}%" if factor < 2 else f"×{factor:.1f}" if factor < 100 else "×100…"
    return f"{value:.3f} {width}"


def print_ranker(answer: Mapping[str, Any], comparisons: list[Comparison], best: str, level: float) -> None:
    """Print what was trained, what it is worth, and the verdict, from the answer of `rank`."""
    from clickharvest.rank.comparison import NAIVE, NEW

    console = screen()
    chosen = ", ".join(f"{name} {answer[name]:.4g}" for name in ("C", "clip", "penalty") if name in answer)
    train, test = (
        f"{count(answer[part]['queries'], 'query', 'queries')} ({count(answer[part]['clicks'], 'click')})"
        for part in ("train", "test")
    )
    if answer["tried"] is not None:
        shown = {one["ranker"] for one in answer["estimates"]} - {NEW, NAIVE, best}
        rows = [
            (
                one["candidate"],
                f"{one['value']:.3f} ({one['lower']:.3f} to {one['upper']:.3f})",
                "chosen" if one["chosen"] else "",
            )
            for one in answer["tried"]
            if one["candidate"] not in shown
        ]
        console.print(plain_table(("tried, best first", VERDICT, ""), rows))
        console.print()
    loss = f"loss {answer['loss']}{', ' * bool(chosen)}{chosen}"
    console.print(f"Trained {answer['learner']} with {count(answer['features'], 'feature')} on {train}: {loss}.")
    console.print(_clicks_used(answer))
    how = "held out" if answer["tried"] is None else "by rankers that had not seen the query"
    console.print(
        f"Judged on {test} {how}, by SNIPS, where documents of a {answer['lists']} compete; {level:.0%} intervals, "
        "of this log's queries and their traffic:\n"
    )
    gaps = [
        (
            row.metric,
            f"{row.estimates[NEW].value:.3f}",
            *(spell_gap(row.differences[rival]) for rival in (best, NAIVE)),
        )
        for row in comparisons
    ]
    console.print(plain_table(("", NEW, "minus best shown", f"minus {NAIVE}"), gaps))
    console.print("relevant_rank, the mean rank of a relevant document, is better if lower.")
    console.print(f"\n{answer['verdict']}")
    if (judged := answer["judged"]) is not None:
        rankers = judged["rankers"]
        rows = [
            (metric, *(f"{metrics[metric]:.4g}" for metrics in rankers.values()))
            for metric in next(iter(rankers.values()))
        ]
        console.print()
        console.print(plain_table((count(judged["queries"], "judged query", "judged queries"), *rankers), rows))
    console.print(f"Saved: {answer['file']}")


def _clicks_used(answer: Mapping[str, Any]) -> str:
    """Return the effective sample size of the clicks, and which of them have no support or no features."""
    total = answer["train"]["clicks"] + (answer["test"]["clicks"] if answer["tried"] is None else 0)
    parts = [f"Effective sample size: {answer['effective_clicks']:,.0f} of {count(total, 'click')}"]
    if share := answer["unsupported_clicks"]:
        if answer["corrected"]:
            use = "left out"
        elif answer["trust"] == "checked":
            use = "weigh as the last position above that can be"
        else:
            use = "count all the same"
        parts.append(f"{share:.1%} are where propensities cannot be told and {use}")
    if dropped := answer["dropped_clicks"]:
        parts.append(f"{dropped / (total + dropped):.1%} were dropped, on documents without features")
    corrected = "Clicks are corrected, (click - offset) / slope. " if answer["corrected"] else ""
    return f"{corrected}{'; '.join(parts)}."
