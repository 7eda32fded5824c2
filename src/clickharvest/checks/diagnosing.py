"""Diagnosis: can this log identify examination at all, and do its assumptions hold?

Nothing is fitted here. A position that no chain of common, clicked units links to the anchor is not identified; the
diagnosis names such positions and what would help.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import ibis
import ibis.expr.types as ir

from clickharvest.checks.assignment import ranker_independence, require_shares, sample_ratio
from clickharvest.checks.design_holds import design_findings
from clickharvest.checks.finding import Finding
from clickharvest.checks.overlap import (
    PairOverlap,
    PositionOverlap,
    Segment,
    pair_overlaps,
    position_overlaps,
    segments,
)
from clickharvest.checks.result_movement import advise_moves, repetition, unmoved_queries
from clickharvest.errors import NotIdentifiedError
from clickharvest.harvesting.collecting import harvest_table
from clickharvest.harvesting.designs import Design
from clickharvest.harvesting.interventions import Interventions, UnitKind, linked_positions, longest_linked_prefix
from clickharvest.harvesting.large_logs import narrowed
from clickharvest.harvesting.placements import LoggedPlacements
from clickharvest.logs.click_log import ClickLog, require_log
from clickharvest.logs.engines import DuckDBEngine, Engine
from clickharvest.logs.incomplete_logs import refuse_clicks_alone
from clickharvest.positions.places import Anchor, Places, find_anchor, name_place, name_places
from clickharvest.words import spell_positions

DOMINANT = 0.5
"""Share of a position's information from which on one query dominates it."""
FEW = 5
"""Queries below which error bars by query mean little."""


@dataclass(frozen=True)
class Shown:
    """What was shown and clicked at one position, intervened on or not."""

    position: int
    impressions: int
    clicks: int


