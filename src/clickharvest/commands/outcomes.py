"""What came of clicks, such as purchases: the harvest after the click, and what it shows."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from clickharvest.commands.options import QUERY, HarvestOptions, LogOptions
from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from clickharvest.parameters import MOST_CLICKS
from clickharvest.words import clean_text, name_positions

if TYPE_CHECKING:
    from clickharvest.checks import Finding
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.outcomes import AfterClick

WEAK = 0.05
"""p-value below which a warning says that the outcome depends on the position."""


def read_with_outcomes(log: LogOptions, outcome: str) -> tuple[ClickLog, AfterClick]:
    """Return the log, and what came of its clicks."""
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.logs.outcomes import after_click

    if is_interventions(log.source):
        raise InputError(f"--outcome {outcome}: {log.source} holds interventions, which have no outcomes; read the log")
    clicks = log.read()
    return clicks, after_click(clicks, outcome)


def harvest_outcomes(
    after: AfterClick,
    units: HarvestOptions,
    anchor: int,
    *,
    cluster: str = QUERY,
    clicked_only: bool = True,
    max_clicks: int = MOST_CLICKS,
) -> Interventions:
    """Harvest what came of clicks; the exposures of results after the click are their clicks, whatever the design."""
    from clickharvest.estimation.sample import supported_positions
    from clickharvest.harvesting.collecting import harvest

    try:
        interventions = harvest(
            after.log, unit=units.unit_kind, max_position=units.max_position, cluster=cluster,
            clicked_only=clicked_only, max_clicks=max_clicks,
        )  # fmt: skip
        supported_positions(interventions, anchor)
    except NotIdentifiedError:
        raise NotIdentifiedError(
            f"{clean_text(after.column)} after a click cannot be compared with that at position {anchor}: no result "
            "was clicked both there and elsewhere and led to it both times; a longer log, fewer context columns or "
            "--unit query would help"
        ) from None
    return interventions


def outcome_findings(after: AfterClick, units: HarvestOptions, anchor: int) -> list[Finding]:
    """Return how many outcomes there are, which positions they link, and whether they depend on the position."""
    from clickharvest.checks import Finding
    from clickharvest.checks.outcome import outcome_and_position
    from clickharvest.estimation.sample import supported_positions

    column = clean_text(after.column)
    left_out = f" ({after.left_out})" if after.left_out else ""
    counts = f"{after.outcomes:,} of {after.clicks:,} clicks led to {column}{left_out}"
    try:
        interventions = harvest_outcomes(after, units, anchor)
    except NotIdentifiedError as error:
        return [Finding("outcomes", "decisive", f"{counts}, but {error}.")]
    linked = name_positions(supported_positions(interventions, anchor))
    return [
        Finding("outcomes", "note" if left_out else "ok", f"{counts}; clicked results link {linked}."),
        outcome_and_position(interventions, anchor=anchor, outcome=column),
    ]


def warn_of_dependence(log: ClickLog, outcome: str, anchor: int) -> None:
    """Warn where the outcome of a click depends on the position, or where the log cannot tell."""
    from clickharvest.logs.outcomes import after_click

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarvestWarning)  # weighing has said what is left out
        *_, dependence = outcome_findings(after_click(log, outcome), HarvestOptions(), anchor)
    if dependence.p is None or dependence.p < WEAK:
        warnings.warn(f"--after-click same: {dependence.sentence}", HarvestWarning, stacklevel=2)
