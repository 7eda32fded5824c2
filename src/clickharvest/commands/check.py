"""The command `check`: whether a log reveals examination, and how far off the curve would be."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from clickharvest.commands.check_options import CheckOptions
from clickharvest.commands.harvest_options import HarvestOptions
from clickharvest.commands.options import AnchorOption, JsonFlag, LogOptions
from clickharvest.commands.outcomes import OutcomeOption, outcome_findings, read_with_outcomes
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.threads import keep_to_one_thread
from clickharvest.errors import ClickharvestWarning
from clickharvest.parameters import MOST_CLICKS

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Finding
    from clickharvest.checks.diagnosing import Diagnosis
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

OUTCOME = ("outcomes", "outcome")
"""The findings on what comes of clicks, which are what --outcome asks for."""


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
    nothing tells.

    Examples:

      clickharvest check clicks.parquet

      clickharvest check clicks.csv --query q --position rank --context device,country
    """
    keep_to_one_thread()
    from clickharvest.checks.diagnosing import diagnose
    from clickharvest.commands.terminal import position_table, print_diagnosis, screen
    from clickharvest.harvesting.reading import is_interventions

    checks.arguments()
    data: ClickLog | Interventions
    more: Sequence[Finding] = ()
    if outcome is not None:
        data, after = read_with_outcomes(log, outcome)
        diagnosis = diagnose(data, **units.arguments(log), anchor=anchor, traffic=units.shares)
        more = outcome_findings(after, units, diagnosis.anchor)
    elif is_interventions(log.source):
        data = units.read_interventions(log)
        diagnosis = diagnose(data, anchor=anchor)
    else:
        data = log.read(show_progress)
        diagnosis = diagnose(data, **units.arguments(log), anchor=anchor, traffic=units.shares)
    fitted = None
    if diagnosis.identified:
        how = {} if is_interventions(log.source) else units.arguments(log)
        fitted = _fitted(data, diagnosis, checks, how, more)
    if as_json:
        found = {"findings": [finding.to_dict() for finding in more]} if fitted is None else fitted[2].info()
        told = diagnosis.to_dict()
        tell(json.dumps(told | {"tests": told["findings"]} | found, indent=2))
    elif fitted is None:
        print_diagnosis(diagnosis, verbose=checks.verbose)
    else:
        if checks.verbose:
            screen().print(position_table(diagnosis))
        _print(data, *fitted, checks.verbose)
    if not diagnosis.identified or any(finding.severity == "decisive" for finding in more):
        raise typer.Exit(3)


def _fitted(
    data: ClickLog | Interventions,
    diagnosis: Diagnosis,
    checks: CheckOptions,
    how: dict[str, Any],
    more: Sequence[Finding],
) -> tuple[Interventions, Propensities, Checked]:
    """Return what was compared, the curve that `fit` fits, and what checking it finds, the log's own tests first."""
    from clickharvest.click_models.examination import Examination
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.harvesting.large_logs import thin

    model = Examination(anchor=diagnosis.anchor, progress=show_progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # findings tell the same
        if isinstance(data, Interventions):
            interventions, unit = thin(data.clicked(), MOST_CLICKS), data.unit_kind
        else:
            interventions = model.harvest(data, **how, max_clicks=MOST_CLICKS)
            unit = how["unit"]
        found = model.within(interventions).fit(interventions)
    tests = [finding for finding in diagnosis.findings if finding.severity != "ok"]
    checked = checks.check(data, found, unit=unit, further=[*more, *tests], interventions=interventions)
    return interventions, found, checked


def _print(
    data: ClickLog | Interventions,
    interventions: Interventions,
    model: Propensities,
    checked: Checked,
    verbose: bool,
) -> None:
    """Print what `fit` prints, and every check with `verbose`."""
    from clickharvest.commands.one_screen import every_finding, spell_fit, wrapped
    from clickharvest.harvesting.interventions import Interventions

    log = None if isinstance(data, Interventions) else data
    tell(spell_fit(model, checked.budget, checked.findings, log=log, interventions=interventions))
    if "outcomes" in {finding.kind for finding in checked.findings} and not verbose:
        tell("\n".join(wrapped(" ".join(finding.sentence for finding in checked.findings if finding.kind in OUTCOME))))
    if verbose:
        tell(f"\n{every_finding(checked.findings)}\n")
    words = [word for word in sys.argv[2:] if word not in ("--verbose", "--json")]
    tell(f"next: clickharvest fit {shlex.join([*words, '-o', 'model.safetensors'])}")
