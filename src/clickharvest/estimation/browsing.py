"""Browsing: examination by rank and last click above, estimated by click shares over browsing states.

    Pr(click | unit u, state (k, j), context x) = γ_{kj}(x) r_u

is the user browsing model of Dupret and Piwowarski (2008). Their EM needs the attraction of every document; shares of a
unit's clicks over the states it was met in are free of it, just as shares over positions are (`objectives.clickshare`).
The state is fixed before the result is looked at, so that the score stays a martingale.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from clickharvest.diagnosis.findings import Finding
from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation.devices import on_one_thread
from clickharvest.estimation.fitting import FEWEST
from clickharvest.estimation.linear_shares import LinearShares
from clickharvest.estimation.pooling import (
    BOUNDS,
    LARGEST,
    START,
    Pooled,
    curve_order,
    linear_shares,
    pool,
    settle,
    start,
)
from clickharvest.estimation.query_effects import clustered_covariance
from clickharvest.estimation.sample import Sample, find_reach, make_sample
from clickharvest.estimation.selection import fold_weights
from clickharvest.estimation.state_prior import StatePrior
from clickharvest.estimation.support import find_support
from clickharvest.estimation.uncertainty import sigma_points
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import distinct, numbered
from clickharvest.model.browsing import BrowsingPropensities, StatePropensities
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant, Curve, Linear, unflatten_params
from clickharvest.model.fingerprint import data_fingerprint
from clickharvest.model.provenance import record_provenance
from clickharvest.parameters import Parameterised
from clickharvest.positions.states import n_states, number_of, require_few, state_places, states_of
from clickharvest.progress import Progress, silent
from clickharvest.words import cluster_nouns, count

Array = NDArray[np.float64]

MANY = 200
"""States beyond which variances are not chosen again for every fold."""
NORMAL = 1.959964
"""Of a 95 % interval."""


class Browsing(Parameterised):
    """The user browsing model: examination depends on position and on the last click above it.

    Args:
        anchor: the position that others are relative to, with no click above it.
        intervals: `"clustered"` (`query_effects`), which `"auto"` is, or None.
        seed: kept with the model; the fit has no randomness.
        progress: shows what is being done, see `clickharvest.progress`; nothing by default.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.logs.browsing import browsing_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=3_000)
        >>> model = Browsing().fit(harvest(browsing_log(read_log(log))))
        >>> model.propensities_.propensity_of(rank=[1, 2, 2], last_click=[0, 0, 1]).shape
        (3,)
    """

    def __init__(
        self,
        *,
        anchor: int = 1,
        intervals: Literal["auto", "clustered"] | None = "auto",
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.anchor, self.intervals, self.seed, self.progress = anchor, intervals, seed, progress

    propensities_: BrowsingPropensities

    @on_one_thread
    def fit(self, interventions: Interventions, y: None = None) -> Self:
        """Fit to the interventions of `browsing_log`, whose positions are numbers of states.

        Raises:
            InputError: there are too many states, or parameters.
            NotIdentifiedError: no state is linked to the anchor.
        """
        if self.intervals not in (None, "auto", "clustered"):
            raise InputError(f"no intervals {self.intervals!r} of a browsing model: expected auto, clustered or None")
        sample, linked, encoder = state_sample(interventions, self.anchor)
        curve = _curve(sample, self.anchor)
        with self.progress("Pooling"):
            pooled = pool_states(curve, sample)
        if not pooled.status.good:
            warnings.warn(f"Browsing: the fit {pooled.status}", ConvergenceWarning, stacklevel=3)
        order = curve_order(curve, pooled.shares)
        params = unflatten_params(pooled.theta[order], curve.init(np.random.default_rng(0)))
        covariance, about = self._covariance(pooled, sample)
        states = StatePropensities(
            curve=curve,
            params=params,
            encoder=encoder,
            shown=curve.positions,
            draws=None
            if covariance is None
            else sigma_points(pooled.theta[order], covariance[np.ix_(order, order)]).astype(np.float32),
            draws_kind=None if covariance is None else "clustered",
            support=find_support(sample, curve, params, encoder),
            places=state_places(int(states_of(curve.positions[-1])[0])),
            leaning=tuple(k for k in curve.positions if k not in set(linked)),
        )
        info: dict[str, Any] = {
            "estimator": "Browsing",
            "objective": "clickshare",
            "pooled": pooled.spread,
            **about,
            "status": str(pooled.status),
            "log_likelihood": pooled.at.value,
            "units": len(np.unique(sample.whole)),
            "clicks": int(sample.clicks.sum()),
            "queries": sample.n_queries,
            "clustered_by": sample.clustered_by,
            "clusters": sample.n_clusters,
            "seed": self.seed,
            "data": data_fingerprint(interventions),
            "click_above": _effects(curve, pooled, sample, covariance),
        }
        settings = {name: value for name, value in self.get_params().items() if name != "progress"}
        self.propensities_ = BrowsingPropensities(states, info, record_provenance("Browsing", settings))
        return self

    def _covariance(self, pooled: Pooled, sample: Sample) -> tuple[Array | None, dict[str, Any]]:
        """Return the covariance by query, None where there is none to give, and what it rests on."""
        if self.intervals is None:
            return None, {}
        if sample.n_clusters < FEWEST:
            by = sample.clustered_by
            told = (
                f"error bars are by {by}, and the clicks are of {count(sample.n_clusters, *cluster_nouns(by))}: there "
                f"are none to give with fewer than {FEWEST}"
            )
            warnings.warn(told, HarvestWarning, stacklevel=4)
            return None, {}
        with self.progress("Error bars"):
            found = clustered_covariance(pooled)
        return found.covariance, {"clustered": found.about}


def state_sample(interventions: Interventions, anchor: int) -> tuple[Sample, tuple[int, ...], ContextEncoder | None]:
    """Return a sample over all states of the ranks there are, the states linked to the anchor, and the encoder.

    The sample has the rows of all states that clicked units tie to the anchor: that a state was met and not clicked
    tells of others, which lean on the same laws. But where nothing below a click was clicked at all, a log that keeps
    one click of a page is as likely a reason as users are: states below a click then tell nothing.

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