@dataclass(frozen=True)
class Diagnosis:
    """What a log, or its interventions, can identify.

    Attributes:
        anchor: the position others are compared with.
        positions: every position that was shown.
        linked: the positions whose examination relative to the anchor is identified.
        totals: `impressions`, `clicks` and `queries` of the log; `units`, `clicked_units` and `unit_clicks` of
            the harvest.
        shown: impressions and clicks at each position.
        overlaps: one entry per position with intervened units.
        pairs: one entry per pair of positions with common units.
        segments: connectivity within each level of each context column.
        findings: the findings of tests of the log, that of connectivity first.
        places: what positions stand for, where they are numbers of places and not of a list.
    """

    anchor: int
    positions: tuple[int, ...]
    linked: tuple[int, ...]
    totals: Mapping[str, int]
    shown: tuple[Shown, ...]
    overlaps: tuple[PositionOverlap, ...]
    pairs: tuple[PairOverlap, ...]
    segments: tuple[Segment, ...]
    findings: tuple[Finding, ...]
    places: Places | None = None

    @property
    def unlinked(self) -> tuple[int, ...]:
        """The positions that were shown but cannot be compared with the anchor."""
        return tuple(position for position in self.positions if position not in self.linked)

    @property
    def identified(self) -> bool:
        """Whether every shown position is linked to the anchor, and there is another one."""
        return len(self.positions) > 1 and not self.unlinked

    def require_identified(self) -> None:
        """Raise `NotIdentifiedError`, with the reason and what would help, unless all positions are linked."""
        if not self.identified:
            raise NotIdentifiedError(self.findings[0].sentence)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings, lists and dicts, numbers with twelve digits.

        An engine adds up in parallel, in any order: further digits would differ from run to run.
        """

        def rounded(value: Any) -> Any:
            if isinstance(value, float):
                return float(f"{value:.12g}")
            if isinstance(value, dict):
                return {name: rounded(part) for name, part in value.items()}
            return type(value)(map(rounded, value)) if isinstance(value, list | tuple) else value

        plain = {"identified": self.identified, "unlinked": list(self.unlinked)} | asdict(self)
        whole: dict[str, Any] = rounded(plain | {"findings": tuple(finding.to_dict() for finding in self.findings)})
        return whole


def diagnose(
    source: ClickLog | Interventions,
    *,
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
    anchor: Anchor = 1,
    traffic: Mapping[str, float] | None = None,
) -> Diagnosis:
    """Diagnose a log, or interventions harvested before.

    Args:
        source: a click log, or interventions (then the log's own tests are left out, and the options on units,
            positions and design do not apply).
        unit: as in `harvest`.
        max_position: as in `harvest`.
        design: as in `harvest`.
        anchor: the position others are compared with.
        traffic: the traffic each ranker was meant to get, for the sample-ratio test.

    Raises:
        InputError: the options contradict each other or the log, or the log holds clicks alone.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": "qqqq", "doc": "aabb", "position": [1, 2, 2, 3], "click": [1, 1, 1, 0]}
        >>> log = read_log(pa.table({name: list(column) for name, column in shown.items()}))
        >>> diagnose(log).unlinked
        (3,)
    """
    if not isinstance(source, Interventions):
        require_log(source)
        source = source.pooled(design)
    if traffic is not None:
        require_shares(traffic)
    places = source.places
    anchor = find_anchor(anchor, places)
    findings: list[Finding] = []
    if isinstance(source, Interventions):
        engine: Engine = DuckDBEngine()
        source = source.undivided()
        context = tuple(source.contexts)
        rows = table = engine.materialise(ibis.memtable(source.to_arrow()), task="Reading")
    else:
        logged = [design.column] if isinstance(design, LoggedPlacements) else []
        engine, context, source = source.engine, source.context, source.parsed(also=logged)
        refuse_clicks_alone(source)
        narrow = source
        if design is None:
            keys = ["query", *(context if unit == "context" else ()), "doc"]
            narrow = narrowed(source, keys, max_position=max_position)
        else:
            findings += design_findings(source, design, max_position)
        harvested = harvest_table(narrow, unit=unit, max_position=max_position, design=design)
        table = engine.materialise(harvested, task="Harvesting")
        rows = source.table if max_position is None else source.table.filter(source.table.position <= max_position)
        findings += unmoved_queries(source, table)
        findings += repetition(source) if unit == "context" and design is None else []
        if places is None or source.has("page"):  # otherwise a page is what was shown at position 1
            findings += ranker_independence(source) + sample_ratio(source, traffic)
    shown = _shown(rows, engine)
    pairs = pair_overlaps(table, engine, anchor)
    columns = ("position", "other", "clicks", "other_clicks")
    linked = linked_positions(anchor, *([getattr(pair, name) for pair in pairs] for name in columns))
    overlaps = position_overlaps(table, engine)
    parts = segments(table, engine, context, anchor)
    totals = _totals(rows, table, engine)
    first = [_connectivity(shown, linked, pairs, anchor, places)]
    first += [*_dominance(overlaps, places, totals["queries"]), *_segment_links(parts, linked, places)]
    return Diagnosis(
        anchor=anchor,
        positions=tuple(row.position for row in shown),
        linked=linked,
        totals=totals,
        shown=tuple(shown),
        overlaps=tuple(overlaps),
        pairs=tuple(pairs),
        segments=tuple(parts),
        findings=tuple(first + findings),
        places=places,
    )


def _shown(rows: ir.Table, engine: Engine) -> list[Shown]:
    counted = rows.group_by(position=rows.position.cast("int64")).agg(
        impressions=rows.impressions.sum().cast("int64"), clicks=rows.clicks.sum().cast("int64")
    )
    return [Shown(**row) for row in engine.fetch(counted.order_by("position"), task="Counting").to_pylist()]


def _totals(rows: ir.Table, table: ir.Table, engine: Engine) -> dict[str, int]:
    units = table.group_by("unit").agg(clicks=table.clicks.sum())
    counts = (
        rows.agg(
            impressions=rows.impressions.sum().cast("int64"),
            clicks=rows.clicks.sum().cast("int64"),
            queries=rows.query.nunique(),
        )
        .cross_join(units.agg(units=units.count(), clicked_units=units.count(where=units.clicks > 0)))
        .cross_join(table.agg(unit_clicks=table.clicks.sum().fill_null(0).cast("int64")))
    )
    return dict(engine.fetch(counts, task="Counting").to_pylist()[0])


def _connectivity(
    shown: list[Shown], linked: tuple[int, ...], pairs: list[PairOverlap], anchor: int, places: Places | None
) -> Finding:
    positions = [row.position for row in shown]
    name, what = "connectivity", "position" if places is None else "place"
    among, to = _spell(positions, places), name_place(anchor, places)
    if anchor not in positions:
        sentence = f"{_capitalised(to)} was never shown: choose an anchor among {among}."
        return Finding(name, "decisive", sentence, value=0.0)
    if len(positions) < 2:
        return Finding(name, "decisive", f"Only one {what} was ever shown: there is nothing to compare.", value=0.0)
    value = len(set(linked) & set(positions)) / len(positions)
    unlinked = [position for position in positions if position not in linked]
    if not unlinked:
        return Finding(name, "ok", f"Every {what} shown ({among}) is linked to {to}.", value=value)
    touching = {p for pair in pairs if {pair.position, pair.other} & set(linked) for p in (pair.position, pair.other)}
    why = f"no document was shown both there and at a linked {what}"
    if silent := [position for position in unlinked if position in touching]:
        why = f"documents common to {_spell(silent, places)} and linked {what}s were clicked on one side only"
    helps = "a longer log, fewer or coarser context columns, --unit query"
    if places is None:
        moves = advise_moves({row.position: row.clicks for row in shown}, unlinked)
        prefix = longest_linked_prefix(positions, linked) if anchor == min(positions) else 0
        cut = f", or the linked ones alone (--max-position {prefix})" if prefix > 1 else ""
        helps = f"to {moves}; else {helps}, the rankings of all rankers (--rankings){cut}"
    else:
        helps += ", coarser places; the linked ones alone can be estimated"
    which = _capitalised(name_places(unlinked, places))
    return Finding(name, "decisive", f"{which} cannot be linked to {to}: {why}. What would help: {helps}.", value=value)


def _spell(positions: Collection[int], places: Places | None) -> str:
    return spell_positions(positions) if places is None else places.spell(positions)


def _capitalised(words: str) -> str:
    return words[0].upper() + words[1:]


def _dominance(overlaps: list[PositionOverlap], places: Places | None, queries: int) -> list[Finding]:
    overlaps = [overlap for overlap in overlaps if overlap.effective_queries > 0]  # of others nothing is known
    if not overlaps:
        return []
    worst = max(overlaps, key=lambda overlap: overlap.top_share)
    few = min(overlap.effective_queries for overlap in overlaps)
    if worst.top_share < DOMINANT:
        what = "position" if places is None else "place"
        return [Finding("dominance", "ok", f"Every {what} rests on {few:.0f} effective queries or more.", value=few)]
    consequence = (
        ": trust query-clustered error bars only, and look at the fit without it."
        if queries >= FEW
        else ", and queries are too few for error bars. Where lists are recommendations, let documents or users take "
        "their place (fit --cluster doc, or --cluster user)."
    )
    sentence = (
        f"One query ({worst.top_query}) carries {100 * worst.top_share:.0f} % of what is known about "
        f"{name_place(worst.position, places)}{consequence}"
    )
    return [Finding("dominance", "warning", sentence, value=few)]


def _segment_links(parts: list[Segment], linked: tuple[int, ...], places: Places | None) -> list[Finding]:
    lacking = {part: missing for part in parts if (missing := set(linked) - set(part.linked))}
    what = "positions" if places is None else "places"
    if not parts:
        return []
    if not lacking:
        whose = f"Each of the {len(parts)} context segments" if len(parts) > 1 else "The one context segment"
        return [Finding("segments", "ok", f"{whose} links all these {what} by itself.", value=1.0)]
    named = "; ".join(
        f"{part.column} = {part.level} lacks {_spell(missing, places)}" for part, missing in [*lacking.items()][:3]
    )
    more = f"; and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    sentence = (
        f"{len(lacking)} of {len(parts)} context segments do not link all these {what} by themselves ({named}{more}): "
        "a context-dependent curve leans on its shape there."
    )
    return [Finding("segments", "warning", sentence, value=1 - len(lacking) / len(parts))]
