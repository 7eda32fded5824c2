"""The command `report`: from a model, and the log behind it, to one page to look at and to pass on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.declaring import option
from clickharvest.commands.options import (
    COLUMNS,
    CheckOptions,
    HarvestOptions,
    JsonFlag,
    LevelOption,
    LogOptions,
    ModelPath,
    OutputPath,
    flags_of,
)
from clickharvest.commands.output import place_to_write, tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.checks import Checked
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
    checks: CheckOptions,
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
    from clickharvest.checks import findings_of
    from clickharvest.click_models.base import load_model
    from clickharvest.model.cautions import outcome_of
    from clickharvest.report.content import checked_of
    from clickharvest.report.page import write_report

    output = place_to_write(output, "the report", "report.html", [model, *log.sources, units.rankings])
    silent_checks = replace(checks, verbose=False)
    of_log = log != ReportLogOptions() or units != HarvestOptions() or silent_checks != CheckOptions()
    if not log.source and of_log:
        raise InputError("options of a log go with --log: name the log that the model shall be checked against")
    fitted: Any = load_model(model)
    summary, commands = None, {}
    if log.source:
        log = log.with_columns_of(fitted, and_others=True)
        summary = _summary(fitted, log, units, checks)
        of_examination = outcome_of(fitted) is None
        commands = rerun_commands(str(model), log, units, silent_checks, str(output), of_examination)
    made = f"{date.today().day} {date.today():%B %Y}"
    size = write_report(
        output, fitted, summary, title=title or "", level=level, name=model.name, made=made, commands=commands
    )
    checked = checked_of(fitted, summary)
    if as_json:
        findings = [finding.to_dict() for finding in findings_of(fitted)]
        checks_found = {"budget": None, "findings": findings} if checked is None else checked.info()
        tell_json({"file": str(output), "bytes": size, "log": log.source or None} | checks_found)
        return
    tell("\n".join(_lines(checked, model, checks.verbose)))
    tell(f"Report: {output} ({size / 1000:,.0f} kB, one file that needs no network)")


def _lines(checked: Checked | None, model: Path, verbose: bool) -> Iterator[str]:
    """Yield the lines on the budget, and what is wrong; all findings if check_options for."""
    from clickharvest.commands.text import NOT_CHECKED, budget_lines, every_finding, problems, wrapped

    if checked is None:
        command = shlex.join(["clickharvest", "report", str(model)])
        yield from wrapped(NOT_CHECKED)
        yield f"To check it: {command} --log LOG -o report.html"
        return
    yield from budget_lines(checked.budget)
    yield from [every_finding(checked.findings)] if verbose else problems(checked.findings)


def rerun_commands(
    path: str,
    log: ReportLogOptions,
    units: HarvestOptions,
    checks: CheckOptions,
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

    roles = flags_of(log)
    words = ["report", path, "--log", log.source, *roles, *flags_of(units), *flags_of(checks), "-o", output]
    commands = {"report": words}
    if of_examination and not is_interventions(log.source):
        commands["weigh"] = ["weigh", log.source, path, *roles, "--clip", "auto", "-o", "weighted.parquet"]
    return {name: shlex.join(["clickharvest", *words]) for name, words in commands.items()}


def _summary(model: Any, log: ReportLogOptions, units: HarvestOptions, checks: CheckOptions) -> LogSummary:
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.outcomes import after_click
    from clickharvest.report.log_summary import summarise_log

    check_options = checks.arguments()
    given = {"tolerance": checks.tolerance, "positions": checks.positions, "folds": checks.fold}
    options: dict[str, Any] = {
        name: None if given[name] is None else check_options[name] for name in check_options
    }  # None: as the model has it
    options |= {"name": Path(log.source).name or log.source, "progress": show_progress}
    data = units.read(log)
    if isinstance(data, Interventions):
        return summarise_log(data, model, **options)
    if (outcome := model.fit_info.outcome) is not None:
        data = after_click(data, outcome).log
    return summarise_log(data, model, **units.arguments(log), **options)
