"""The command `compare`: models against each other, on another log or by their intervals; or estimators on one log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.harvest_options import HarvestOptions, require_clusters
from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import QUERY, ClusterOption, JsonFlag, LevelOption, LogOptions, argument, option
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.threads import keep_to_one_thread
from clickharvest.commands.weigh import place_of
from clickharvest.errors import InputError
from clickharvest.positions.places import name_place
from clickharvest.words import clean_text, cluster_nouns, count, name_positions

if TYPE_CHECKING:
    from clickharvest.baselines import EstimatorComparison
    from clickharvest.estimation.comparison import ModelComparison
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.model.differences import Differences
    from clickharvest.model.propensities import Propensities

OTHER_LOG = "The other log"
ESTIMATORS = "Estimators on one log"
SHOWN = (2, 3, 5, 10)
"""Positions of the table of estimators, and the last one."""
LONGEST = 24
"""Letters of a model's name in a table."""
MOST_ROWS = 14


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


_estimators = partial(option, panel=ESTIMATORS)


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
    asked: EstimatorOptions,
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
    keep_to_one_thread()
    if asked.estimators is not None:
        if log.source or log.baseline_log or len(models) != 1 or cluster != QUERY:
            raise InputError("--estimators takes one log as its argument, and no --log, --baseline-log or --cluster")
        _compare_estimators(replace(log, source=str(models[0])), units, asked, level, as_json)
        return
    if asked != EstimatorOptions():
        raise InputError("--features-from and --chart go with --estimators: name them, such as --estimators all")
    from clickharvest.model.loading import load_propensities

    loaded = {name: load_propensities(path) for name, path in _names(models).items()}
    _require_alike(loaded, scored=bool(log.source))
    if log.source:
        found = _score(loaded, log, units, cluster, level)
        listed = all(model.places is None for model in loaded.values())
        _print_json(found.to_dict()) if as_json else _print_scores(found, listed=listed)
        return
    if log != OtherLog() or units != HarvestOptions() or cluster != QUERY:
        raise InputError("options of a log go with --log: name the log to score the models on")
    if len(loaded) < 2:
        raise InputError("one model and nothing to compare it with: name another model, or a log with --log")
    differences = _differences(loaded, level)
    if as_json:
        first = next(iter(loaded))
        _print_json({"first": first, "differences": {name: own.to_dict() for name, own in differences.items()}})
        return
    for name, own in differences.items():
        _print_differences(next(iter(loaded)), name, own)


def _compare_estimators(
    log: OtherLog, units: HarvestOptions, asked: EstimatorOptions, level: float, as_json: bool
) -> None:
    from clickharvest.baselines import compare_estimators
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.report.charts import check_chart, plot_estimators, save_chart

    if asked.chart is not None:
        check_chart(asked.chart)
        refuse_overwriting(asked.chart, [*log.sources, asked.features_from])
    names = None if asked.estimators == "all" else [name.strip() for name in (asked.estimators or "").split(",")]
    how: dict[str, Any] = {"estimators": names, "features": asked.features_from, "level": level}
    if is_interventions(log.source):
        found = compare_estimators(units.read_interventions(log), **how, progress=show_progress)
    else:
        found = compare_estimators(log.read(show_progress), **how, **units.arguments(log), progress=show_progress)
    if asked.chart is not None:
        save_chart(plot_estimators(found), asked.chart)
    if as_json:
        _print_json(found.to_dict() | ({} if asked.chart is None else {"chart": str(asked.chart)}))
        return
    _print_estimators(found)
    if asked.chart is not None:
        tell(f"Chart: {asked.chart}")