@dataclass(frozen=True)
class HeldOutGain:
    """How much better browsing states explain the clicks of queries that were held out than positions do.

    Attributes:
        gain: log likelihood of the browsing model minus that of the position-based one, per click.
        lower: lower end of its 95 % interval, by query.
        upper: upper end.
        browsing: log likelihood per click of the browsing model.
        ranks: of the position-based one.
        clicks: clicks that were held out.
        clusters: queries they are of.
    """

    gain: float
    lower: float
    upper: float
    browsing: float
    ranks: float
    clicks: int
    clusters: int


def compare_with_ranks(
    interventions: Interventions, *, anchor: int = 1, folds: int = 5, seed: int = 0, progress: Progress = silent
) -> HeldOutGain:
    """Compare the browsing model with the position-based one by the click shares of held-out queries.

    Both share a unit's clicks out over its states, π ∝ e γ; for the position-based model γ is that of the rank. Each is
    fitted to all queries but those of a fold, variances chosen again (not of more than 200 states: that takes minutes,
    and they are seven numbers), and judged on that fold.

    Whatever makes users who clicked above click below counts: that they read on, or that they click more than others.
    `diagnosis.cascade` tells these apart, this does not.

    Args:
        interventions: their positions are numbers of states.
        anchor: the rank of the anchor.
        folds: folds of queries.
        seed: seed of the folds.
        progress: shows how much is done.

    Raises:
        InputError: there are fewer than three queries.
    """
    sample, _, _ = state_sample(interventions, anchor)
    _require_queries(sample)
    fits = [_pooled_states(sample, anchor), _pooled_ranks(sample, anchor)]
    browsing, ranks = (_held_out(fit, folds, seed, progress) for fit in fits)
    return _gain(fits[0].shares, browsing, ranks)


