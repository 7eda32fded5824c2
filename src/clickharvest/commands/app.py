"""The command line: one thin sub-command per stage.

Exit codes: 0 done, 2 bad input or options (one line on standard error), 3 not identified.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq
import typer
from rich.console import Console

from clickharvest import __version__
from clickharvest.commands.demo import run_demo
from clickharvest.commands.fit import FitOptions, run_fit
from clickharvest.commands.options import HarvestOptions, JsonFlag, LogOptions, OutputPath, with_options
from clickharvest.commands.progress import bar_on
from clickharvest.commands.propensities import print_model, score_contexts
from clickharvest.commands.rank import RankOptions, run_rank
from clickharvest.commands.report import ReportLogOptions, run_report
from clickharvest.commands.reproduce import ReproduceOptions, run_reproduce
from clickharvest.commands.simulate import SimulateOptions, SimulatorName, run_simulate
from clickharvest.commands.terminal import print_diagnosis
from clickharvest.commands.weigh import WeighOptions, run_weigh
from clickharvest.diagnosis.diagnosing import diagnose
from clickharvest.errors import ClickharvestError, ClickharvestWarning, InputError
from clickharvest.harvesting.collecting import harvest as harvest_in_memory
from clickharvest.harvesting.collecting import harvest_table, harvest_to_parquet
from clickharvest.harvesting.interventions import is_interventions, read_interventions
from clickharvest.harvesting.sql import DIALECTS, to_sql, unbound_table
from clickharvest.logs.reading import read_log
from clickharvest.logs.sources import file_format

app = typer.Typer(
    name="clickharvest",
    help="Examination propensities from ordinary click logs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
monitor = bar_on(Console(stderr=True))

AnchorOption = Annotated[int, typer.Option("--anchor", help="Position that others are compared with.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file, as fit writes it.", show_default=False)]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"clickharvest {__version__}")
        raise typer.Exit


@app.callback()
def clickharvest(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Examination propensities from ordinary click logs."""


@app.command()
@with_options
def check(
    log: LogOptions,
    units: HarvestOptions,
    anchor: AnchorOption = 1,
    as_json: JsonFlag = False,
) -> None:
    """Tell whether a log reveals examination, and test the assumptions.

    Reads a click log, or a file of interventions. Exit code 3: some positions cannot be linked.

    Examples:

      clickharvest check clicks.parquet

      clickharvest check clicks.csv --query q --position rank --context device,country
    """
    if is_interventions(log.source):
        diagnosis = diagnose(read_interventions(log.source), anchor=anchor)
    else:
        diagnosis = diagnose(log.read(monitor), **units.arguments(log), anchor=anchor, traffic=units.shares)
    if as_json:
        print(json.dumps(diagnosis.to_dict(), indent=2))
    else:
        print_diagnosis(diagnosis)
    if not diagnosis.identified:
        raise typer.Exit(3)


