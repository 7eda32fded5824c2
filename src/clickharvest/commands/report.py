"""The command `report`: from a model, and the log behind it, to one page to look at and to pass on."""

from __future__ import annotations

import json
import shlex
from dataclasses import MISSING, dataclass, fields, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickharvest.commands.harvest_options import HarvestOptions
from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import (
    COLUMNS,
    JsonFlag,
    LevelOption,
    LogOptions,
    ModelPath,
    OutputPath,
    with_options,
)
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.threads import keep_to_one_thread
from clickharvest.commands.weigh import place_of
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.click_models.browsing.fitted import BrowsingPropensities
    from clickharvest.click_models.reading import ReadingPropensities
    from clickharvest.model.propensities import Propensities
    from clickharvest.report.evidence import Evidence

ENDINGS = (".html", ".htm")


@dataclass(frozen=True)
class ReportLogOptions(LogOptions):
    """Which log to read beside the model; none by default."""

    source: Annotated[
        str,
        typer.Option(
            "--log",
            metavar="LOG",
            help="The log the model was fitted on, or its interventions; adds what it identifies and checks. "
            "Context columns are those of the model.",
            rich_help_panel=COLUMNS,
            show_default=False,
        ),
    ] = ""


@with_options
def report(
    model: ModelPath,
    log: ReportLogOptions,
    units: HarvestOptions,
    output: OutputPath = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.", show_default=False)] = None,
    level: LevelOption = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Write one HTML page on a model: a verdict, curves to play with, checks, how to use it.

    The page needs no network. With --log it also tells what the log identifies, and compares with simpler estimates.

    Example:

      clickharvest report model.safetensors --log clicks.parquet -o report.html
    """
    keep_to_one_thread()
    from clickharvest.click_models import AffineLevels, AffineModel
    from clickharvest.click_models.browsing.fitted import BrowsingPropensities
    from clickharvest.click_models.loading import load_model
    from clickharvest.click_models.reading import ReadingPropensities
    from clickharvest.commands.terminal import screen
    from clickharvest.model.cautions import outcome_of
    from clickharvest.model.loading import load_propensities
    from clickharvest.report.page import TITLE, write_report
    from clickharvest.report.verdict import judge

    if output is None:
        raise InputError("nowhere to write the report: name a file with -o report.html")
    if output.suffix.lower() not in ENDINGS:
        raise InputError(f"a report is an HTML file: -o {output} should end in .html")
    refuse_overwriting(output, [model, *log.sources, units.rankings])
    if not log.source and (log != ReportLogOptions() or units != HarvestOptions()):
        raise InputError("options of a log go with --log: name the log that the page shall tell about")
    fitted = load_model(model)
    if isinstance(fitted, AffineModel | AffineLevels):
        _report_affine(fitted, model, log, output, title, level, as_json)
        return
    if isinstance(fitted, BrowsingPropensities | ReadingPropensities):
        _report_browsing(fitted, model, log, output, title, level, as_json)
        return
    loaded = load_propensities(model)
    if log.context is None and loaded.encoder is not None:
        log = replace(log, context=list(loaded.encoder.columns))
    log = replace(log, place=place_of(log, loaded))
    outcome = outcome_of(loaded)
    evidence = _evidence(loaded, log, units) if log.source else None
    today = date.today()
    size = write_report(
        output,
        loaded,
        evidence,
        title=title or (TITLE if outcome is None else f"{outcome} after a click, by position"),
        level=level,
        name=model.name,
        made=f"{today.day} {today:%B %Y}",
        commands=rerun_commands(str(model), log, units, str(output), outcome is None) if log.source else {},
    )
    verdict = judge(loaded, evidence.grounds if evidence else None, level=level)
    if as_json:
        told = {"file": str(output), "bytes": size, "log": log.source or None, "verdict": verdict.to_dict()}
        tell(json.dumps(told))
        return
    screen().print(f"Verdict: {verdict}")
    tell(f"Report: {output} ({size / 1000:,.0f} kB, one file that needs no network)")
    if not log.source:
        tell("It says nothing about the log: add --log LOG to tell what the log identifies.")


def _report_affine(
    fitted: AnyAffine,
    model: Path,
    log: ReportLogOptions,
    output: Path,
    title: str | None,
    level: float,
    as_json: bool,
) -> None:
    """Write the page of an affine model."""
    from clickharvest.report.affine import TITLE, write_affine_report

    if log.source:
        raise InputError(f"--log {log.source}: the page of an affine model tells of the model alone; leave it out")
    today = date.today()
    weigh = shlex.join(["clickharvest", "weigh", "clicks.parquet", str(model), "-o", "corrected.parquet"])
    told = {"name": model.name, "made": f"{today.day} {today:%B %Y}", "weigh": weigh}
    _tell_page(output, write_affine_report(output, fitted, title=title or TITLE, level=level, **told), None, as_json)


def _tell_page(output: Path, size: int, log: str | None, as_json: bool) -> None:
    if as_json:
        tell(json.dumps({"file": str(output), "bytes": size, "log": log}))
    else:
        tell(f"Report: {output} ({size / 1000:,.0f} kB, one file that needs no network)")


def _report_browsing(
    fitted: BrowsingPropensities | ReadingPropensities,
    model: Path,
    log: ReportLogOptions,
    output: Path,
    title: str | None,
    level: float,
    as_json: bool,
) -> None:
    """Write the page of a browsing or reading model; of a log it tells whether clicks above change clicks below."""
    from clickharvest.diagnosis.cascade import clicks_above
    from clickharvest.report.browsing import TITLE, write_browsing_report

    findings = clicks_above(log.read(show_progress)) if log.source else []
    own = replace(log, source=log.source or "clicks.parquet")
    today = date.today()
    size = write_browsing_report(
        output,
        fitted,
        findings,
        title=title or TITLE,
        level=level,
        name=model.name,
        made=f"{today.day} {today:%B %Y}",
        weigh=rerun_commands(str(model), own, HarvestOptions(), str(output))["weigh"],
    )
    _tell_page(output, size, log.source or None, as_json)


def rerun_commands(
    path: str, log: ReportLogOptions, units: HarvestOptions, output: str, of_examination: bool = True
) -> dict[str, str]:
    """Return the commands that make the report and the weights of a model, by their names.

    Example:
        >>> log = ReportLogOptions("my log.csv", query="q")
        >>> for command in rerun_commands("m.safetensors", log, HarvestOptions(), "r.html").values():
        ...     print(command)
        clickharvest report m.safetensors --log 'my log.csv' --query q -o r.html
        clickharvest weigh 'my log.csv' m.safetensors --query q --clip auto -o weighted.parquet
    """
    from clickharvest.harvesting.reading import is_interventions

    roles, harvest = _flags(log), _flags(units)
    commands = {"report": ["report", path, "--log", log.source, *roles, *harvest, "-o", output]}
    if of_examination and not is_interventions(log.source):
        commands["weigh"] = ["weigh", log.source, path, *roles, "--clip", "auto", "-o", "weighted.parquet"]
    return {name: shlex.join(["clickharvest", *words]) for name, words in commands.items()}


def _evidence(model: Propensities, log: ReportLogOptions, units: HarvestOptions) -> Evidence:
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.logs.outcomes import after_click
    from clickharvest.report.evidence import gather_evidence

    name = Path(log.source).name or log.source
    if is_interventions(log.source):
        return gather_evidence(units.read_interventions(log), model, name=name, progress=show_progress)
    options = units.arguments(log)
    clicks = log.read(show_progress)
    if isinstance(outcome := model.info.get("outcome"), str):
        clicks = after_click(clicks, outcome).log
    return gather_evidence(clicks, model, name=name, traffic=units.shares, progress=show_progress, **options)


def _flags(options: Any) -> list[str]:
    """Return the options that differ from their defaults, as one types them."""
    words = []
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name == "source" or field.default is MISSING or value in (field.default, []):
            continue
        text = ",".join(value) if isinstance(value, list) else str(value.value if isinstance(value, Enum) else value)
        words += [f"--{field.name.replace('_', '-')}", text]
    return words
