"""Sensitivity: how far a curve moves when the penalty that holds it together is weaker or stronger.

A penalty, or a prior, is a choice. Where clicks are many it hardly matters; where the curve follows it, the number is
the choice's, not the clicks'. So the fit is made again with a tenth of it and with ten times as much, all else equal,
and the move is told in half widths of the interval: below 1 the new curve stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.pooling import can_pool, curve_order, with_penalty, with_spread
from clickharvest.estimation.sample import Sample, find_reach, make_samples
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.curves import Power, flatten_params, unflatten_params
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context

Array = NDArray[np.float64]

FACTORS = (0.1, 10.0)
"""What the penalty is multiplied with."""
MOST_CONTEXTS = 200
"""Contexts, beside the typical one, in which moves are looked for."""


@dataclass(frozen=True, eq=False)
class Move:
    """A curve with another penalty.

    Attributes:
        factor: what the penalty, or the precision of the prior, was multiplied with.
        propensity: p_k / p_anchor in the typical context at every position shown, NaN where there is no estimate, [K].
        typical: the largest |Δ log p_k| there, in half widths of the interval; None for a model without intervals.
        position: where that is.
        anywhere: the largest in the contexts of the data.
    """

    factor: float
    propensity: Array
    typical: float | None
    position: int
    anywhere: float | None


def penalty_moves(model: Propensities, interventions: Interventions, *, level: float = 0.95) -> tuple[Move, ...]:
    """Return how the curve moves with a tenth and with ten times its penalty.

    Nothing is returned where there is no penalty to change, or where another objective than ClickShare made the model.

    Args:
        model: the model.
        interventions: what it was fitted on.
        level: level of the intervals that moves are compared with.

    Example:
        >>> from clickharvest import CPBM, harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> interventions = harvest(read_log(simulate_ab_log(pages=5_000)[0], context=["device"]))
        >>> model = CPBM(curve="linear").fit(interventions).propensities_
        >>> [(move.factor, move.typical < 1) for move in penalty_moves(model, interventions)]
        [(0.1, True), (10.0, True)]
    """
    if model.info.get("objective") != "clickshare":
        return ()
    reach = find_reach(interventions, model.curve.anchor)._replace(linked=model.curve.positions)
    sample, seen = make_samples(interventions, reach, model.encoder)
    x = np.concatenate([typical_context(model), _some(sample.x)]) if model.encoder is not None else np.zeros((1, 0))
    own = model.predict_encoded(x, level=level)
    moves = []
    for factor, flat in _refits(model, sample, seen).items():
        params = unflatten_params(flat, model.params)
        other = replace(model, params=params, draws=None, draws_kind=None).predict_encoded(x)
        away = np.abs(np.log(other.propensity) - np.log(own.propensity))
        half = (np.log(own.upper) - np.log(own.lower)) / 2
        share = np.divide(away, half, out=np.full_like(away, -1.0), where=half > 0)
        measure = share if share[0].max() >= 0 else np.nan_to_num(away, nan=-1.0)
        typical, anywhere = (float(part.max()) if part.max() >= 0 else None for part in (share[0], share))
        moves.append(Move(factor, other.propensity[0], typical, model.shown[int(measure[0].argmax())], anywhere))
    return tuple(moves)


def _some(x: Array) -> Array:
    """Return evenly spaced rows."""
    some: Array = x[np.linspace(0, len(x) - 1, min(MOST_CONTEXTS, len(x))).astype(int)]
    return some


def _refits(model: Propensities, sample: Sample, seen: Sample) -> dict[float, Array]:
    """Return the parameters by factor of the penalty."""
    curve, info = model.curve, model.info
    if isinstance(curve, Power) and curve.apart and not model.params["d"].any():
        own = {name: value for name, value in model.params.items() if name != "d"}
        bare = replace(model, curve=replace(curve, apart=0), params=own, draws=None, draws_kind=None)
        none = np.zeros(model.params["d"].size)
        return {factor: np.insert(flat, curve.apart_at, none) for factor, flat in _refits(bare, sample, seen).items()}
    whole = replace(curve, positions=seen.positions)
    pooled, penalty = info.get("pooled"), info.get("penalty")
    linear = can_pool(curve, sample)
    if isinstance(pooled, Mapping) and linear:
        spread = {name: _positive(value) for name, value in pooled.items()}
        fitted = (whole, seen) if can_pool(whole, seen) else (curve, sample)
        fits = {factor: with_spread(*fitted, spread, factor) for factor in FACTORS}
    elif not (isinstance(penalty, int | float) and penalty > 0):
        return {}
    elif linear:
        fits = {factor: with_penalty(curve, sample, factor * penalty) for factor in FACTORS}
    else:
        params = flatten_params(model.params)
        fit = Fit(whole, ClickShare(seen), seen) if isinstance(curve, Power) else Fit(curve, ClickShare(sample), sample)
        start = fit.starts(len(FACTORS), 0)
        start[:, : len(params)] = params  # behind them, where contexts vary inside units, how much each clicks at all
        solved = fit.solve(start, np.ones((len(FACTORS), sample.n_clusters)), penalty * np.array(FACTORS))
        return dict(zip(FACTORS, solved.params[:, : len(params)], strict=True))
    return {factor: fit.theta[curve_order(curve, fit.shares)] for factor, fit in fits.items()}


def _positive(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
