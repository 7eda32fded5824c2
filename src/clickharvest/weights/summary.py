"""What weighing did to a log, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from clickharvest.words import clean_text, count, spell_positions


@dataclass(frozen=True)
class OutcomeReport:
    """What weighing did to what came of clicks.

    Attributes:
        column: the column of the outcome.
        after_click: whether s_k is that of a model; otherwise it is 1.
        outcomes: outcomes that are weighed, at most one a click.
        left_out: those on rows without a click, and beyond one a click.
        clip: least propensity that a weight is made of; None where nothing is clipped.
        clipped: outcomes whose propensity is below it.
        effective: effective sample size (Σw)² / Σw² over the outcomes.
        largest_weight: the largest weight of a row.
        scale: what the weights were divided by: their mean over the outcomes where normalised, otherwise 1.
        unsupported: outcomes in rows that have no estimate of their own, be it of the click or after it.
    """

    column: str
    after_click: bool
    outcomes: int
    left_out: int
    clip: float | None
    clipped: int
    effective: float
    largest_weight: float
    scale: float
    unsupported: int

    def __str__(self) -> str:
        how = "by clicks and what comes of them" if self.after_click else "by clicks alone, as you say"
        told = [f"{self.left_out:,} left out"] * bool(self.left_out)
        told += [f"{self.clipped:,} clipped"] * (self.clip is not None)
        told += [f"{self.unsupported:,} without an estimate of their own"] * bool(self.unsupported)
        return (
            f"Weighed {count(self.outcomes, 'outcome')} ({clean_text(self.column)}) {how}; the largest weight is "
            f"{self.largest_weight:.4g}. Effective sample size: {self.effective:,.0f}"
            f"{'; ' if told else ''}{', '.join(told)}."
        )


@dataclass(frozen=True)
class WeightReport:
    """What weighing did to a log.

    Attributes:
        rows: rows of the log.
        clicks: clicks in them.
        clip: least propensity that a weight is made of; None where nothing is clipped.
        clipped_clicks: clicks whose propensity is below it.
        effective_clicks: effective sample size (Σw)² / Σw² over the clicks: as many clicks of equal weight would
            tell as much.
        largest_weight: the largest weight of a row.
        scale: what the weights were divided by: their mean over the clicks where normalised, otherwise 1.
        unsupported_rows: rows at positions without an estimate, which borrowed that of another position.
        unsupported_clicks: clicks in those rows.
        unsupported_positions: those positions.
        unsupported_context_rows: rows whose position has an estimate, but whose context the data of the model do not
            speak of there (`model.support`): their number is what the curve makes of other contexts.
        unsupported_context_clicks: clicks in those rows.
        unsupported_contexts: why, and how many of those rows each.
        unsupported_places: what those positions stand for, in words, where they are numbers of places.
        outcome: the same of what came of clicks, where that is weighed.
    """

    rows: int
    clicks: int
    clip: float | None
    clipped_clicks: int
    effective_clicks: float
    largest_weight: float
    scale: float
    unsupported_rows: int
    unsupported_clicks: int
    unsupported_positions: tuple[int, ...]
    unsupported_context_rows: int = 0
    unsupported_context_clicks: int = 0
    unsupported_contexts: Mapping[str, int] = field(default_factory=dict)
    unsupported_places: str = ""
    outcome: OutcomeReport | None = None

    @property
    def clip_share(self) -> float:
        """Share of the clicks that were clipped."""
        return self.clipped_clicks / self.clicks if self.clicks else 0.0

    @property
    def effective_share(self) -> float:
        """Effective sample size as a share of the clicks."""
        return self.effective_clicks / self.clicks if self.clicks else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        shares = {"clip_share": self.clip_share, "effective_share": self.effective_share}
        return asdict(self) | {"unsupported_positions": list(self.unsupported_positions)} | shares

    def __str__(self) -> str:
        clipped = "No weight is clipped."
        if self.clip is not None:
            clipped = (
                f"Clipped at propensity {self.clip:.4g}: {count(self.clipped_clicks, 'click')} ({self.clip_share:.1%})."
            )
        lines = [
            f"Weighed {count(self.clicks, 'click')} in {count(self.rows, 'row')}; "
            f"the largest weight is {self.largest_weight:.4g}.",
            f"Effective sample size: {self.effective_clicks:,.0f} of {count(self.clicks, 'click')} "
            f"({self.effective_share:.1%}).",
            clipped,
        ]
        if self.unsupported_rows:
            where = f"position{'s' if len(self.unsupported_positions) > 1 else ''}"
            what = f"rows: {self.unsupported_rows:,}, clicks: {self.unsupported_clicks:,}"
            told = self.unsupported_places or f"{where} {spell_positions(self.unsupported_positions)}"
            other = (
                "supported place that is most like it" if self.unsupported_places else "last supported position above"
            )
            lines.append(f"No estimate at {told} ({what}): the one of the {other} is used instead.")
        if self.unsupported_context_rows:
            what = f"rows: {self.unsupported_context_rows:,}, clicks: {self.unsupported_context_clicks:,}"
            lines.append(f"Contexts that are not supported ({what}): the number is what the curve makes of others.")
            lines += [f"  {why}: {count(rows, 'row')}" for why, rows in self.unsupported_contexts.items()]
        lines += [] if self.outcome is None else [str(self.outcome)]
        return "\n".join(lines)
