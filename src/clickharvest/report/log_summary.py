"""The log in the report of a model: its checks, the distribution of contexts, and the effect of weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks import Checked, Finding, budget_of, check_fit
from clickharvest.checks.design_holds import design_findings
from clickharvest.errors import InputError
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Design
from clickharvest.harvesting.interventions import Interventions, UnitKind
from clickharvest.harvesting.placements import LoggedPlacements
from clickharvest.logs.click_log import ClickLog, days_of
from clickharvest.model.cautions import outcome_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import fitted_fingerprints
from clickharvest.parameters import TOLERANCE
from clickharvest.planning.traffic import Plan, plan_traffic
from clickharvest.positions.places import name_places
from clickharvest.progress import Progress, silent
from clickharvest.report.values import encode_contexts
from clickharvest.weights.clipping import effective_sample_size, ips_weights, vanishing_clip
from clickharvest.words import count

Array = NDArray[np.float64]

ROWS_AT_ONCE = 100_000
"""Contexts that are predicted together; more need more memory."""


@dataclass(frozen=True)
class Clipping:
    """The effect of `weigh --clip auto` on the weights w_i = 1 / max(p_i, clip) of a log's clicks.

    Attributes:
        clip: the least propensity that is divided by.
        effective: the effective sample size (Σ_i w_i)² / Σ_i w_i².
        clipped: the share of clicks with a smaller propensity.
        clicks: clicks at positions that the model has an estimate for.
        left_out: clicks at other positions.
    """

    clip: float
    effective: float
    clipped: float
    clicks: int
    left_out: int


@dataclass(frozen=True)
class LogSummary:
    """The part of a report that comes from a log.

    Attributes:
        name: the log, in the user's words.
        checked: the findings of all checks, and the budget; None for a model of the outcomes of clicks.
        same_data: whether the model was fitted on the log's interventions; None if that is unknown.
        compared: the results and clicks that the curve can be estimated from, in words.
        x: encoded contexts of the interventions, [n, d].
        clipping: the weights of the log's clicks; None without clicks.
        plan: the traffic that brings the interval within the tolerance; None if it is not needed or not known.
    """

    name: str
    checked: Checked | None
    same_data: bool | None
    compared: str
    x: Array
    clipping: Clipping | None
    plan: Plan | None = None


def summarise_log(
    source: ClickLog | Interventions,
    model: Propensities,
    *,
    name: str = "the log",
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
    positions: Collection[int] | None = None,
    folds: Sequence[int] | None = None,
    tolerance: float | None = None,
    progress: Progress = silent,
) -> LogSummary:
    """Check a model against a log, or interventions, and return the summary for its report.

    Args:
        source: the log, opened with the model's context columns; or interventions, which leave most checks untested.
        model: the model.
        name: what to call the log.
        unit: as in `harvest`.
        max_position: as in `harvest`.
        design: as in `harvest`.
        positions: as in `check_fit`; by default those of the budget that the model keeps.
        folds: as in `check_fit`; by default those of the budget that the model keeps.
        tolerance: as in `check_fit`; by default that of the budget that the model keeps.
        progress: what shows progress.

    Raises:
        InputError: the log was read without the model's context columns.
        NotIdentifiedError: no result was shown at two positions.

    Example:
        >>> from clickharvest import CPBM, harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log = read_log(simulate_ab_log(pages=20_000, seed=1)[0], context=["device"])
        >>> summary = summarise_log(log, CPBM().fit(harvest(log)).propensities_)
        >>> summary.same_data, summary.checked.budget.positions
        (True, (2, 3, 4, 5, 6, 7, 8, 9, 10))
    """
    _require_columns(source, model)
    kept = budget_of(model)
    if positions is None:
        positions = () if kept is None else kept.positions
    if folds is None:
        folds = () if kept is None else kept.folds
    if tolerance is None:
        tolerance = TOLERANCE if kept is None else kept.tolerance
    if isinstance(source, Interventions):
        interventions, days = source, None
        clicked = (source.contexts, source.position, source.clicks)
    else:
        interventions = harvest(
            source,
            unit=unit,
            max_position=max_position,
            design=design,
            max_clicks=model.fit_info.max_clicks,  # the sample of queries that the model was fitted on
        )
        days, clicked = days_of(source), _clicked(source, max_position)
    checked = None
    if outcome_of(model) is None:
        with progress("Checking"):
            further = _of_design(source, design, max_position)
            options: Any = {
                "positions": positions,
                "folds": folds,
                "tolerance": tolerance,
                "interventions": interventions,
            }
            checked = check_fit(source, model, unit=unit, **options, further=further)
    data, plan = model.fit_info.data, None
    if (checked is None or checked.budget.word != "usable") and model.places is None:
        with progress("Planning"):
            plan = plan_traffic(interventions, anchor=int(model.curve.anchor), days=days, width=tolerance)
    return LogSummary(
        name=name,
        checked=checked,
        same_data=data in fitted_fingerprints(interventions) if isinstance(data, str) else None,
        compared=_compared(interventions.undivided()),
        x=encode_contexts(model, interventions.contexts),
        clipping=_clipping(*_propensities_of(model, *clicked)),
        plan=plan,
    )


def _of_design(source: ClickLog | Interventions, design: Design | None, max_position: int | None) -> list[Finding]:
    """Return the findings on whether the log agrees with the design; otherwise exposures may be wrong by any factor."""
    if isinstance(source, Interventions) or design is None or isinstance(design, LoggedPlacements):
        return []
    return design_findings(source.parsed(), design, max_position)


def _compared(interventions: Interventions) -> str:
    where = name_places(np.unique(interventions.position).tolist(), interventions.places)
    clicks, queries = int(interventions.clicks.sum()), len(np.unique(interventions.query))
    return (
        f"{count(interventions.n_units, 'result')} at two or more of {where}: {count(clicks, 'click')}, "
        f"{count(queries, 'query', 'queries')}"
    )


def _clipping(propensity: Array, clicks: NDArray[np.int64]) -> Clipping | None:
    known = np.isfinite(propensity)
    total, left_out = int(clicks[known].sum()), int(clicks[~known].sum())
    if not total:
        return None
    clip = vanishing_clip(float(total))
    effective = effective_sample_size(ips_weights(propensity[known], clip), clicks[known])
    clipped = float(clicks[known & (propensity < clip)].sum() / total)
    return Clipping(clip, float(effective), clipped, total, left_out)


def _require_columns(source: ClickLog | Interventions, model: Propensities) -> None:
    if not isinstance(model, Propensities):
        raise InputError(
            "the page of a model other than examination says nothing of a log: leave the log out, its checks are in "
            "the model"
        )
    if source.places != model.places:
        raise InputError(
            "the log shows other places than the model knows: give the log that the model was fitted on, with the same "
            "--place columns"
        )
    columns = tuple(source.contexts) if isinstance(source, Interventions) else source.context
    needed = () if model.encoder is None else model.encoder.columns
    if missing := [column for column in needed if column not in columns]:
        raise InputError(
            f"the model depends on the context columns {', '.join(missing)}, but the log was read with "
            f"{', '.join(columns) or 'none'}: name all of them with --context, or leave the option out"
        )


def _clicked(log: ClickLog, max_position: int | None) -> tuple[Mapping[str, Any], NDArray[Any], NDArray[Any]]:
    """Return contexts, position and number of clicks, one row per context and position with clicks."""
    rows = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    counts = rows.group_by(*log.context, "position").agg(clicks=rows.clicks.sum().cast("int64"))
    table = log.engine.fetch(counts.filter(counts.clicks > 0), task="Counting clicks by context")
    contexts = {column: table[column] for column in log.context}
    return contexts, table["position"].to_numpy(), table["clicks"].to_numpy()


def _propensities_of(
    model: Propensities, contexts: Mapping[str, Any], position: NDArray[Any], clicks: NDArray[Any]
) -> tuple[Array, NDArray[np.int64]]:
    """Return p_k(x) of each row, NaN without an estimate, and its clicks."""
    point = replace(model, draws=None, draws_kind=None)
    column = np.searchsorted(model.shown, position)
    inside = np.isin(position, model.shown)
    propensity = np.full(len(position), np.nan)
    for begin in range(0, len(position), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        part = {name: values[rows] for name, values in contexts.items()}
        p = point.predict(part if model.encoder is not None else None).propensity
        p = np.broadcast_to(p, (len(column[rows]), p.shape[1]))
        taken = p[np.arange(len(p)), np.where(inside[rows], column[rows], 0)]
        propensity[rows] = np.where(inside[rows], taken, np.nan)
    return propensity, clicks.astype(np.int64)
