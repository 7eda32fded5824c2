"""The command `report`: from a model, and the log behind it, to one page to look at and to pass on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.check_options import CheckOptions
from clickharvest.commands.harvest_options import HarvestOptions
from clickharvest.commands.inputs import place_to_write
from clickharvest.commands.options import (
    COLUMNS,
    JsonFlag,
    LevelOption,
    LogOptions,
    ModelPath,
    OutputPath,
    option,
)
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.threads import keep_to_one_thread
from clickharvest.commands.weigh import place_of
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.checks import Checked
    from clickharvest.model.propensities import Propensities
    from clickharvest.report.log_summary import LogSummary


@dataclass(frozen=True)
class ReportLogOptions(LogOptions):
    """Which log to read beside the model; none by default."""

    source: str = option(
        "The log the model was fitted on, to check the model against. Context columns are those of the model.",
        "LOG", "", flags=("--log",), panel=COLUMNS,
    )  # fmt: skip


def report(
    model: ModelPath,
    log: ReportLogOptions,
    units: HarvestOptions,
    asked: CheckOptions,
    output: OutputPath = None,
    title: Annotated[str | None, option("Title of the page.")] = None,
    level: LevelOption = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Write one HTML page on a model: how far off it can be, why, what to do, and curves to play with.

    The page needs no network. With --log the model is checked against its log; without, the page has the checks of fit.

    Example:

      clickharvest report model.safetensors --log clicks.parquet -o report.html
    """
    keep_to_one_thread()
    from clickharvest.checks import findings_of
    from clickharvest.click_models.loading import load_model
    from clickharvest.model.cautions import outcome_of
    from clickharvest.model.propensities import Propensities
    from clickharvest.report.content import checked_of
    from clickharvest.report.page import TITLES, write_report

    sources = [model, *log.sources, units.rankings]
    output = place_to_write(output, "the report", "report.html", sources)
    of_log = log != ReportLogOptions() or units != HarvestOptions() or replace(asked, verbose=False) != CheckOptions()
    if not log.source and of_log:
        raise InputError("options of a log go with --log: name the log that the model shall be checked against")
    fitted: Any = load_model(model)
    if not isinstance(fitted, Propensities):
        if log.source:
            raise InputError(
                f"--log {log.source}: the page of a model other than examination tells of the model alone; leave it out"
            )
    elif log.context is None and fitted.encoder is not None:
        log = replace(log, context=list(fitted.encoder.columns))
    outcome, summary = outcome_of(fitted), None
    if isinstance(fitted, Propensities) and log.source:
        log = replace(log, place=place_of(log, fitted))
        summary = _summary(fitted, log, units, asked)
    size = write_report(
        output,
        fitted,
        summary,
        title=title or (TITLES[fitted.kind] if outcome is None else f"{outcome} after a click, by position"),
        level=level,
        name=model.name,
        made=_today(),
        commands=rerun_commands(str(model), log, units, asked, str(output), outcome is None) if log.source else {},
    )
    checked = checked_of(fitted, summary)
    if as_json:
        kept = [finding.to_dict() for finding in findings_of(fitted)]
        told = {"budget": None, "findings": kept} if checked is None else checked.info()
        tell(json.dumps({"file": str(output), "bytes": size, "log": log.source or None} | told))
        return
    tell("\n".join(_spell(checked, model, asked.verbose)))
    _tell_page(output, size)


def _spell(checked: Checked | None, model: Path, verbose: bool) -> Iterator[str]:
    """Yield the lines on the budget, and what is wrong; all findings if asked for."""
    from clickharvest.commands.one_screen import every_finding, problems, spell_budget, wrapped

    if checked is None:
        command = shlex.join(["clickharvest", "report", str(model)])
        yield from wrapped("Nothing was checked: how far off the curve can be is not known.")
        yield f"To check it: {command} --log LOG -o report.html"
        return
    yield from spell_budget(checked.budget)
    yield from [every_finding(checked.findings)] if verbose else problems(checked.findings)


def _tell_page(output: Path, size: int) -> None:
    tell(f"Report: {output} ({size / 1000:,.0f} kB, one file that needs no network)")


def _today() -> str:
    today = date.today()
    return f"{today.day} {today:%B %Y}"


def rerun_commands(
    path: str,
    log: ReportLogOptions,
    units: HarvestOptions,
    asked: CheckOptions,
    output: str,
    of_examination: bool = True,
) -> dict[str, str]:
    """Return the commands that make the report and the weights of a model, by their names.

    Example:
        >>> log = ReportLogOptions("my log.csv", query="q")
        >>> for command in rerun_commands("m.safetensors", log, HarvestOptions(), CheckOptions(), "r.html").values():
        ...     print(command)
        clickharvest report m.safetensors --log 'my log.csv' --query q -o r.html
        clickharvest weigh 'my log.csv' m.safetensors --query q --clip auto -o weighted.parquet
    """
    from clickharvest.harvesting.reading import is_interventions

    roles, others = _flags(log), [*_flags(units), *_flags(replace(asked, verbose=False))]
    commands = {"report": ["report", path, "--log", log.source, *roles, *others, "-o", output]}
    if of_examination and not is_interventions(log.source):
        commands["weigh"] = ["weigh", log.source, path, *roles, "--clip", "auto", "-o", "weighted.parquet"]
    return {name: shlex.join(["clickharvest", *words]) for name, words in commands.items()}


def _summary(model: Propensities, log: ReportLogOptions, units: HarvestOptions, asked: CheckOptions) -> LogSummary:
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.logs.outcomes import after_click
    from clickharvest.report.log_summary import summarise_log

    options = asked.arguments() | {"name": Path(log.source).name or log.source, "progress": show_progress}
    options |= {name: None for name in ("tolerance", "positions") if getattr(asked, name) is None}  # as the model's
    options |= {"folds": None} if asked.fold is None else {}
    if is_interventions(log.source):
        return summarise_log(units.read_interventions(log), model, **options)
    harvest = units.arguments(log)
    clicks = log.read(show_progress)
    if isinstance(outcome := model.info.get("outcome"), str):
        clicks = after_click(clicks, outcome).log
    return summarise_log(clicks, model, **harvest, **options)


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
