"""The command `check`: whether a log reveals examination."""

from __future__ import annotations

import json
from dataclasses import replace

import typer

from clickharvest.commands.harvest_options import HarvestOptions
from clickharvest.commands.options import AnchorOption, JsonFlag, LogOptions, with_options
from clickharvest.commands.outcomes import OutcomeOption, outcome_findings, read_with_outcomes
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress


@with_options
def check(
    log: LogOptions,
    units: HarvestOptions,
    outcome: OutcomeOption = None,
    anchor: AnchorOption = "1",
    as_json: JsonFlag = False,
) -> None:
    """Tell whether a log reveals examination, and test the assumptions.

    Reads a click log, or a file of interventions. Exit code 3: some positions cannot be linked. The last line tells
    about how much more traffic would give ±10 % at every position; clickharvest plan tells it by position and segment.
    With --outcome it also tests whether what comes of a click depends on the position; exit code 3 if nothing tells.

    Examples:

      clickharvest check clicks.parquet

      clickharvest check clicks.csv --query q --position rank --context device,country
    """
    from clickharvest.commands.terminal import print_diagnosis
    from clickharvest.diagnosis.diagnosing import diagnose
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.planning.advising import advice

    if outcome is not None:
        clicks, after = read_with_outcomes(log, outcome)
        diagnosis = diagnose(clicks, **units.arguments(log), anchor=anchor, traffic=units.shares)
        diagnosis = replace(
            diagnosis, findings=(*diagnosis.findings, *outcome_findings(after, units, diagnosis.anchor))
        )
    elif is_interventions(log.source):
        diagnosis = diagnose(units.read_interventions(log), anchor=anchor)
    else:
        diagnosis = diagnose(log.read(show_progress), **units.arguments(log), anchor=anchor, traffic=units.shares)
    if as_json:
        tell(json.dumps(diagnosis.to_dict() | {"advice": advice(diagnosis)}, indent=2))
    else:
        print_diagnosis(diagnosis, advice(diagnosis))
    if not diagnosis.identified or any(finding.status == "blocking" for finding in diagnosis.findings):
        raise typer.Exit(3)
