"""What the commands print for people: at most 80 columns, coloured on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from clickharvest.commands.one_screen import MOST_PROBLEMS
from clickharvest.positions.places import spell_label
from clickharvest.words import clean_lines, clean_text, count, name_positions

if TYPE_CHECKING:
    from clickharvest.checks import Finding
    from clickharvest.checks.diagnosing import Diagnosis

WIDTH = 80
MOST_POSITIONS = 25
HUGE = 1e9
"""Counts from here on are abbreviated in tables: with their commas, columns of them have no room beside each other."""
MARKS = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "decisive": ("✗", "red")}


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


def clean_console(console: Console) -> Console:
    """Return a console that can print any text without being steered by it."""
    console.push_render_hook(_Clean())
    return console


class _Screen(Console):
    """A console that prints tables of numbers whole: on a narrow terminal, 0.6… would be another number."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as a console does; a table with a header takes the columns it needs, and the terminal breaks lines."""
        kept = self.width
        if any(isinstance(one, Table) and one.show_header for one in objects):
            self.width = WIDTH
        try:
            super().print(*objects, **options)
        finally:
            self.width = kept


def screen() -> Console:
    """Return a console on standard output, never wider than 80 columns."""
    console = clean_console(_Screen(highlight=False, markup=False, emoji=False))
    console.width = min(WIDTH, console.width)
    return console


def print_diagnosis(diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Print what was counted, what is wrong and the answer; with `verbose` a table of positions and every finding."""
    console = screen()
    t = diagnosis.totals
    console.print(
        f"Log:     {count(t['impressions'], 'impression')}, {count(t['clicks'], 'click')}, "
        f"{count(t['queries'], 'query', 'queries')}, {_where(diagnosis)}"
    )
    what = "positions" if diagnosis.places is None else "places"
    console.print(
        f"Harvest: {count(t['units'], 'unit')} shown at two {what} or more, {t['clicked_units']:,} of them clicked, "
        f"{count(t['unit_clicks'], 'click')}\n"
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
    """Return the table of positions: what was shown, and how much interventions tell."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    places = diagnosis.places
    where = ("position",) if places is None else tuple(clean_text(column, 12) for column in places.columns)
    for header in where:
        table.add_column(header, justify="right")
    for header in ("impressions", "CTR", "units", "unit clicks", "effective", "linked"):
        table.add_column(header, justify="right", no_wrap=True)  # where there is no room, names give way, not digits
    overlaps = {overlap.position: overlap for overlap in diagnosis.overlaps}
    for shown in diagnosis.shown[:MOST_POSITIONS]:
        overlap = overlaps.get(shown.position)
        label = (shown.position,) if places is None else places.labels[shown.position - 1]
        table.add_row(
            *(clean_text(spell_label(value), 16) for value in label),
            spell_count(shown.impressions),
            f"{shown.clicks / shown.impressions:.4f}" if shown.impressions else "-",
            *map(spell_count, (overlap.units, overlap.clicks, overlap.effective_clicks) if overlap else (0, 0, 0)),
            "yes" if shown.position in diagnosis.linked else "NO",
        )
    if len(diagnosis.shown) > MOST_POSITIONS:
        table.add_row(f"… {len(diagnosis.shown) - MOST_POSITIONS} more")
    return table


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
    line.add_row(Text(mark, style=colour), Text(finding.sentence))
    return line


def _answer(diagnosis: Diagnosis) -> Text:
    if diagnosis.identified:
        warnings = sum(finding.severity in ("warning", "decisive") for finding in diagnosis.findings)
        answer = f"This log reveals examination at {_where(diagnosis)}"
        if warnings:
            unless = "the warning above (!)" if warnings == 1 else f"one of the {warnings} warnings above (!)"
            return Text(f"{answer}, unless {unless} spoils it.", style="bold yellow")
        return Text(f"{answer}.", style="bold green")
    if diagnosis.places is not None:
        missing = diagnosis.places.spell(diagnosis.unlinked or diagnosis.positions)
        return Text(f"This log does not reveal examination at {missing}.", style="bold red")
    # Where only one position was shown, none is without a link: there is nothing to compare it with.
    missing = f" at {name_positions(diagnosis.unlinked)}" if diagnosis.unlinked else ""
    return Text(f"This log does not reveal examination{missing}.", style="bold red")


def _where(diagnosis: Diagnosis) -> str:
    """Return all positions, or how many places, that were shown."""
    if diagnosis.places is None:
        return name_positions(diagnosis.positions)
    return f"{count(len(diagnosis.positions), 'place')} ({', '.join(diagnosis.places.columns)})"
