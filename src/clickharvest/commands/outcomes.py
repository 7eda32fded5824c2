"""What came of clicks, on the command line: the option, the harvest after the click, and what it finds."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.options import COLUMNS, QUERY, LogOptions, option
from clickharvest.commands.progress import show_progress
from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from clickharvest.parameters import MOST_CLICKS
from clickharvest.words import clean_text, name_positions

if TYPE_CHECKING:
    from clickharvest.checks import Finding
    from clickharvest.commands.harvest_options import HarvestOptions
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.outcomes import AfterClick

WEAK = 0.05
"""p-value from which on a warning tells that the outcome depends on the position."""

OutcomeOption = Annotated[
    str | None,
    option("What came of clicks, such as purchase: 0/1, counts.", "COLUMN", panel=COLUMNS),
]


def read_with_outcomes(log: LogOptions, outcome: str) -> tuple[ClickLog, AfterClick]:
    """Return the log, and what came of its clicks."""
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.logs.outcomes import after_click

    if is_interventions(log.source):
        raise InputError(f"--outcome {outcome}: {log.source} holds interventions, which have no outcomes; read the log")
    clicks = log.read(show_progress)
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
    """Return what `check` says of outcomes: how many there are, what links positions, and whether position matters."""
    from clickharvest.checks import Finding
    from clickharvest.checks.outcome import outcome_and_position
    from clickharvest.estimation.sample import supported_positions

    column = clean_text(after.column)
    told = f"{after.outcomes:,} of {after.clicks:,} clicks led to {column}"
    more = f" ({after.left_out})" if after.left_out else ""
    try:
        interventions = harvest_outcomes(after, units, anchor)
    except NotIdentifiedError as error:
        return [Finding("outcomes", "decisive", f"{told}{more}, but {error}.")]
    linked = supported_positions(interventions, anchor)
    sentence = f"{told}{more}; clicked results link {name_positions(linked)}."
    return [
        Finding("outcomes", "note" if more else "ok", sentence),
        outcome_and_position(interventions, anchor=anchor, outcome=column),
    ]


def warn_of_dependence(log: ClickLog, outcome: str, anchor: int) -> None:
    """Warn where a log sees that what comes of a click depends on the position, or cannot tell."""
    from clickharvest.commands.harvest_options import HarvestOptions
    from clickharvest.logs.outcomes import after_click

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarvestWarning)  # what is left out has been told
        *_, found = outcome_findings(after_click(log, outcome), HarvestOptions(), anchor)
    if found.p is None or found.p < WEAK:
        warnings.warn(f"--after-click same: {found.sentence}", HarvestWarning, stacklevel=2)


def outcome_info(after: AfterClick) -> dict[str, Any]:
    """Return what a model keeps of the outcome that it is of."""
    return {"outcome": after.column, "outcomes": after.to_dict()}