def _print_estimators(found: EstimatorComparison) -> None:
    from rich.table import Table

    from clickharvest.commands.terminal import screen

    console = screen()
    last = found.positions[-1]
    shown = [k for k in SHOWN if k in found.positions and k < last] + [last]
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    table.add_column("estimator")
    for header in [*map(str, shown), "held out"]:
        table.add_column(header, justify="right", no_wrap=True)
    for own in found.estimates.values():
        score = "-" if own.held_out is None else f"{own.held_out:.4f}"
        table.add_row(own.label, *(_spell_estimate(own.propensity.get(k)) for k in shown), score)
    console.print(table)
    scored = f"{found.clicks:,} of {count(found.harvested, 'click')} on results that moved"
    console.print(
        f"\nExamination by position, relative to the anchor, ± or × the half width of its {100 * found.level:g} % "
        f"interval; held out: log likelihood per click of {count(found.folds, 'fold')} by query, {scored}.\n"
    )
    for sentence in found.findings:
        console.print(sentence)
    for label, reason in found.left_out.items():
        option = " (--features-from)" if "features" in reason else ""
        console.print(f"Left out: {label}, which {reason}{option}." if reason.startswith("needs") else
                      f"Left out: {label}: {reason}.")  # fmt: skip


def _spell_estimate(estimate: tuple[float, float | None, float | None] | None) -> str:
    """Return an estimate with the half width of its interval.

    Example:
        >>> _spell_estimate((0.5, 0.4, 0.625)), _spell_estimate((0.04, 0.01, 0.16)), _spell_estimate(None)
        ('0.500 ±25%', '0.040 ×4.0', '-')
    """
    if estimate is None:
        return "-"
    value, lower, upper = estimate
    if lower is None or upper is None or lower <= 0:
        return f"{value:.3f}"
    factor = (upper / lower) ** 0.5
    width = f"±{100 * (factor - 1):.0f}%" if factor < 2 else f"×{factor:.1f}" if factor < 100 else "×100…"
    return f"{value:.3f} {width}"


def _names(paths: list[Path]) -> dict[str, Path]:
    """Return the files by the shortest names that tell them apart."""
    if twice := [path for i, path in enumerate(paths) if path in paths[:i]]:
        raise InputError(f"{twice[0]} is named twice: name every model once")
    short = {path.name: path for path in paths}
    return short if len(short) == len(paths) else {str(path): path for path in paths}


def _require_alike(models: Mapping[str, Propensities], *, scored: bool) -> None:
    """Refuse models of different things; clicks of a log speak of examination alone."""
    from clickharvest.model.cautions import outcome_of, require_examination

    kinds = {outcome_of(model) for model in models.values()}
    if len(kinds) > 1:
        told = (f"{clean_text(name)} of {outcome_of(model) or 'examination'}" for name, model in models.items())
        raise InputError(f"the models are of different things, {', '.join(told)}: compare those of one")
    if scored:
        require_examination(next(iter(models.values())))


def _score(
    models: Mapping[str, Propensities], log: OtherLog, units: HarvestOptions, cluster: str, level: float
) -> ModelComparison:
    from clickharvest.baselines.ratios import click_rates, position_counts
    from clickharvest.estimation.comparison import compare_models
    from clickharvest.harvesting.collecting import harvest
    from clickharvest.harvesting.reading import is_interventions

    rates: Any = None
    place = place_of(log, next(iter(models.values())))
    if log.baseline_log is not None:
        if is_interventions(log.baseline_log):
            raise InputError(f"{log.baseline_log} holds interventions: click rates need the log that they come from")
        anchor = next(iter(models.values())).curve.anchor
        training = replace(log, source=log.baseline_log, context=None, place=place).read(show_progress)
        rates = click_rates(training, anchor=anchor, max_position=units.max_position)
    interventions: Interventions
    if is_interventions(log.source):
        interventions = units.read_interventions(log)
        require_clusters(interventions, cluster, log.source)
    else:
        clicks = replace(log, context=_context(log, models), place=place).read(show_progress)
        interventions = harvest(clicks, **units.arguments(log), cluster=cluster)
        if rates is None:
            rates = position_counts(clicks, max_position=units.max_position)
    with show_progress("Scoring"):
        return compare_models(models, interventions, rates=rates, level=level)


