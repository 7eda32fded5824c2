"""The fit of the browsing model: click shares over states, and the prior that pools states.

The EM of Dupret and Piwowarski needs the attraction of every document. Shares of a unit's clicks over the states that
it was shown in do not, just as shares over positions do not (`objectives.clickshare`): the state is fixed before the
result is looked at, so that the score stays a martingale.

With k the rank, j the last click above (0 for none) and d = k − j, the log examination of a state is

    no click above   −a log k + ρ_k − ρ_anchor
    last click at j  −a log k + ρ_k − ρ_anchor + c − s log k − t log d + β_k + δ_d + ε_{kj}

ρ_k ~ N(0, τ_ρ²) is how rank k deviates from a power law; c, s and t are how a click above changes looking on, by rank
and by distance; β_k ~ N(0, τ_β²), δ_d ~ N(0, τ_δ²) and ε_{kj} ~ N(0, τ_ε²) are how single ranks below a click, single
distances, and single states deviate from that. Users who begin anew below a click look by distance alone: β_k then
offsets ρ_k. Each feature of the context adds such effects on a (τ_u), on c (τ_v) and on single states (τ_ω). Without
clicks above, the prior is `power_law_prior` and the model the position-based one.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.browsing.fitted import (
    BrowsingPropensities,
    StatePropensities,
    n_states,
    number_of,
    require_few,
    state_places,
    states_of,
)
from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation.fitting import FEWEST
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.normal_prior import WIDE, NormalPrior
from clickharvest.estimation.pooling import (
    BOUNDS,
    LARGEST,
    START,
    Pooled,
    curve_order,
    logit_of,
    settle,
    start,
)
from clickharvest.estimation.query_random_effects import clustered_covariance
from clickharvest.estimation.sample import Sample, find_reach, make_sample
from clickharvest.estimation.support import find_support
from clickharvest.estimation.threads import on_one_thread
from clickharvest.estimation.uncertainty import sigma_points
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant, Curve, Linear, unflatten_params
from clickharvest.model.provenance import data_fingerprint, record_provenance
from clickharvest.progress import Progress, silent
from clickharvest.words import cluster_nouns, count

Array = NDArray[np.float64]

NORMAL = 1.959964
"""Of a 95 % interval."""


@on_one_thread
def fit_states(
    interventions: Interventions,
    *,
    anchor: int = 1,
    intervals: str | None = "auto",
    seed: int = 0,
    progress: Progress = silent,
) -> BrowsingPropensities:
    """Fit the model to interventions whose positions are numbers of states, as `Browsing.harvest` returns them.

    Args:
        interventions: the interventions.
        anchor: the rank that others are relative to, with no click above it.
        intervals: `"clustered"` (`query_random_effects`), which `"auto"` is, or None.
        seed: kept with the model; the fit has no randomness.
        progress: shows what is being done.

    Raises:
        InputError: there are too many states, or parameters.
        NotIdentifiedError: no state is linked to the anchor.
    """
    if intervals not in (None, "auto", "clustered"):
        raise InputError(f"no intervals {intervals!r} of a browsing model: expected auto, clustered or None")
    sample, linked, encoder = state_sample(interventions, anchor)
    curve = state_curve(sample, anchor)
    with progress("Pooling"):
        pooled = pool_states(curve, sample)
    if not pooled.status.good:
        warnings.warn(f"Browsing: the fit {pooled.status}", ConvergenceWarning, stacklevel=4)
    order = curve_order(curve, pooled.shares)
    params = unflatten_params(pooled.theta[order], curve.init(np.random.default_rng(0)))
    covariance, clustering = None, {}
    if intervals is not None and sample.n_clusters < FEWEST:
        by = sample.clustered_by
        warnings.warn(
            f"error bars are by {by}, and the clicks are of {count(sample.n_clusters, *cluster_nouns(by))}: there are "
            f"none to give with fewer than {FEWEST}",
            HarvestWarning,
            stacklevel=4,
        )
    elif intervals is not None:
        with progress("Error bars"):
            clustered = clustered_covariance(pooled)
        covariance, clustering = clustered.covariance, {"clustered": clustered.about}
    draws = None
    if covariance is not None:
        draws = sigma_points(pooled.theta[order], covariance[np.ix_(order, order)]).astype(np.float32)
    states = StatePropensities(
        curve=curve,
        params=params,
        encoder=encoder,
        shown=curve.positions,
        draws=draws,
        draws_kind=None if draws is None else "clustered",
        support=find_support(sample, curve, params, encoder),
        places=state_places(int(states_of(curve.positions[-1])[0])),
        leaning=tuple(k for k in curve.positions if k not in set(linked)),
    )
    info: dict[str, Any] = {
        "estimator": "Browsing",
        "objective": "clickshare",
        "pooled": pooled.spread,
        **clustering,
        "status": str(pooled.status),
        "log_likelihood": pooled.at.value,
        "units": len(np.unique(sample.whole)),
        "clicks": int(sample.clicks.sum()),
        "queries": sample.n_queries,
        "clustered_by": sample.clustered_by,
        "clusters": sample.n_clusters,
        "seed": seed,
        "data": data_fingerprint(interventions),
        "displays": np.bincount(sample.position, sample.exposure, len(curve.positions)).tolist(),
        "click_above": _effects(curve, pooled, sample, covariance),
    }
    settings = {"anchor": anchor, "intervals": intervals, "seed": seed}
    return BrowsingPropensities(states, info, record_provenance("Browsing", settings))


def state_sample(interventions: Interventions, anchor: int) -> tuple[Sample, tuple[int, ...], ContextEncoder | None]:
    """Return a sample over all states of the ranks there are, the states linked to the anchor, and the encoder.

    The sample has the rows of all states that clicked units tie to the anchor, including states without clicks, because
    the prior pools states. But where nothing below a click was clicked at all, the log may keep only one click of a
    page: the sample then leaves out states below a click.

    Args:
        interventions: their positions are numbers of states.
        anchor: the rank of the anchor.

    Raises:
        InputError: there are too many states.
        NotIdentifiedError: no state is linked to the anchor.
    """
    ranks = int(states_of(interventions.position)[0].max())
    require_few(ranks)
    try:
        linked, tied = find_reach(interventions, int(number_of(anchor, 0)))
    except NotIdentifiedError:
        raise NotIdentifiedError(
            f"no browsing state is linked to position {anchor} with no click above it: clicked units were never met "
            "both there and in another state; run clickharvest check to see what would help"
        ) from None
    below = states_of(interventions.position)[1] > 0
    if not interventions.clicks[below].any():
        tied = tuple(k for k in tied if states_of(k)[1] == 0)
    encoder = ContextEncoder.fit(interventions.contexts) if interventions.contexts else None
    sample = make_sample(interventions, tied, encoder)
    every = tuple(range(1, n_states(ranks) + 1))
    return replace(sample, positions=every, position=np.array(tied)[sample.position] - 1), linked, encoder


def pool_states(curve: Curve, sample: Sample) -> Pooled:
    """Fit a curve over browsing states, variances by marginal likelihood.

    Args:
        curve: `Constant` or `Linear` over the numbers of states.
        sample: the sample, whose positions are those numbers.

    Raises:
        InputError: the parameters are too many.
    """
    size = (len(curve.positions) - 1) * (1 + curve.n_features)
    if size > LARGEST:
        raise InputError(
            f"{len(curve.positions):,} browsing states with {curve.n_features} context features make {size:,} "
            f"parameters: expected at most {LARGEST:,}; leave out context columns, or low positions with --max-position"
        )
    shares = logit_of(curve, sample)
    rank, _ = states_of(curve.positions)
    shares.log_position = np.log(rank)
    others = np.delete(np.array(curve.positions), curve.anchor_index)
    anchor = int(rank[curve.anchor_index])
    observed = np.delete(np.isin(np.arange(len(curve.positions)), shares.position), curve.anchor_index)
    prior = state_prior(others, anchor, shares, observed)
    log_spread = np.log(np.where(prior.learned, START, BOUNDS[0]))
    steep = np.log(np.delete(rank, curve.anchor_index) / anchor)
    begun = start(-steep, shares, prior.matrix(np.exp(log_spread)))
    return settle(replace(begun, prior=prior, log_spread=log_spread))


def state_prior(
    numbers: NDArray[np.int64], anchor: int, shares: MultinomialLogit, observed: NDArray[np.bool_]
) -> NormalPrior:
    """Return the prior of states, with the effects named above.

    a is free, and c, s and t have a standard deviation of 1: a click above rarely changes looking by more than e².

    Args:
        numbers: numbers of the states but the anchor, [M].
        anchor: the anchor's rank.
        shares: the click shares that the parameters belong to.
        observed: whether the sample has each state, [M].
    """
    rank, last = states_of(numbers)
    below = last > 0
    steep, far = np.log(rank / anchor)[:, None], np.log(np.maximum(rank - last, 1))[:, None]
    laws = below[:, None] * np.concatenate([np.ones_like(far), steep, far], axis=1)
    distances = np.where(below, rank - last, 0)
    ranks = np.union1d(rank, anchor)
    by_rank, by_distance = (rank[:, None] == ranks) * 1.0, (distances[:, None] == np.unique(distances)) * 1.0
    by_state = np.eye(len(numbers))[:, below]
    groups = {
        "rank": by_rank - (ranks == anchor),
        "rank_below": by_rank * below[:, None],
        "distance": by_distance * below[:, None],
        "state": by_state,
    }
    contexts = {
        "context_steepness": steep,
        "context_click": below[:, None] * 1.0,
        "context_state": np.concatenate([by_rank, by_state], axis=1),
    }
    clicked, varies = bool((observed & below).any()), shares.width > 1
    learned = {
        "rank": len(np.unique(rank[observed & ~below])) > 1,
        "rank_below": len(np.unique(rank[observed & below])) > 1,
        "distance": clicked,
        "state": clicked,
        "context_steepness": varies,
        "context_click": varies and clicked,
        "context_state": varies and len(numbers) > 1,
    }
    fixed = np.concatenate([WIDE * steep, laws], axis=1)
    unlearned = [name for name, can_be in learned.items() if not can_be]
    return NormalPrior(groups, contexts, fixed, shares.width, shares.size, unlearned)


def state_curve(sample: Sample, anchor: int) -> Curve:
    """Return the curve over the states of a sample: linear where there is context."""
    kind = Linear if sample.x.shape[1] else Constant
    return kind(sample.positions, int(number_of(anchor, 0)), sample.x.shape[1])


def _effects(curve: Curve, pooled: Pooled, sample: Sample, covariance: Array | None) -> dict[str, Any]:
    """Return how many times as often a result is looked at below a click as without one, right below and further down.

    These are averages of log γ_{kj} − log γ_{k0} in an average context, over the impressions of clicked units in states
    (k, j) of ranks other than the anchor's.
    """
    rank, last = states_of(curve.positions)
    exposure = np.bincount(sample.position, sample.exposure, len(rank))
    none = number_of(rank, 0) - 1
    column = np.full(len(rank), -1)
    column[np.delete(np.arange(len(rank)), curve.anchor_index)] = np.arange(len(rank) - 1) * pooled.shares.width
    effects: dict[str, Any] = {}
    for name, chosen in (("next", rank - last == 1), ("further", rank - last > 1)):
        weight = np.where(chosen & (last > 0), exposure, 0.0)
        if not weight.any():
            effects[name] = None
            continue
        weight /= weight.sum()
        contrast = np.zeros(pooled.shares.size)
        for state, sign in ((np.arange(len(rank)), 1.0), (none, -1.0)):
            there = column[state] >= 0
            np.add.at(contrast, column[state][there], sign * weight[there])
        value = float(contrast @ pooled.theta)
        effects[name] = {"ratio": math.exp(value)}
        if covariance is not None:
            sd = math.sqrt(max(float(contrast @ covariance @ contrast), 0.0))
            effects[name] |= {"lower": math.exp(value - NORMAL * sd), "upper": math.exp(value + NORMAL * sd)}
    return effects
