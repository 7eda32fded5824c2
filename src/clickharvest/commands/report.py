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

from clickharvest.commands.options import (
    COLUMNS,
    HarvestOptions,
    JsonFlag,
    LogOptions,
    ModelPath,
    OutputPath,
    with_options,
)
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError

if TYPE_CHECKING:
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
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Write one HTML page on a model: the answer, curves to play with, checks, how to use it.

    The page needs no network. With --log it also tells what the log identifies, and compares with simpler estimates.

    Example:

      clickharvest report model.safetensors --log clicks.parquet -o report.html
    """
    from clickharvest.model.propensities import load_propensities
    from clickharvest.report.page import TITLE, write_report

    if output is None:
        raise InputError("nowhere to write the report: name a file with -o report.html")
    if output.suffix.lower() not in ENDINGS:
        raise InputError(f"a report is an HTML file: -o {output} should end in .html")
    loaded = load_propensities(model)
    if log.context is None and loaded.encoder is not None:
        log = replace(log, context=list(loaded.encoder.columns))
    evidence = _evidence(loaded, log, units) if log.source else None
    today = date.today()
    size = write_report(
        output,
        loaded,
        evidence,
        title=title or TITLE,
        level=level,
        name=model.name,
        made=f"{today.day} {today:%B %Y}",
        commands=rerun_commands(loaded, str(model), log, units, str(output)) if log.source else {},
    )
    if as_json:
        print(json.dumps({"file": str(output), "bytes": size, "log": log.source or None}))
        return
    print(f"Report: {output} ({size / 1000:,.0f} kB, one file that needs no network)")
    if not log.source:
        print("It says nothing of the log: add --log LOG for what the log identifies.")


def rerun_commands(
    model: Propensities, path: str, log: ReportLogOptions, units: HarvestOptions, output: str
) -> dict[str, str]:
    """Return the commands that make the model, the report and the weights, by their names.

    There is none for `fit` where a model was made in a way that options do not tell: by AllPairs, or from Python with
    another shape of the curve.

    Example:
        >>> import numpy as np
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> model = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.zeros(1)}, None, (1, 2),
        ...     info={"estimator": "PBM", "objective": "clickshare", "seed": 3})
        >>> log = ReportLogOptions("my log.csv", query="q")
        >>> for command in rerun_commands(model, "m.safetensors", log, HarvestOptions(), "r.html").values():
        ...     print(command)
        clickharvest fit 'my log.csv' --query q --curve constant --intervals none --seed 3 -o m.safetensors
        clickharvest report m.safetensors --log 'my log.csv' --query q -o r.html
        clickharvest weigh 'my log.csv' m.safetensors --query q --clip auto -o weighted.parquet
    """
    from clickharvest.harvesting.interventions import is_interventions

    roles, harvest = _flags(log), _flags(units)
    fit = _fit_flags(model)
    commands = {
        "fit": None if fit is None else ["fit", log.source, *roles, *harvest, *fit, "-o", path],
        "report": ["report", path, "--log", log.source, *roles, *harvest, "-o", output],
        "weigh": ["weigh", log.source, path, *roles, "--clip", "auto", "-o", "weighted.parquet"],
    }
    if is_interventions(log.source):
        del commands["weigh"]
    return {name: shlex.join(["clickharvest", *words]) for name, words in commands.items() if words is not None}


def _evidence(model: Propensities, log: ReportLogOptions, units: HarvestOptions) -> Evidence:
    from clickharvest.harvesting.interventions import is_interventions, read_interventions
    from clickharvest.report.evidence import gather_evidence

    name = Path(log.source).name or log.source
    if is_interventions(log.source):
        return gather_evidence(read_interventions(log.source), model, name=name, progress=show_progress)
    options = units.arguments(log)
    return gather_evidence(
        log.read(show_progress), model, name=name, traffic=units.shares, progress=show_progress, **options
    )


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


def _fit_flags(model: Propensities) -> list[str] | None:
    info, words = model.info, []
    if info.get("objective") != "clickshare":
        return None
    selection, penalty = info.get("selection", []), info.get("penalty", 0)
    if not isinstance(selection, list) or not isinstance(penalty, int | float):
        return None
    tried = {str(candidate["curve"]) for candidate in selection if isinstance(candidate, dict) and "curve" in candidate}
    if len(tried) < 2:
        if len(model.curve.spec) > 1:
            return None
        words += ["--curve", model.curve.name]
        if not tried and model.encoder is not None:
            words += ["--penalty", f"{penalty:g}"]
    if model.curve.anchor != 1:
        words += ["--anchor", str(model.curve.anchor)]
    if model.draws_kind != "bootstrap":
        words += ["--intervals", model.draws_kind or "none"]
    elif model.draws is not None and len(model.draws) != 1_000:
        words += ["--bootstrap", str(len(model.draws))]
    return words + (["--seed", str(info["seed"])] if info.get("seed") else [])
