"""Reports of weighing: effective sample size, clipped clicks, and rows with the propensity of another position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from clickharvest.words import clean_text, count


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
        untold: outcomes in rows where the propensity of the click, or of what comes after it, is `cannot tell`.
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
    untold: int

    def __str__(self) -> str:
        how = "by clicks and what comes of them" if self.after_click else "by clicks alone, as you say"
        notes = [f"{self.left_out:,} left out"] * bool(self.left_out)
        notes += [f"{self.clipped:,} clipped"] * (self.clip is not None)
        notes += [f"{self.untold:,} with the state cannot tell"] * bool(self.untold)
        return (
            f"Weighed {count(self.outcomes, 'outcome')} ({clean_text(self.column)}) {how}; the largest weight is "
            f"{self.largest_weight:.4g}. Effective sample size: {self.effective:,.0f}"
            f"{'; ' if notes else ''}{', '.join(notes)}."
        )


@dataclass(frozen=True)
class WeightReport:
    """What weighing did to a log.

    Attributes:
        rows: rows of the log.
        clicks: clicks in them.
        clip: least propensity that a weight is made of; None where nothing is clipped.
        clipped_clicks: clicks whose propensity is below it.
        effective_clicks: effective sample size (Σw)² / Σw² over the clicks.
        largest_weight: the largest weight of a row.
        scale: what the weights were divided by: their mean over the clicks where normalised, otherwise 1.
        trust: `"checked"` where propensities whose state is `cannot tell` were clipped, `"all"` where all were used.
        states: clicks by the state of their position and context in the model: usable, with care, cannot tell.
        untold_rows: rows whose propensity is not their own but that of another position.
        untold_clicks: clicks in those rows.
        untold_positions: the positions of these clicks, or rows if none was clicked.
        untold_where: those positions, or what they stand for, in words.
        lender: the position whose propensity they have, in words; empty where there are several.
        are_places: whether positions are numbers of places.
        outcome: the same of what came of clicks, where that is weighed.
    """

    rows: int
    clicks: int
    clip: float | None
    clipped_clicks: int
    effective_clicks: float
    largest_weight: float
    scale: float
    trust: str = "checked"
    states: Mapping[str, int] = field(default_factory=dict)
    untold_rows: int = 0
    untold_clicks: int = 0
    untold_positions: tuple[int, ...] = ()
    untold_where: str = ""
    lender: str = ""
    are_places: bool = False
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
        return asdict(self) | {"untold_positions": list(self.untold_positions)} | shares

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
        if self.untold_rows:
            checked = self.trust == "checked"
            what = "Cannot tell" if checked else "No estimate"
            clicks = f"{count(self.untold_clicks, 'click')} there get{'s' * (self.untold_clicks == 1)} the weight of"
            others = "similar places" if self.are_places else "the last position above"
            lender = self.lender or f"{others} that the model can tell"
            hint = " (--trust all uses the estimates)" if checked else ""
            lines.append(f"{what} at {self.untold_where}: {clicks} {lender}{hint}.")
        lines += [] if self.outcome is None else [str(self.outcome)]
        return "\n".join(lines)