@app.command()
@with_options
def harvest(
    log: LogOptions,
    units: HarvestOptions,
    output: OutputPath = None,
    emit_sql: Annotated[
        str | None,
        typer.Option(
            "--emit-sql",
            metavar="DIALECT",
            help=f"Print the query for a warehouse instead of running it: {', '.join(DIALECTS)}. "
            "LOG may then be a table's name.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Harvest the interventions of a log into one Parquet file.

    Columns: unit, query, position, exposure, clicks, impressions, and the context columns.

    Examples:

      clickharvest harvest clicks.parquet --context device -o interventions.parquet

      clickharvest harvest shop.search.clicks --emit-sql bigquery > harvest.sql
    """
    if emit_sql is not None:
        print(_sql(log, units, emit_sql))
        return
    if output is None:
        raise InputError("nowhere to write the interventions: name a file with -o interventions.parquet")
    if file_format(output.name) != "parquet":
        raise InputError(f"interventions are written as Parquet: -o {output} should end in .parquet")
    rows = harvest_to_parquet(log.read(monitor), output, **units.arguments(log))
    written = pq.read_table(output, columns=["unit", "clicks"])
    counts = {"units": written["unit"][-1].as_py() + 1, "clicks": sum(map(int, written["clicks"].to_numpy()))}
    if as_json:
        print(json.dumps({"file": str(output), "rows": rows, **counts}))
    else:
        print(f"{counts['units']:,} units in {rows:,} rows, {counts['clicks']:,} clicks: {output}")


@app.command()
@with_options
def fit(
    log: LogOptions,
    units: HarvestOptions,
    model: FitOptions,
    anchor: AnchorOption = 1,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Estimate how examination falls with position, and with the context.

    Reads a click log, or a file of interventions, and writes a model file.

    Examples:

      clickharvest fit clicks.parquet --context device -o model.safetensors

      clickharvest fit interventions.parquet --curve linear --bootstrap 500 -o model.safetensors
    """
    if output is None:
        raise InputError("nowhere to write the model: name a file with -o model.safetensors")
    if output.suffix != ".safetensors":
        raise InputError(f"a model is a safetensors file: -o {output} should end in .safetensors")
    if is_interventions(log.source):
        interventions = read_interventions(log.source)
    else:
        interventions = harvest_in_memory(log.read(monitor), **units.arguments(log))
    run_fit(interventions, model, output, anchor, as_json)


@app.command()
def propensities(
    model: ModelPath,
    contexts: Annotated[
        str | None,
        typer.Argument(metavar="CONTEXTS", help="File with the model's context columns.", show_default=False),
    ] = None,
    output: OutputPath = None,
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Intervals that cover all positions of a context together.")
    ] = False,
    table: Annotated[str | None, typer.Option("--table", help="Table of a DuckDB file.", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the propensities of contexts, one row per context and position.

    Columns: those of CONTEXTS, then position, propensity, lower, upper, supported; propensities are relative to the
    model's anchor.

    Example:

      clickharvest propensities model.safetensors contexts.csv -o propensities.parquet
    """
    score_contexts(
        model, contexts, output, level=level, simultaneous=simultaneous, table=table, as_json=as_json, monitor=monitor
    )


@app.command()
@with_options
def weigh(
    log: LogOptions,
    model: ModelPath,
    weights: WeighOptions,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Add propensities and inverse-propensity weights to a log.

    Writes all rows and columns of LOG, and the columns propensity (relative to the model's anchor), ips_weight and
    propensity_supported. ips_weight is that of one click, 1 / max(propensity, clip): multiply clicks with it. The
    context columns are those of the model. Positions without an estimate use the last one above them.

    Example:

      clickharvest weigh clicks.parquet model.safetensors --clip auto -o weighted.parquet
    """
    run_weigh(log, model, weights, output, as_json=as_json, monitor=monitor)


@app.command()
@with_options
def rank(
    log: LogOptions,
    documents: Annotated[
        str,
        typer.Argument(
            metavar="FEATURES",
            help="Table of the log's query and doc columns, and a column for each feature.",
            show_default=False,
        ),
    ],
    ranker: RankOptions,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a ranker from clicks with propensities, and judge it on held-out queries.

    Compares it by SNIPS with the logged order and with a ranker that takes clicks at face value, on the documents that
    LOG showed for each query. Writes the ranker that was judged: svm as JSON with a weight for each feature, lightgbm
    as .txt and xgboost as .json of their own.

    Examples:

      clickharvest rank clicks.parquet features.parquet --model model.safetensors -o ranker.json

      clickharvest rank weighted.parquet features.csv --learner lightgbm --clip 0.05 -o ranker.txt
    """
    run_rank(log, documents, ranker, output, as_json=as_json, monitor=monitor)


@app.command()
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
    run_report(model, log, units, output, title=title, level=level, as_json=as_json, monitor=monitor)


@app.command()
def show(model: ModelPath, as_json: JsonFlag = False) -> None:
    """Tell what a model is and what it found.

    Example:

      clickharvest show model.safetensors
    """
    print_model(model, as_json=as_json)


def _sql(log: LogOptions, units: HarvestOptions, dialect: str) -> str:
    if log.export is not None:
        raise InputError(
            f"--emit-sql does not go with the format {log.export[0]}: name a table of a click log's columns"
        )
    columns = {role: role for role in ("query", "doc", "position")} | log.columns
    if not {"click", "clicks"} & columns.keys():
        columns["click"] = "click"
    numbers = ("position", "click", "clicks", "impressions", "original")
    types = {column: "int64" if role in numbers else "string" for role, column in columns.items()}
    types = dict.fromkeys(log.context_columns, "string") | types
    table = unbound_table(log.source, types, table=log.table)
    clicks = read_log(
        table, **log.columns, context=log.context_columns, position_base=log.position_base, validate=False
    )
    ranked = {"query": "string", "ranker": "string", "doc": "string", "position": "int64"}
    rankings = unbound_table(units.rankings, ranked) if units.rankings else None
    return to_sql(harvest_table(clicks, **units.arguments(log, rankings)), dialect)


@app.command()
@with_options
def simulate(
    simulation: SimulateOptions,
    simulator: Annotated[
        SimulatorName,
        typer.Argument(help="The paper's protocol; a small A/B test; or an arXiv-like log with A/B and swaps."),
    ] = SimulatorName.protocol,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the simulation that FOLDER holds.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a log with known truth, to try methods on.

    Writes log.parquet, truth.parquet, settings.json and, where several rankers are known, rankings.parquet.

    Examples:

      clickharvest simulate -o simulated --sweeps 5 --traffic 80,15,5

      clickharvest simulate --corpus mq2007.txt.gz --clicks trust -o simulated

      clickharvest simulate arxiv -o arxiv
    """
    run_simulate(simulator, simulation, output, force=force, as_json=as_json, monitor=monitor)


@app.command()
@with_options
def reproduce(
    options: ReproduceOptions,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Experiments; all by default.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run the paper's experiments, and what lies beyond it, and compare.

    Finished runs are kept: an interrupted command goes on where it was. Exit code 1: a claim does not hold.

    Examples:

      clickharvest reproduce table-pbm --quick

      clickharvest reproduce --corpus mq2007_part --jobs 8
    """
    run_reproduce(ids or [], options, as_json=as_json)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder of the demo's files.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulations.")] = 0,
) -> None:
    """Take simulated logs with known truth through every command, to a report and a better ranker.

    Example:

      clickharvest demo -o demo
    """
    run_demo(output, seed, lambda words: app(words, standalone_mode=False))


def main() -> None:
    """Run the command line; every expected failure is one line on standard error and an exit code."""
    warnings.showwarning = _print_warning
    sys.exit(_run())


def _run() -> int:
    try:
        return app(standalone_mode=False) or 0
    except ClickharvestError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except typer.exceptions.TyperException as error:
        print(f"Error: {error.format_message()} (clickharvest --help tells more)", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("Interrupted; nothing was written.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, ClickharvestWarning):
        print(f"Warning: {message}", file=sys.stderr)
