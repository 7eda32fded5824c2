"""Interventional overlap: how many clicks of common units compare each position, and each pair.

*Effective clicks*: a unit with n clicks and exposure shares π and 1 − π counts n · 4 π (1 − π), all of its clicks if
it was shown at both positions equally often, hardly any if it was almost always shown at one.

*Information*: given its N_u clicks, those of a unit at position k are N_u π_{u,k} on average, π_{u,k} being exposure
times examination, as a share of the unit. Their information on log p is a Laplacian with the weights
W_{kj} = Σ_u N_u π_{u,k} π_{u,j}. For a width a rough p will do: that of paired comparisons of k and j by
Σ_u c_{u,k} E_{u,j} / (E_{u,k} + E_{u,j}) and the same with k and j exchanged, in expectation as p_k to p_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.interventions import linked_positions
from clickharvest.parameters import alike

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.engines import Engine

MAX_LEVELS = 20
"""Values of a context column with a segment each; more make thinner segments."""
BINS = 4
"""Segments of a number with more values."""
STEPS, CLOSE = 50, 1e-6
"""Newton steps at most, none longer than a factor of e, and the size of the last one."""


@dataclass(frozen=True)
class PairOverlap:
    """Common units of two positions.

    Attributes:
        position: the upper position k.
        other: the lower position k'.
        units: units exposed at both, |S_{k,k'}|.
        clicks: their clicks at k.
        other_clicks: their clicks at k'.
        effective_clicks: Σ_u n_u · 4 π_u (1 − π_u), with n_u the unit's clicks at the two positions and π_u the
            share of its exposure at k.
        information: W_{kk'}; 0 unless both positions are linked to the anchor.
    """

    position: int
    other: int
    units: int
    clicks: int
    other_clicks: int
    effective_clicks: float
    information: float


@dataclass(frozen=True)
class PositionOverlap:
    """What is known about one position.

    Attributes:
        position: the position.
        units: intervened units exposed there.
        clicks: their clicks there.
        effective_clicks: Σ_u n_u · 4 π_u (1 − π_u) over those units, π_u the share of exposure there.
        effective_queries: (Σ_q i_q)² / Σ_q i_q², i_q being query q's part of the effective clicks: how many
            equally informative queries they are worth.
        top_query: the query with the largest part.
        top_share: its share.
    """

    position: int
    units: int
    clicks: int
    effective_clicks: float
    effective_queries: float
    top_query: str | int | None
    top_share: float


@dataclass(frozen=True)
class Segment:
    """Whether the interventions of one part of the traffic link the positions by themselves.

    Attributes:
        column: the context column.
        level: its value, or range of values.
        clicks: clicks on intervened units there.
        linked: positions linked to the anchor.
    """

    column: str
    level: str
    clicks: int
    linked: tuple[int, ...]


def pair_overlaps(interventions: ir.Table, engine: Engine, anchor: int) -> list[PairOverlap]:
    """Return the overlap of every pair of positions with common units."""
    pairs = engine.fetch(_pairs(interventions, []).order_by("position", "other"), task="Comparing positions")
    columns = ("position", "other", "clicks", "other_clicks", "won", "lost")
    position, other, clicks, other_clicks, won, lost = (np.array(pairs[name].to_pylist()) for name in columns)
    linked = linked_positions(anchor, position, other, clicks, other_clicks)
    information: dict[tuple[int, int], float] = {}
    if len(linked) > 1:
        examination = _examination(linked, position, other, won, lost)
        tied = engine.fetch(_information(interventions, examination), task="Comparing positions").to_pylist()
        information = {(row["position"], row["other"]): row["information"] for row in tied}
    return [
        PairOverlap(**row, information=information.get((row["position"], row["other"]), 0.0))
        for row in pairs.drop_columns(["won", "lost"]).to_pylist()
    ]


def position_overlaps(interventions: ir.Table, engine: Engine) -> list[PositionOverlap]:
    """Return the overlap of every position, with the part of its dominant query."""
    cells = _cells(interventions, [])
    units = cells.group_by("unit").agg(unit_clicks=cells.clicks.sum(), unit_exposure=cells.exposure.sum())
    joined = cells.inner_join(units, "unit")
    share = joined.exposure / joined.unit_exposure
    informed = joined.select("query", "position", "clicks", part=joined.unit_clicks * 4 * share * (1 - share))
    parts = informed.group_by("position", "query").agg(
        units=informed.count(), clicks=informed.clicks.sum(), part=informed.part.sum()
    )
    by_position = parts.group_by("position").agg(
        units=parts.units.sum().cast("int64"),
        clicks=parts.clicks.sum().cast("int64"),
        effective_clicks=parts.part.sum(),
        squares=(parts.part * parts.part).sum(),
        largest=parts.part.max(),
    )
    top = parts.inner_join(by_position, [parts.position == by_position.position, parts.part == by_position.largest])
    top = top.group_by(top_position=parts.position).agg(top_query=top.query.min())
    table = by_position.inner_join(top, by_position.position == top.top_position).drop("top_position")
    overlaps = []
    for row in engine.fetch(table.order_by("position"), task="Weighing positions").to_pylist():
        squares, largest, known = row.pop("squares"), row.pop("largest"), row["effective_clicks"]
        row |= {} if known > 0 else {"top_query": None}
        effective, share = (known**2 / squares, largest / known) if known > 0 else (0.0, 0.0)
        overlaps.append(PositionOverlap(**row, effective_queries=effective, top_share=share))
    return overlaps


def segments(interventions: ir.Table, engine: Engine, context: tuple[str, ...], anchor: int) -> list[Segment]:
    """Return, for each level of each context column, which positions it links to the anchor by itself."""
    parts = []
    for column in context:
        levelled = interventions.mutate(level=level_of(interventions, column, engine))
        task = f"Comparing positions by {column}"
        pairs = engine.fetch(_pairs(levelled, ["level"]), task=task).to_pylist()
        totals = levelled.group_by("level").agg(clicks=levelled.clicks.sum().cast("int64"))
        for total in engine.fetch(totals.order_by("level"), task=task).to_pylist():
            of_level = [pair for pair in pairs if pair["level"] == total["level"]]
            columns = ("position", "other", "clicks", "other_clicks")
            linked = linked_positions(anchor, *([pair[name] for pair in of_level] for name in columns))
            parts.append(Segment(column, total["level"], total["clicks"], linked))
    return parts


def level_of(table: ir.Table, column: str, engine: Engine, *, weight: str | None = None) -> ir.StringValue:
    """Return an expression for the segment a row is in: the column's value, or its quarter of the range.

    Numbers with more than 20 values are cut at their quartiles, and those that differ by rounding alone are one value;
    of more than 20 texts the 20 most frequent keep their names. Empty values are a segment of their own. Rows are
    counted, or the column `weight` is summed.
    """
    value = table[column]
    if value.type().is_floating():
        value = value.isnan().ifelse(ibis.null(value.type()), value)
    counts = table.group_by(value=value).agg(rows=table.count() if weight is None else table[weight].sum())
    counts = counts.filter(counts.value.notnull()).order_by(ibis.desc("rows"), "value").limit(MAX_LEVELS + 1)
    frequent = engine.fetch(counts, task=f"Looking at {column}")["value"].to_pylist()
    name = value.cast("string")
    if value.type().is_floating() and _is_one_number(table, value, frequent, column, engine):
        name = value.isnull().ifelse(ibis.null("string"), f"{frequent[0]:g}")
    elif len(frequent) > MAX_LEVELS and value.type().is_numeric():
        name = _quartile(table, value, column, engine)
    elif len(frequent) > MAX_LEVELS:
        name = value.isin(frequent[:MAX_LEVELS]).ifelse(name, "(other)")
    return name.fill_null("(empty)")


def _is_one_number(table: ir.Table, value: ir.NumericValue, frequent: list[float], column: str, engine: Engine) -> bool:
    """Return whether numbers that are not all the same differ by rounding alone."""
    if len(frequent) < 2 or not alike(min(frequent), max(frequent)):
        return False
    ends = engine.fetch(table.agg(low=value.min(), high=value.max()), task=f"Looking at {column}").to_pylist()[0]
    return alike(ends["low"], ends["high"])


def _quartile(table: ir.Table, value: ir.NumericValue, column: str, engine: Engine) -> ir.StringValue:
    cuts = table.agg(**{f"cut_{i}": value.quantile(i / BINS) for i in range(1, BINS)})
    edges = sorted(set(engine.fetch(cuts, task=f"Looking at {column}").to_pylist()[0].values()))
    branches = [(value.isnull(), ibis.null("string"))]
    # As many digits as tell them apart: two quarters of one name would be one segment.
    digits = next((n for n in range(6, 17) if len({f"{edge:.{n}g}" for edge in edges}) == len(edges)), 17)
    branches += [(value <= edge, f"<= {edge:.{digits}g}") for edge in edges]
    return ibis.cases(*branches, else_=f"> {edges[-1]:.{digits}g}")


def _cells(interventions: ir.Table, by: list[str]) -> ir.Table:
    return interventions.group_by("unit", "query", "position", *by).agg(
        clicks=interventions.clicks.sum(), exposure=interventions.exposure.sum()
    )


def _pairs(interventions: ir.Table, by: list[str]) -> ir.Table:
    joined = _paired(_cells(interventions, by), by)
    share = joined.exposure / (joined.exposure + joined.other_exposure)
    pairs = joined.select(
        *by,
        "position",
        "clicks",
        "other_clicks",
        other="other_position",
        effective=(joined.clicks + joined.other_clicks) * 4 * share * (1 - share),
        won=joined.clicks * (1 - share),
        lost=joined.other_clicks * share,
    )
    return pairs.group_by("position", "other", *by).agg(
        units=pairs.count(),
        clicks=pairs.clicks.sum().cast("int64"),
        other_clicks=pairs.other_clicks.sum().cast("int64"),
        effective_clicks=pairs.effective.sum(),
        won=pairs.won.sum(),
        lost=pairs.lost.sum(),
    )


def _paired(cells: ir.Table, by: list[str]) -> ir.Table:
    """Return every two cells of a unit, the second one's columns being called other_….

    That of the upper position comes first.
    """
    lower = cells.view()
    same = [cells[key] == lower[key] for key in ("unit", *by)]
    return cells.join(lower, [*same, cells.position < lower.position], rname="other_{name}")


def _information(interventions: ir.Table, examination: dict[int, float]) -> ir.Table:
    """Return W of every two of the positions whose examination is given."""
    cells = _cells(interventions.filter(interventions.position.isin(list(examination))), [])
    cells = cells.mutate(looked_at=cells.exposure * cells.position.cases(*examination.items(), else_=0.0))
    units = cells.group_by("unit").agg(unit_clicks=cells.clicks.sum(), unit_looked_at=cells.looked_at.sum())
    joined = _paired(cells, []).inner_join(units, "unit")
    shares = joined.looked_at * joined.other_looked_at / (joined.unit_looked_at * joined.unit_looked_at)
    tied = joined.select("position", other="other_position", tie=joined.unit_clicks * shares)
    return tied.group_by("position", "other").agg(information=tied.tie.sum())


def _examination(
    linked: tuple[int, ...],
    position: NDArray[np.int64],
    other: NDArray[np.int64],
    won: NDArray[np.float64],
    lost: NDArray[np.float64],
) -> dict[int, float]:
    """Return the examination of linked positions, by maximum likelihood of paired comparisons, 1 where it is largest.

    Of won + lost comparisons of k and j, a share of p_k / (p_k + p_j) is expected to be won. That positions are linked
    is the condition of a finite maximum.
    """
    both = np.isin(position, linked) & np.isin(other, linked)
    upper, lower = (np.searchsorted(linked, part[both]) for part in (position, other))
    wins = np.zeros((len(linked), len(linked)))
    wins[upper, lower], wins[lower, upper] = won[both], lost[both]
    log_p = np.zeros(len(linked))
    for _ in range(STEPS):
        share = 1 / (1 + np.exp(log_p - log_p[:, None]))
        ties = (wins + wins.T) * share * share.T
        score = (wins - (wins + wins.T) * share).sum(axis=1)
        step = np.linalg.pinv(np.diag(ties.sum(axis=1)) - ties, hermitian=True) @ score
        log_p += step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < CLOSE:
            break
    return dict(zip(linked, np.exp(log_p - log_p.max()).tolist(), strict=True))
