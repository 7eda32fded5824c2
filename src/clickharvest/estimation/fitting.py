"""What estimators share: the fit of what was chosen, its intervals, and the result."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError
from clickharvest.estimation.local_linear_fit import linearise
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.model_uncertainty import curve_disagreement, misfit, some_contexts, widened
from clickharvest.estimation.objectives import OBJECTIVES
from clickharvest.estimation.objectives.base import Objective
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Solution, Status
from clickharvest.estimation.pooling import LARGEST, Pooled, can_pool, curve_order
from clickharvest.estimation.query_random_effects import clustered_covariance
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import Judged
from clickharvest.estimation.support import find_support
from clickharvest.estimation.uncertainty import bootstrap, normal_draws, sandwich, sigma_points
from clickharvest.harvesting.interventions import Interventions, require_interventions, warn_of_clicked_pages
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Curve, Power, flatten_params, unflatten_params
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import DrawsKind, Propensities
from clickharvest.model.provenance import data_fingerprint, record_provenance
from clickharvest.parameters import Parameterised, require_number, require_whole
from clickharvest.positions.places import Anchor
from clickharvest.progress import Progress
from clickharvest.words import cluster_nouns, count

Intervals = Literal["auto", "clustered", "bootstrap", "sandwich"]
Array = NDArray[np.float64]

FEWEST = 3
"""Clusters below which there are no error bars: how two differ says next to nothing of how others would."""
FLAT = 1e-6
"""Curvature, by the largest, below which a loss without penalty counts as flat."""
LEAST = {"seed": 0, "replicates": 2, "folds": 2, "starts": 1}
"""What whole numbers among the parameters are at least."""


@dataclass(frozen=True)
class Choice:
    """What is to be fitted on everything.

    Attributes:
        fit: curve and objective.
        penalty: its penalty; 0 where the curve is pooled.
        pooled: the fit of a curve that is pooled.
        judged: the candidates it was chosen among.
        about: what a model file keeps of the choice.
        flat: the parameters, where they are fitted already.
        near: parameters where the fit starts, beside the curve's own starts.
        learner: a fit of the same parameters that sees more positions, and is fitted instead.
        by_folds: whether folds chose curve, penalty or relevance.
        rivals: how far curves differed, by position, among which another log chose.
    """

    fit: Fit
    penalty: float
    pooled: Pooled | None = None
    judged: tuple[Judged, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    flat: Array | None = None
    near: Array | None = None
    learner: Fit | None = None
    by_folds: bool = False
    rivals: Mapping[int, float] | None = None


class Estimator(Parameterised):
    """What PBM and CPBM share."""

    objective: str
    anchor: Anchor
    starts: int
    optimiser: Literal["lbfgs", "adam"]
    intervals: Intervals | None
    replicates: int
    seed: int
    progress: Progress
    propensities_: Propensities

    def __str__(self) -> str:
        return str(self.propensities_) if hasattr(self, "propensities_") else f"{self!r}, not fitted yet"

    def predict(self, contexts: Any = None, *, level: float = 0.95, simultaneous: bool = False) -> Prediction:
        """Return the propensities of contexts with their intervals, see `Propensities.predict`.

        Raises:
            NotFittedError: `fit` was not called yet.
        """
        return self.propensities_.predict(contexts, level=level, simultaneous=simultaneous)

    def _check(self, interventions: Interventions) -> None:
        """See that parameters and data can be fitted, before any work."""
        require_interventions(interventions)
        for name, least in LEAST.items():
            require_whole(name, getattr(self, name, least), least)
        if (penalty := getattr(self, "penalty", "auto")) != "auto":
            require_number("penalty", penalty, 0.0)

    def _objectives(self, sample: Sample) -> Mapping[str, Objective]:
        """Return the objective, or those to choose from, made with the options that it declares and that are given."""
        kind = OBJECTIVES.find(self.objective)
        options = {name: value for name in kind.options() if (value := getattr(self, name, None)) is not None}
        return kind.alternatives(sample, **options)

    def _finish(
        self,
        interventions: Interventions,
        samples: tuple[Sample, Sample],
        encoder: ContextEncoder | None,
        choice: Choice,
    ) -> None:
        """Fit what was chosen on everything, add intervals, and keep the result; samples as `make_samples` has them."""
        sample, seen = samples
        if OBJECTIVES.find(self.objective).against_shown:
            warn_of_clicked_pages(interventions, f"the objective {self.objective}", stacklevel=5)
        fit, pooled, like = choice.fit, choice.pooled, choice.fit.curve.init(np.random.default_rng(0))
        about: dict[str, Any] = {"penalty": choice.penalty}
        if pooled is not None:
            flat, status = pooled.theta[curve_order(fit.curve, pooled.shares)], pooled.status
            if pooled.spread is not None:
                names = () if encoder is None else encoder.feature_names
                off = pooled.off_curve
                in_contexts = {names[i - 1]: at for i, at in off.items() if i}
                about = {"pooled": pooled.spread, "odd": off.get(0, []), "odd_in": in_contexts}
        elif choice.flat is not None:
            flat, status = choice.flat, Status.converged
        else:
            flat, status = self._fit_choice(choice, np.ones(sample.n_clusters))
        if pooled is not None and pooled.shares.positions == sample.positions:
            log_likelihood = pooled.at.value
        else:
            log_likelihood = float(fit.held_out(flat[None], np.ones((1, sample.n_clusters)))[0])
        size = len(flatten_params(like))
        if not status.good:
            warnings.warn(f"{type(self).__name__}: the fit {status}", ConvergenceWarning, stacklevel=4)
        kind, draws, rests_on = self._draws(choice, sample, seen, flat)
        info: Mapping[str, Any] = {
            "estimator": type(self).__name__,
            "objective": self.objective,
            **choice.about,
            **about,
            **rests_on,
            "status": str(status),
            "log_likelihood": log_likelihood,
            "units": len(np.unique(sample.whole)),
            "clicks": int(sample.clicks.sum()),
            "queries": sample.n_queries,
            "clustered_by": sample.clustered_by,
            "clusters": sample.n_clusters,
            "selection": [one.candidate.to_dict() for one in choice.judged],
            "seed": self.seed,
            "data": data_fingerprint(interventions),
        }
        settings = {name: value for name, value in self.get_params().items() if name not in ("progress", "start")}
        curve, params = fit.curve, unflatten_params(flat[:size], like)
        if draws is not None and draws.shape[1] > len(flat) and isinstance(curve, Power):
            curve, params = curve.set_apart(params)
        size = len(flatten_params(params))
        self.propensities_ = Propensities(
            curve=curve,
            params=params,
            encoder=encoder,
            shown=tuple(int(k) for k in np.unique(interventions.position)),
            draws=None if draws is None else draws[:, :size].astype(np.float32),
            draws_kind=None if draws is None else kind,
            info=info,
            provenance=record_provenance(type(self).__name__, settings),
            support=find_support(sample, curve, params, encoder),
            places=interventions.places,
        )

    def _fit_choice(self, choice: Choice, weights: Array) -> tuple[Array, Status]:
        """Return the parameters of the best start, each query weighted, [n] and [queries], and how it ended."""
        fit = choice.learner or choice.fit
        starts = np.unique(fit.starts(self.starts, self.seed), axis=0)
        if choice.near is not None:
            # A curve that starts anywhere has several optima, one that does not has one, and is near it.
            starts = np.concatenate([choice.near[None], starts if len(starts) > 1 else starts[:0]])
        count = len(starts)
        solution = self._solve(fit, starts, np.tile(weights, (count, 1)), np.full(count, choice.penalty))
        best = int(np.nanargmin(solution.value))
        return solution.params[best], solution.status[best]

    def _solve(self, fit: Fit, starts: Array, weights: Array, penalty: Array) -> Solution:
        with self.progress("Fitting"):
            return fit.settle(starts, weights, penalty)

    def _draws(
        self, choice: Choice, sample: Sample, seen: Sample, flat: Array
    ) -> tuple[DrawsKind | None, Array | None, Mapping[str, Any]]:
        """Return the kind of the intervals, draws or points of the parameters, and what they rest on."""
        if self.intervals is None:
            return None, None, {}
        fit, penalty, learner = choice.fit, choice.penalty, choice.learner or choice.fit
        if fit.n_clusters < FEWEST:
            by = sample.clustered_by
            sentence = (
                f"error bars are by {by}, and the clicks are of {count(fit.n_clusters, *cluster_nouns(by))}: there are "
                f"none to give with fewer than {FEWEST}"
            )
            warnings.warn(sentence, HarvestWarning, stacklevel=5)
            return None, None, {}
        if choice.pooled is not None or self._can_cluster(type(fit.objective), len(flat)):
            with self.progress("Error bars"):
                covariance, about = clustered_by_query(choice, sample, seen, flat)
            if (apart := len(covariance) - len(flat)) > 0:
                flat = np.insert(flat, Power.apart_at, np.zeros(apart))
            return "clustered", sigma_points(flat, covariance), {"clustered": about}
        if self.intervals == "auto" and choice.by_folds:
            sentence = (
                "the clicks chose curve, penalty or relevance, and a bootstrap does not count that: there are no error "
                "bars. Fit with the objective clickshare and the optimiser lbfgs, whose error bars do, or name them all"
            )
            warnings.warn(sentence, HarvestWarning, stacklevel=5)
            return None, None, {"by_folds": True}
        if self.intervals == "sandwich":
            with self.progress("Error bars"):
                covariance = sandwich(learner, flat, penalty)
            draws = normal_draws(flat, covariance, replicates=self.replicates, seed=self.seed)
            return "sandwich", draws, uncounted(choice, sample, flat, draws)
        with self.progress("Bootstrap") as update:
            draws = bootstrap(learner, flat, penalty, replicates=self.replicates, seed=self.seed, update=update)
        return "bootstrap", draws, uncounted(choice, sample, flat, draws)

    def _poolable(self, curves: Iterable[Curve], objective: Objective, sample: Sample) -> list[Curve]:
        """Return the curves that are fitted as `pooling` does: not where intervals are asked for that know no prior."""
        self._check_intervals(type(objective))
        return [curve for curve in curves if self._can_cluster(type(objective)) and can_pool(curve, sample)]

    def _check_intervals(self, objective: type[Objective]) -> None:
        if self.intervals not in (None, *get_args(Intervals)):
            raise InputError(f"no intervals {self.intervals!r}: expected {', '.join(get_args(Intervals))} or None")
        if self.intervals == "clustered" and not self._can_cluster(objective):
            raise InputError(
                "clustered intervals are for the objective clickshare and the optimiser lbfgs: choose these, or "
                "intervals='auto'"
            )

    def _can_cluster(self, objective: type[Objective], size: int = 0) -> bool:
        """Return whether intervals are `clustered`, and curves pooled where they can be."""
        wanted = self.intervals not in ("bootstrap", "sandwich") and self.optimiser == "lbfgs"
        return wanted and objective is ClickShare and size <= LARGEST


def uncounted(choice: Choice, sample: Sample, flat: Array, draws: Array) -> dict[str, Any]:
    """Return what draws do not count: that folds chose (`by_folds`), or what a given penalty has shrunk (`shrunk`).

    The latter is what shrinkage leaves unknown of log p, by the variance of the draws, for every position; nothing
    where there is no penalty. For ClickShare, a likelihood, that is what a prior leaves unknown; for others the square
    of how far a step of Newton's leads without the penalty, H₀⁻¹ λ ∇penalty: what is flat there may be anywhere.

    Args:
        choice: what was fitted.
        sample: the sample at the curve's positions.
        flat: the fitted parameters, [n].
        draws: their draws, [B, n].
    """
    if choice.by_folds:
        return {"by_folds": True}
    if not choice.penalty:
        return {}
    if type(choice.fit.objective) is ClickShare:
        near = linearise(choice.fit, sample, flat, choice.penalty)
        root = np.linalg.solve(near.information + near.precision, near.left)
        unknown = np.linalg.solve(near.information + near.precision, root.T)
        slopes = near.shares.gradients(some_contexts(sample))
    else:
        fit = choice.learner or choice.fit
        values, axes = np.linalg.eigh(fit.information(flat))
        pull = axes.T @ (choice.penalty * fit.ridge * flat)
        step = axes @ (pull / np.maximum(values, FLAT * values.max()))
        unknown = np.outer(step, step)
        slopes = fit.gradients(flat, some_contexts(sample))
        slopes = slopes - slopes[:, [fit.curve.anchor_index]]
    left, counted = (
        np.einsum("ckp,pq,ckq->k", slopes, matrix, slopes, optimize=True)
        for matrix in (unknown, np.atleast_2d(np.cov(draws, rowvar=False)))
    )
    return {"shrunk": np.divide(left, counted, out=np.zeros_like(left), where=counted > 0).tolist()}


def clustered_by_query(choice: Choice, sample: Sample, seen: Sample, flat: Array) -> tuple[Array, dict[str, Any]]:
    """Return the covariance of a curve's parameters, [n, n], model uncertainty counted, and what it rests on.

    A power law has no parameter that moves one position alone: if there is anything to count it gets those by which
    positions may stand apart (`set_apart`).

    Args:
        choice: what was fitted.
        sample: the sample at the curve's positions.
        seen: the sample at all positions that fits may see.
        flat: the fitted parameters, [n].
    """
    fit, learner, pooled = choice.fit, choice.learner or choice.fit, choice.pooled
    near = pooled or linearise(learner, sample if learner is fit else seen, flat, choice.penalty)
    fitted = seen if near.shares.positions == seen.positions else sample
    curve = replace(fit.curve, positions=fitted.positions)
    among = np.isin(fitted.positions, sample.positions)
    clustered = clustered_covariance(near)
    covariance, about = clustered.covariance, dict(clustered.about)
    about["effective_queries"] = clustered.effective_queries[among].tolist()
    off = np.zeros((len(among), len(among)))
    if sample.x.shape[1] and (missed := misfit(curve, fitted, near, clustered)) is not None:
        off += missed
        about["misfit"] = np.sqrt(np.diag(missed))[among].tolist()
    # Rivals were fitted to a sample of a large log: their distances are the noise of that sample, not of the log.
    if len({one.fit.curve for one in choice.judged}) > 1 and "chosen_on" not in choice.about:
        apart, about["weights"] = curve_disagreement(choice.judged, sample.x[some_contexts(sample)])
        about["rivals"] = np.sqrt(np.diag(apart)).tolist()
        off[np.ix_(among, among)] += apart
    elif choice.rivals is not None:
        distance = np.array([choice.rivals.get(k, max(choice.rivals.values())) for k in sample.positions])
        about["rivals"] = distance.tolist()
        off[np.ix_(among, among)] += np.diag(distance**2)
    if off.any() and isinstance(curve, Power) and not curve.apart:
        covariance = with_apart(covariance, off[np.ix_(among, among)], fit.curve.anchor_index)
    elif off.any():
        covariance = widened(fitted, near, covariance, off)
    if pooled is not None:
        order = curve_order(fit.curve, pooled.shares)
        covariance = covariance[np.ix_(order, order)]
    return covariance, about


def with_apart(covariance: Array, off: Array, anchor: int) -> Array:
    """Return the covariance of (a, d, w) by that of (a, w) and what positions may be off by, relative to the anchor."""
    others = np.delete(np.arange(len(off)), anchor)
    begin, end = Power.apart_at, Power.apart_at + len(others)
    whole: Array = np.insert(covariance, [begin] * len(others), 0.0, axis=0)
    whole = np.insert(whole, [begin] * len(others), 0.0, axis=1)
    whole[begin:end, begin:end] = off[np.ix_(others, others)]
    return whole