def _context(log: LogOptions, models: Mapping[str, Propensities]) -> list[str]:
    """Return the columns that any model depends on, and those the user names: with them, units are finer."""
    needed = [name for model in models.values() if model.encoder is not None for name in model.encoder.columns]
    return list(dict.fromkeys([*needed, *log.context_columns]))


def _differences(models: Mapping[str, Propensities], level: float) -> dict[str, Differences]:
    from clickharvest.model.differences import find_differences

    (_, first), *others = models.items()
    return {name: find_differences(first, other, level=level) for name, other in others}


def _print_json(told: dict[str, Any]) -> None:
    tell(json.dumps(told, indent=2))


def _print_scores(found: ModelComparison, *, listed: bool) -> None:
    from rich.table import Table

    from clickharvest.commands.terminal import screen

    console = screen()
    harvested = found.clicks + sum(found.left_out.values())
    clusters = count(found.queries, *cluster_nouns(found.clustered_by))
    where = name_positions(found.positions) if listed else count(len(found.positions), "place")
    console.print(
        f"Scored {found.clicks:,} of {count(harvested, 'harvested click')}, {clusters} "
        f"(as good as {found.effective_queries:,.0f} of equal size), {where}."
    )
    for reason, clicks in found.left_out.items():
        if clicks:
            console.print(f"Left out: {count(clicks, 'click')} {reason}.")
    console.print()
    scores = Table(box=None, pad_edge=False, header_style="bold")
    scores.add_column("")
    scores.add_column("log likelihood per click", justify="right")
    for name, score in found.scores.items():
        scores.add_row(clean_text(name, LONGEST), f"{score:.5f}")
    console.print(scores)
    console.print()
    gains = Table(box=None, pad_edge=False, header_style="bold")
    for header, justify in (("gain of", "left"), ("over", "left"), ("per click", "right")):
        gains.add_column(header, justify=justify)  # type: ignore[arg-type]
    gains.add_column(f"{100 * found.level:g} % interval", justify="right")
    for gain in found.gains:
        ends = "-" if gain.lower is None else f"{gain.lower:+.5f} to {gain.upper:+.5f}"
        names = (clean_text(name, LONGEST) for name in (gain.name, gain.over))
        gains.add_row(*names, f"{gain.per_click:+.5f}", ends)
    console.print(gains)
    console.print()
    for sentence in found.findings:
        console.print(sentence)


def _print_differences(first: str, second: str, found: Differences) -> None:
    import numpy as np
    from rich.table import Table

    from clickharvest.commands.terminal import screen

    console = screen()
    anchor = name_place(found.anchor, found.places)
    console.print(f"{clean_text(second, 60)} against {clean_text(first, 60)}, relative to {anchor}:\n")
    cells = [(i, k) for i in range(len(found.contexts)) for k in range(len(found.positions))]
    apart = [cell for cell in cells if found.differs[cell]]
    shown = sorted(apart or [cell for cell in cells if cell[0] == 0], key=lambda cell: (not found.differs[cell], cell))
    table = Table(box=None, pad_edge=False, header_style="bold")
    what = "position" if found.places is None else "place"
    for header in (*(("context",) if found.values else ()), what, "times", "interval"):
        table.add_column(header, justify="left" if header == "context" else "right")
    for i, k in shown[:MOST_ROWS]:
        numbers = (f"{found.ratio[i, k]:.3f}", f"{found.lower[i, k]:.3f} to {found.upper[i, k]:.3f}")
        if not np.isfinite(found.ratio[i, k]):
            numbers = ("-", "not supported")
        name = (clean_text(found.contexts[i], 36),) if found.values else ()
        at = found.positions[k]
        table.add_row(*name, str(at) if found.places is None else found.places.name(at), *numbers)
    if len(shown) > MOST_ROWS:
        table.add_row(f"… {len(shown) - MOST_ROWS} more")
    console.print(table)
    held = f"The intervals hold for all of them together, with {100 * found.level:g} % confidence."
    console.print(f"\n{found.verdict}\n{held}")
