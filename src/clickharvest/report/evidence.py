"""Evidence: what a log adds to the report of a model.

What it identifies, whether its assumptions hold, what simpler estimators say, how contexts are spread, and how many
clicks the weights are worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.baselines import click_rates
from clickharvest.diagnosis.design_holds import NAMES as DESIGN
from clickharvest.diagnosis.diagnosing import Diagnosis, diagnose
from clickharvest.diagnosis.findings import Finding
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation.estimators import PBM
from clickharvest.estimation.model_checks import check_model
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Design
from clickharvest.harvesting.interventions import ExposureKind, Interventions, UnitKind
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.days import days_of
from clickharvest.model.fingerprint import fitted_fingerprints
from clickharvest.model.propensities import Propensities
from clickharvest.planning.scaling import Plan
from clickharvest.progress import Progress, silent
from clickharvest.report.reasons import Grounds
from clickharvest.report.sensitivity import Move, penalty_moves
from clickharvest.report.traffic import plan_traffic
from clickharvest.report.values import MOST_CONTEXTS, encode_contexts
from clickharvest.report.verdict import kept_checks
from clickharvest.weights.clipping import effective_sample_size, ips_weights, vanishing_clip

Array = NDArray[np.float64]

CLIPS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Floors of the propensity that the report compares; 0 clips nothing, 1 gives every click the same weight."""
SPREAD = (0.1, 0.9)
"""Quantiles over contexts, around their mean."""
ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Clipping:
    """What a floor on the propensity does to the weights w_i = 1 / max(p_i, clip) of the clicks.

    Attributes:
        clip: the floor.
        effective: the effective sample size (Σ_i w_i)² / Σ_i w_i².
        clipped: the share of clicks whose propensity is below the floor.
        largest: the largest weight.
    """

    clip: float
    effective: float
    clipped: float
    largest: float


@dataclass(frozen=True)
class Evidence:
    """What the log says, in addition to the model.

    Attributes:
        name: what was read, in the user's words.
        diagnosis: what the log identifies.
        exposure_kind: whether results were shown at several positions, or by design could have been.
        same_data: whether the model was fitted on the very interventions; None where that cannot be told.
        checks: the findings of the model checks.
        x: encoded contexts of the interventions, [n, d].
        spread: the 10 % quantile, the mean and the 90 % quantile of p_k(x) over impressions, [3, K].
        pbm: a PBM of the same interventions; None where the model itself is one.
        rates: relative click rates; None where only interventions are known.
        clicks: clicks at positions the model has an estimate for.
        left_out: clicks elsewhere.
        clipping: the weights of these clicks by floor.
        chosen: the same for the floor that `clickharvest weigh --clip auto` takes.
        moves: the curve with other penalties; none where the model was fitted on other data, or without a penalty.
        plan: how much traffic a wanted precision takes; None where that cannot be told.
    """

    name: str
    diagnosis: Diagnosis
    exposure_kind: ExposureKind
    same_data: bool | None
    checks: tuple[Finding, ...]
    x: Array
    spread: Array
    pbm: Propensities | None
    rates: Propensities | None
    clicks: int
    left_out: int
    clipping: tuple[Clipping, ...]
    chosen: Clipping | None
    moves: tuple[Move, ...] = ()
    plan: Plan | None = None

    @property
    def grounds(self) -> Grounds:
        """What the verdict on the model rests on."""
        told = [move.typical for move in self.moves if move.typical is not None]
        return Grounds(
            findings=self.diagnosis.findings,
            checks=self.checks,
            same_data=self.same_data,
            realised=self.exposure_kind == "realised",
            moved=max(told, default=None),
        )


def gather_evidence(
    source: ClickLog | Interventions,
    model: Propensities,
    *,
    name: str = "the log",
    unit: UnitKind = "context",
    max_position: int | None = None,
    design: Design | None = None,
    traffic: Mapping[str, float] | None = None,
    progress: Progress = silent,
) -> Evidence:
    """Read from a log, or from interventions, everything that the report of a model says about it.

    Args:
        source: the click log, opened with the model's context columns; or interventions.
        model: the model reported on.
        name: what to call the log.
        unit: as in `harvest`.
        max_position: as in `harvest`.
        design: as in `harvest`.
        traffic: as in `diagnose`.
        progress: what shows progress.

    Raises:
        InputError: the log was read without the model's context columns.
        NotIdentifiedError: nothing was shown at two positions.
    """
    _require_columns(source, model)
    anchor = int(model.curve.anchor)
    options: dict[str, Any] = {"unit": unit, "max_position": max_position, "design": design}
    if isinstance(source, Interventions):
        interventions, rates, days = source, None, None
        source = source.undivided()
        diagnosis = diagnose(source, anchor=anchor)
        clicked = (source.contexts, source.position, source.clicks)
    else:
        diagnosis = diagnose(source, **options, anchor=anchor, traffic=traffic)
        # Thinned as for the fit, so that the same queries are looked at.
        most = model.info.get("max_clicks")
        interventions = harvest(source, **options, max_clicks=most if isinstance(most, int) else None)
        rates, days = _rates(source, anchor, max_position), days_of(source)
        clicked = _clicked(source, max_position)
    fitted_on = model.info.get("data")
    same = fitted_on in fitted_fingerprints(interventions) if isinstance(fitted_on, str) else None
    with progress("Checking the model"):
        checks = (kept_checks(model) if same else ()) or tuple(check_model(interventions, anchor=anchor, model=model))
    told = {finding.name for finding in diagnosis.findings if finding.name in DESIGN}
    checks = tuple(check for check in checks if check.name not in told)  # what `fit` has kept of the same design
    with progress("Fitting a PBM to compare with"):
        plain = model.encoder is None
        pbm = None if plain else PBM(anchor=anchor).fit(interventions).propensities_
    with progress("Varying the penalty"):
        moves = penalty_moves(model, interventions) if same else ()
    with progress("Planning"):
        plan = plan_traffic(interventions, anchor=anchor, days=days) if model.places is None else None
    propensity, clicks = _propensities_of(model, *clicked)
    known = np.isfinite(propensity)
    return Evidence(
        name=name,
        diagnosis=diagnosis,
        exposure_kind=interventions.exposure_kind,
        same_data=same,
        checks=checks,
        x=encode_contexts(model, interventions.contexts),
        spread=_spread(model, interventions.undivided()),
        pbm=pbm,
        rates=rates,
        clicks=int(clicks[known].sum()),
        left_out=int(clicks[~known].sum()),
        clipping=clipping_table(propensity[known], clicks[known]),
        chosen=_chosen(propensity[known], clicks[known]),
        moves=moves,
        plan=plan,
    )


