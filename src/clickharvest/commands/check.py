"""The command `check`: whether a log reveals examination, and how far off the curve would be."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from clickharvest.commands.options import (
    AnchorOption,
    CheckOptions,
    HarvestOptions,
    JsonFlag,
    LogOptions,
    OutcomeOption,
)
from clickharvest.commands.outcomes import outcome_findings, read_with_outcomes
from clickharvest.commands.output import tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import ClickharvestWarning
from clickharvest.parameters import MOST_CLICKS

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Finding
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities


def check(
    log: LogOptions,
    units: HarvestOptions,
    checks: CheckOptions,
    outcome: OutcomeOption = None,
    anchor: AnchorOption = "1",
    as_json: JsonFlag = False,
) -> None:
    """Tell whether a log reveals examination, and how far off the curve would be.

    Reads a click log, or a file of interventions, and fits the curve that fit would fit. Exit code 3: some positions
    cannot be linked. With --outcome it also tests whether what comes of a click depends on the position; exit code 3 if
    the log cannot tell.

    Examples:

      clickharvest check clicks.parquet

      clickharvest check clicks.csv --query q --position rank --context device,country
    """
    from clickharvest.checks.diagnosing import diagnose
    from clickharvest.commands.tables import position_table, print_diagnosis, screen
    from clickharvest.harvesting.interventions import Interventions

    check_options = checks.arguments()
    data, after = (units.read(log), None) if outcome is None else read_with_outcomes(log, outcome)
    harvesting = {} if isinstance(data, Interventions) else units.arguments(log)
    options: Any = {} if isinstance(data, Interventions) else {"traffic": units.shares, **harvesting}
    diagnosis = diagnose(data, anchor=anchor, **options)
    of_outcome = [] if after is None else outcome_findings(after, units, diagnosis.anchor)
    record = diagnosis.to_dict() | {"tests": diagnosis.to_dict()["findings"]}
    if not diagnosis.identified:
        if as_json:
            tell_json(record | {"findings": [finding.to_dict() for finding in of_outcome]})
        else:
            print_diagnosis(diagnosis, verbose=checks.verbose)
        raise typer.Exit(3)
    tests = [finding for finding in diagnosis.findings if finding.severity != "ok"]
    interventions, model, checked = _fit_and_check(
        data, harvesting, diagnosis.anchor, check_options | {"further": [*of_outcome, *tests]}
    )
    if as_json:
        tell_json(record | checked.info())
    else:
        if checks.verbose:
            screen().print(position_table(diagnosis))
        _print(data, interventions, model, checked, of_outcome, checks.verbose)
    if any(finding.severity == "decisive" for finding in of_outcome):
        raise typer.Exit(3)


def _fit_and_check(
    data: ClickLog | Interventions, harvesting: dict[str, Any], anchor: int, check_options: dict[str, Any]
) -> tuple[Interventions, Propensities, Checked]:
    """Return what was compared, the curve that `fit` fits, and what checking it finds."""
    from clickharvest.checks import check_fit
    from clickharvest.click_models.examination import Examination
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.harvesting.large_logs import thin

    examination = Examination(anchor=anchor, progress=show_progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # the findings say the same
        if isinstance(data, Interventions):
            interventions, unit = thin(data.clicked(), MOST_CLICKS), data.unit_kind
        else:
            interventions = examination.harvest(data, **harvesting, max_clicks=MOST_CLICKS)
            unit = harvesting["unit"]
        model = examination.within(interventions).fit(interventions)
    with show_progress("Checking"):
        return interventions, model, check_fit(data, model, unit=unit, interventions=interventions, **check_options)


def _print(
    data: ClickLog | Interventions,
    interventions: Interventions,
    model: Propensities,
    checked: Checked,
    of_outcome: Sequence[Finding],
    verbose: bool,
) -> None:
    """Print what `fit` prints, and every check with `verbose`."""
    from clickharvest.commands.text import every_finding, fit_screen, wrapped
    from clickharvest.harvesting.interventions import Interventions

    log = None if isinstance(data, Interventions) else data
    tell(fit_screen(model, checked.budget, checked.findings, log=log, interventions=interventions))
    if of_outcome and not verbose:
        tell("\n".join(wrapped(" ".join(finding.sentence for finding in of_outcome))))
    if verbose:
        tell(f"\n{every_finding(checked.findings)}\n")
    words = [word for word in sys.argv[2:] if word not in ("--verbose", "--json")]
    tell(f"next: clickharvest fit {shlex.join([*words, '-o', 'model.safetensors'])}")
