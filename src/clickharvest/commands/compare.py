"""The command `compare`: models against each other, on another log or by their intervals; or estimators on one log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.declaring import argument, option
from clickharvest.commands.options import (
    QUERY,
    ClusterOption,
    HarvestOptions,
    JsonFlag,
    LevelOption,
    LogOptions,
    require_clusters,
)
from clickharvest.commands.output import refuse_overwriting, tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.words import clean_text

if TYPE_CHECKING:
    from clickharvest.estimation.comparison import ModelComparison
    from clickharvest.model.propensities import Propensities

OTHER_LOG = "The other log"
_estimators = partial(option, panel="Estimators on one log")


@dataclass(frozen=True)
class OtherLog(LogOptions):
    """The log to score models on, if any; it is an option, because models are the arguments."""

    source: str = option(
        "Score the models on this click log, or file of interventions, that they were not fitted on.", "LOG", "",
        flags=("--log",), panel=OTHER_LOG,
    )  # fmt: skip
    baseline_log: str | None = option(
        "Take the naive click rates from this log, such as the one the models were fitted on; by default they are "
        "those of the other queries of --log.",
        "LOG", panel=OTHER_LOG, rare=True,
    )  # fmt: skip


@dataclass(frozen=True)
class EstimatorOptions:
    """Which estimators to put side by side, if any."""

    estimators: str | None = _estimators(
        "Put estimators side by side on one log, which is then the argument: all, or names such as em,clickshare.",
        "all|A,B,…",
    )
    features_from: str | None = _estimators("Table of query, doc and features, for regression-em.", "FILE")
    chart: Path | None = _estimators("Draw the curves of the estimators to FILE.html, .svg or .png.", "FILE")


def compare(
    models: Annotated[
        list[Path],
        argument("Model files, as fit writes them; with --estimators a log.", "MODEL"),
    ],
    log: OtherLog,
    units: HarvestOptions,
    options: EstimatorOptions,
    cluster: ClusterOption = QUERY,
    level: LevelOption = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Score models on another log; or tell where two differ; or put estimators side by side.

    With --log: how well each model explains clicks that it has not seen, against naive click rates, 1/k and the other
    models. The context columns are those of the models. A model that was fitted on all of this log, with these columns,
    is named; one that was fitted on a part of it, or with other columns, is not noticed. Without: where each further
    model differs from the first one beyond the intervals of both. With --estimators: what click rates, PivotOne,
    AdjacentChain, AllPairs, EM, regression-EM and ClickShare say of one log, or file of interventions, and how well
    each explains clicks of queries that it has not seen. Exit code 3: there is nothing to compare.

    Examples:

      clickharvest compare model.safetensors --log next_week.parquet

      clickharvest compare last_month.safetensors this_month.safetensors

      clickharvest compare clicks.parquet --estimators all --chart estimators.html
    """
    if options.estimators is not None:
        if log.source or log.baseline_log or len(models) != 1 or cluster != QUERY:
            raise InputError("--estimators takes one log as its argument, and no --log, --baseline-log or --cluster")
        _compare_estimators(replace(log, source=str(models[0])), units, options, level, as_json)
        return
    if options != EstimatorOptions():
        raise InputError("--features-from and --chart go with --estimators: name them, such as --estimators all")
    from clickharvest.commands.tables import print_differences, print_scores
    from clickharvest.model.differences import find_differences
    from clickharvest.model.loading import load_propensities

    loaded = {name: load_propensities(path) for name, path in _short_names(models).items()}
    _require_alike(loaded, scored=bool(log.source))
    if log.source:
        scores = _score(loaded, log, units, cluster, level)
        in_places = any(model.places is not None for model in loaded.values())
        tell_json(scores.to_dict()) if as_json else print_scores(scores, in_places=in_places)
        return
    if log != OtherLog() or units != HarvestOptions() or cluster != QUERY:
        raise InputError("options of a log go with --log: name the log to score the models on")
    if len(loaded) < 2:
        raise InputError("one model and nothing to compare it with: name another model, or a log with --log")
    (first, reference), *others = loaded.items()
    differences = {name: find_differences(reference, other, level=level) for name, other in others}
    if as_json:
        tell_json({"first": first, "differences": {name: one.to_dict() for name, one in differences.items()}})
        return
    for name, difference in differences.items():
        print_differences(first, name, difference)


def _compare_estimators(
    log: OtherLog, units: HarvestOptions, options: EstimatorOptions, level: float, as_json: bool
) -> None:
    from clickharvest.baselines import compare_estimators
    from clickharvest.commands.tables import print_estimators
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.report.charts import check_chart, plot_estimators, save_chart

    chart = options.chart
    if chart is not None:
        check_chart(chart)
        refuse_overwriting(chart, [*log.sources, options.features_from])
    names = None if options.estimators == "all" else [name.strip() for name in str(options.estimators).split(",")]
    data = units.read(log)
    harvesting: dict[str, Any] = {} if isinstance(data, Interventions) else units.arguments(log)
    comparison = compare_estimators(
        data, estimators=names, features=options.features_from, level=level, progress=show_progress, **harvesting
    )
    if chart is not None:
        save_chart(plot_estimators(comparison), chart)
    if as_json:
        tell_json(comparison.to_dict() | ({} if chart is None else {"chart": str(chart)}))
        return
    print_estimators(comparison)
    if chart is not None:
        tell(f"Chart: {chart}")


def _short_names(paths: list[Path]) -> dict[str, Path]:
    """Return the files by the shortest names that distinguish them."""
    if twice := [path for i, path in enumerate(paths) if path in paths[:i]]:
        raise InputError(f"{twice[0]} is named twice: name every model once")
    short = {path.name: path for path in paths}
    return short if len(short) == len(paths) else {str(path): path for path in paths}


def _require_alike(models: Mapping[str, Propensities], *, scored: bool) -> None:
    """Refuse models of different things; the clicks of a log score models of examination alone."""
    from clickharvest.model.cautions import outcome_of, require_examination

    if len({outcome_of(model) for model in models.values()}) > 1:
        things = (f"{clean_text(name)} of {outcome_of(model) or 'examination'}" for name, model in models.items())
        raise InputError(f"the models are of different things, {', '.join(things)}: compare those of one")
    if scored:
        require_examination(next(iter(models.values())))


def _score(
    models: Mapping[str, Propensities], log: OtherLog, units: HarvestOptions, cluster: str, level: float
) -> ModelComparison:
    from clickharvest.baselines.ratios import click_rates, position_counts
    from clickharvest.estimation.comparison import compare_models
    from clickharvest.harvesting.collecting import harvest
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.harvesting.reading import is_interventions

    rates: Any = None
    for_models = log.with_columns_of(*models.values(), and_others=True)
    if log.baseline_log is not None:
        if is_interventions(log.baseline_log):
            raise InputError(f"{log.baseline_log} holds interventions: click rates need the log that they come from")
        anchor = next(iter(models.values())).curve.anchor
        training = replace(for_models, source=log.baseline_log, context=None).read()
        rates = click_rates(training, anchor=anchor, max_position=units.max_position)
    interventions: Interventions
    data = units.read(log if is_interventions(log.source) else for_models)
    if isinstance(data, Interventions):
        require_clusters(data, cluster, log.source)
        interventions = data
    else:
        interventions = harvest(data, **units.arguments(log), cluster=cluster)
        if rates is None:
            rates = position_counts(data, max_position=units.max_position)
    with show_progress("Scoring"):
        return compare_models(models, interventions, rates=rates, level=level)