def clipping_table(
    propensity: Array, clicks: NDArray[np.int64], clips: tuple[float, ...] = CLIPS
) -> tuple[Clipping, ...]:
    """Return what each floor does to the weights of clicks with these propensities; nothing where there is no click.

    Example:
        >>> table = clipping_table(np.array([1.0, 0.25]), np.array([3, 1]))
        >>> [round(row.effective, 2) for row in table if row.clip in (0, 0.5, 1)]
        [2.58, 3.57, 4.0]
    """
    rows: list[Clipping] = []
    for clip in clips if clicks.sum() else ():
        weight = ips_weights(propensity, clip)
        clipped = float(clicks[propensity < clip].sum() / clicks.sum())
        rows.append(Clipping(clip, effective_sample_size(weight, clicks), clipped, float(weight[clicks > 0].max())))
    return tuple(rows)


def _chosen(propensity: Array, clicks: NDArray[np.int64]) -> Clipping | None:
    table = clipping_table(propensity, clicks, (vanishing_clip(float(clicks.sum())),))
    return table[0] if table else None


def _require_columns(source: ClickLog | Interventions, model: Propensities) -> None:
    if source.places != model.places:
        raise InputError(
            "the log shows other places than the model knows: give the log that the model was fitted on, with the same "
            "--place columns"
        )
    found = tuple(source.contexts) if isinstance(source, Interventions) else source.context
    needed = () if model.encoder is None else model.encoder.columns
    if missing := [column for column in needed if column not in found]:
        raise InputError(
            f"the model depends on the context columns {', '.join(missing)}, but the log was read with "
            f"{', '.join(found) or 'none'}: name all of them with --context, or leave the option out"
        )


def _rates(log: ClickLog, anchor: int, max_position: int | None) -> Propensities | None:
    try:
        return click_rates(log, anchor=anchor, max_position=max_position)
    except NotIdentifiedError:
        return None


def _clicked(log: ClickLog, max_position: int | None) -> tuple[Mapping[str, Any], NDArray[Any], NDArray[Any]]:
    """Return contexts, position and number of clicks, one row per context and position that has some."""
    rows = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    counts = rows.group_by(*log.context, "position").agg(clicks=rows.clicks.sum().cast("int64"))
    table = log.engine.fetch(counts.filter(counts.clicks > 0), task="Counting clicks by context")
    contexts = {column: table[column] for column in log.context}
    return contexts, table["position"].to_numpy(), table["clicks"].to_numpy()


def _propensities_of(
    model: Propensities, contexts: Mapping[str, Any], position: NDArray[Any], clicks: NDArray[Any]
) -> tuple[Array, NDArray[np.int64]]:
    """Return p_k(x) of each row, NaN where there is no estimate, and its clicks."""
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


def _spread(model: Propensities, interventions: Interventions) -> Array:
    """Return quantiles of p_k(x) over the impressions of the interventions, the mean between them, [3, K]."""
    point = replace(model, draws=None, draws_kind=None)
    if model.encoder is None:
        return np.repeat(point.predict().propensity, 3, axis=0)
    step = max(1, len(interventions) // MOST_CONTEXTS)
    rows = interventions.take(np.arange(0, len(interventions), step))
    p = point.predict(rows.contexts).propensity
    weight = np.maximum(rows.impressions, 1).astype(np.float64)
    spread = np.full((3, p.shape[1]), np.nan)
    spread[1] = weight @ p / weight.sum()
    for k in np.flatnonzero(np.isfinite(p).all(axis=0)):
        order = np.argsort(p[:, k])
        below = np.cumsum(weight[order]) / weight.sum()
        at = np.minimum(np.searchsorted(below, SPREAD), len(p) - 1)
        spread[[0, 2], k] = p[order[at], k]
    return spread