def compare_within_ranks(
    interventions: Interventions, *, anchor: int = 1, folds: int = 5, seed: int = 0, progress: Progress = silent
) -> HeldOutGain:
    """Compare the two by how the clicks of a unit *at one rank* are shared out over the last click above.

    Queries that are read to different depths have more or fewer clicks above, so that states tell of depth, and
    `compare_with_ranks` finds a gain where nobody browses, unless a context tells how deep they are read. The same
    result at the same rank, in one query and context, is free of this: for the position-based model π ∝ e there.

    Args:
        interventions: their positions are numbers of states.
        anchor: the rank of the anchor.
        folds: folds of queries.
        seed: seed of the folds.
        progress: shows how much is done.

    Raises:
        InputError: fewer than three queries have a unit that was clicked at a rank where it was met in two states.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.logs.browsing import browsing_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log = read_log(simulate_ab_log(pages=3_000)[0], context=["device"])
        >>> abs(compare_within_ranks(harvest(browsing_log(log))).gain) < 0.01
        True
    """
    sample = _at_one_rank(state_sample(interventions, anchor)[0])
    _require_queries(sample)
    states = _pooled_states(sample, anchor)
    by_exposure = states.shares.by_query(states.shares.shares_of(np.zeros(len(states.shares.unit))))
    return _gain(states.shares, _held_out(states, folds, seed, progress), by_exposure)


def _at_one_rank(sample: Sample) -> Sample:
    """Return a sample, without contexts, whose units are those of one context and rank that were met in two states."""
    rank = states_of(sample.positions)[0][sample.position]
    _, unit = distinct(sample.unit, sample.context, rank)
    clicks = np.bincount(unit, sample.clicks)
    rows = np.argsort(unit, kind="stable")
    rows = rows[(np.bincount(unit) > 1)[unit[rows]] & (clicks > 0)[unit[rows]]]
    n_clusters, cluster = numbered(sample.cluster[rows])
    return replace(
        sample,
        x=np.zeros((1, 0)),
        unit=numbered(unit[rows])[1],
        context=np.zeros_like(rows),
        position=sample.position[rows],
        exposure=sample.exposure[rows],
        clicks=sample.clicks[rows],
        impressions=sample.impressions[rows],
        cluster=cluster,
        n_clusters=n_clusters,
        unit_kind="context",
        division=None,
    )


def _require_queries(sample: Sample) -> None:
    if sample.n_clusters < FEWEST:
        found = count(sample.n_clusters, "query", "queries")
        raise InputError(f"clicks of {found}: expected {FEWEST} or more to hold some of them out")


def _held_out(fit: Pooled, folds: int, seed: int, progress: Progress) -> Array:
    """Return the log likelihood of every query under a fit to those of other folds, [queries]."""
    if fit.shares.n_positions > MANY:
        fit = replace(fit, prior=None)
    queries = fit.shares.n_clusters
    scores = np.zeros(queries)
    aside = fold_weights(queries, min(folds, queries), seed)
    with progress("Holding queries out") as update:
        for i, held in enumerate(aside):
            scores += held * fit.shares.by_query(fit.shares.shares(fit.refit(1.0 - held).theta))
            update((i + 1) / len(aside))
    return scores


def _gain(shares: LinearShares, browsing: Array, ranks: Array) -> HeldOutGain:
    """Return the gain per click, of log likelihoods by query, [queries]."""
    clicks = np.bincount(shares.cluster, shares.clicks, shares.n_clusters)
    total, used = float(clicks.sum()), int(np.count_nonzero(clicks))
    difference = browsing - ranks
    gain = float(difference.sum() / total)
    error = math.sqrt(float(((difference - gain * clicks) ** 2).sum()) * used / max(used - 1, 1)) / total
    margin = float(student.ppf(0.975, max(used - 1, 1))) * error
    by = float(browsing.sum() / total), float(ranks.sum() / total)
    return HeldOutGain(gain, gain - margin, gain + margin, by[0], by[1], int(total), used)


def is_it_worth_it(gain: HeldOutGain) -> Finding:
    """Return what a comparison says, in a sentence.

    Example:
        >>> print(is_it_worth_it(HeldOutGain(0.02, 0.01, 0.03, -0.5, -0.52, 1000, 40)).sentence)
        Held-out queries: clicks above explain clicks better than positions alone, by 0.0200 per click (0.0100 to \
0.0300).
    """
    told = f"by {abs(gain.gain):.4f} per click ({gain.lower:.4f} to {gain.upper:.4f})"
    if gain.lower > 0:
        sentence = f"Held-out queries: clicks above explain clicks better than positions alone, {told}."
        return Finding("browsing", "ok", sentence, gain.gain)
    if gain.upper < 0:
        sentence = f"Held-out queries: positions alone explain clicks better, {told}: use --model examination."
        return Finding("browsing", "warning", sentence, gain.gain)
    sentence = (
        f"Held-out queries: clicks above do not clearly explain clicks better than positions alone (the gain is "
        f"{gain.gain:.4f} per click, {gain.lower:.4f} to {gain.upper:.4f}): --model examination is simpler."
    )
    return Finding("browsing", "note", sentence, gain.gain)


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
    shares = linear_shares(curve, sample)
    rank, _ = states_of(curve.positions)
    shares.log_position = np.log(rank)
    others = np.delete(np.array(curve.positions), curve.anchor_index)
    anchor = int(rank[curve.anchor_index])
    told = np.delete(np.isin(np.arange(len(curve.positions)), shares.position), curve.anchor_index)
    prior = StatePrior(others, anchor, shares, told)
    log_spread = np.log(np.where(prior.learned, START, BOUNDS[0]))
    steep = np.log(np.delete(rank, curve.anchor_index) / anchor)
    begun = start(-steep, shares, prior.matrix(np.exp(log_spread)))
    return settle(replace(begun, prior=prior, log_spread=log_spread))


def _curve(sample: Sample, anchor: int) -> Curve:
    kind = Linear if sample.x.shape[1] else Constant
    return kind(sample.positions, int(number_of(anchor, 0)), sample.x.shape[1])


def _pooled_states(sample: Sample, anchor: int) -> Pooled:
    return pool_states(_curve(sample, anchor), sample)


def _pooled_ranks(sample: Sample, anchor: int) -> Pooled:
    """Return the position-based fit to the same cells: states of one rank have the same examination."""
    rank, _ = states_of(sample.positions)
    positions, index = np.unique(rank, return_inverse=True)
    kind = Linear if sample.x.shape[1] else Constant
    curve = kind(tuple(int(k) for k in positions), anchor, sample.x.shape[1])
    return pool(curve, replace(sample, positions=curve.positions, position=index[sample.position]))


def _effects(curve: Curve, pooled: Pooled, sample: Sample, covariance: Array | None) -> dict[str, Any]:
    """Return how many times as often a result is looked at below a click as without one, right below and further.

    Averages of log γ_{kj} − log γ_{k0}, where contexts are average, over the impressions of clicked units in states
    (k, j) of ranks other than the anchor's.
    """
    rank, last = states_of(curve.positions)
    exposure = np.bincount(sample.position, sample.exposure, len(rank))
    none = number_of(rank, 0) - 1
    column = np.full(len(rank), -1)
    column[np.delete(np.arange(len(rank)), curve.anchor_index)] = np.arange(len(rank) - 1) * pooled.shares.width
    found: dict[str, Any] = {}
    for name, chosen in (("next", rank - last == 1), ("further", rank - last > 1)):
        weight = np.where(chosen & (last > 0), exposure, 0.0)
        if not weight.any():
            found[name] = None
            continue
        weight /= weight.sum()
        contrast = np.zeros(pooled.shares.size)
        for state, sign in ((np.arange(len(rank)), 1.0), (none, -1.0)):
            there = column[state] >= 0
            np.add.at(contrast, column[state][there], sign * weight[there])
        value = float(contrast @ pooled.theta)
        found[name] = {"ratio": math.exp(value)}
        if covariance is not None:
            sd = math.sqrt(max(float(contrast @ covariance @ contrast), 0.0))
            found[name] |= {"lower": math.exp(value - NORMAL * sd), "upper": math.exp(value + NORMAL * sd)}
    return found
