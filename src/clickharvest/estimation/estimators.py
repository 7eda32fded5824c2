"""Estimators: PBM and CPBM, with scikit-learn manners.

Parameters go into the constructor and are kept as they are; `fit` learns, what it learned ends in an underscore, and
`propensities_` is the result to use, save and share. `parameters` tells what of scikit-learn works on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

import jax
import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.misfit import misfit, some_contexts, widened
from clickharvest.estimation.objectives import OBJECTIVES
from clickharvest.estimation.objectives.allpairs import AllPairs
from clickharvest.estimation.objectives.base import Objective
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Solution, Status
from clickharvest.estimation.pooling import LARGEST, Pooled, can_pool, curve_order, pool, with_penalty
from clickharvest.estimation.query_effects import clustered_covariance
from clickharvest.estimation.rivals import rivalry
from clickharvest.estimation.robust_pairs import fit_robust_pairs
from clickharvest.estimation.sample import Sample, make_sample, supported_positions
from clickharvest.estimation.selection import Judged, cross_validate, fold_weights
from clickharvest.estimation.smooth_shares import smooth
from clickharvest.estimation.support import find_support
from clickharvest.estimation.uncertainty import bootstrap, normal_draws, sandwich, sigma_points
from clickharvest.harvesting.clicked_pages import warn_of_clicked_pages
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import MLP, Constant, Curve, flatten_params, make_curve, unflatten_params
from clickharvest.model.prediction import Prediction
from clickharvest.model.propensities import DrawsKind, Propensities, data_fingerprint
from clickharvest.model.provenance import record_provenance
from clickharvest.parameters import Parameterised
from clickharvest.progress import Progress, silent
from clickharvest.words import cluster_nouns, count

Intervals = Literal["auto", "clustered", "bootstrap", "sandwich"]
Array = NDArray[np.float64]

AUTO: tuple[dict[str, Any], ...] = (
    {"name": "constant"},
    {"name": "power"},
    {"name": "linear"},
    {"name": "lowrank", "rank": 1},
    {"name": "lowrank", "rank": 2},
    {"name": "mlp", "width": 8},
)
"""The curves that `curve="auto"` tries."""
FEWEST = 3
"""Clusters below which there are no error bars: how two differ tells next to nothing of how others would."""
ASIDE = 5
"""One in so many queries is kept aside to choose between alternatives of an objective."""


@dataclass(frozen=True)
class _Choice:
    """What is to be fitted on everything: curve and objective, penalty, how it was chosen, and what to tell of it.

    A curve that is pooled has no penalty, and is fitted already, as is one whose parameters are `found`.
    """

    fit: Fit
    penalty: float
    pooled: Pooled | None = None
    judged: tuple[Judged, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    found: Array | None = None


class _Estimator(Parameterised):
    """What PBM and CPBM share."""

    objective: str
    anchor: int
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

    def _objectives(self, sample: Sample) -> Mapping[str, Objective]:
        """Return the objective, or those to choose from, made with the options that it declares and that are given."""
        kind = OBJECTIVES.find(self.objective)
        options = {name: value for name in kind.options() if (value := getattr(self, name, None)) is not None}
        return kind.alternatives(sample, **options)

    def _finish(
        self,
        interventions: Interventions,
        sample: Sample,
        encoder: ContextEncoder | None,
        choice: _Choice,
    ) -> None:
        """Fit what was chosen on everything, add intervals, and keep the result."""
        if OBJECTIVES.find(self.objective).against_shown:
            warn_of_clicked_pages(interventions, f"the objective {self.objective}", stacklevel=4)
        fit, pooled, like = choice.fit, choice.pooled, choice.fit.curve.init(np.random.default_rng(0))
        told: dict[str, Any] = {"penalty": choice.penalty}
        if pooled is not None:
            flat, status = pooled.theta[curve_order(fit.curve, pooled.shares)], pooled.status
            log_likelihood = pooled.at.value
            told = told if pooled.spread is None else {"pooled": asdict(pooled.spread)}
        elif choice.found is not None:
            flat, status = choice.found, Status.converged
            log_likelihood = float(fit.held_out(flat[None], np.ones((1, sample.n_clusters)))[0])
        else:
            flat, status = self._fit_choice(choice, np.ones(sample.n_clusters))
            log_likelihood = float(fit.held_out(flat[None], np.ones((1, sample.n_clusters)))[0])
        size = len(flatten_params(like))
        if not status.good:
            warnings.warn(f"{type(self).__name__}: the fit {status}", ConvergenceWarning, stacklevel=3)
        kind, draws, rests_on = self._draws(choice, sample, flat)
        info: Mapping[str, Any] = {
            "estimator": type(self).__name__,
            "objective": self.objective,
            **choice.told,
            **told,
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
        settings = {name: value for name, value in self.get_params().items() if name != "progress"}
        params = unflatten_params(flat[:size], like)
        self.propensities_ = Propensities(
            curve=fit.curve,
            params=params,
            encoder=encoder,
            shown=tuple(int(k) for k in np.unique(interventions.position)),
            draws=None if draws is None else draws[:, :size].astype(np.float32),
            draws_kind=None if draws is None else kind,
            info=info,
            provenance=record_provenance(type(self).__name__, settings, device=jax.default_backend()),
            support=find_support(sample, fit.curve, params, encoder),
        )

    def _fit_choice(self, choice: _Choice, weights: Array) -> tuple[Array, Status]:
        """Return the parameters of the best start, each query weighted, [n] and [queries], and how it ended."""
        starts = np.unique(choice.fit.starts(self.starts, self.seed), axis=0)
        count = len(starts)
        solution = self._solve(choice.fit, starts, np.tile(weights, (count, 1)), np.full(count, choice.penalty))
        best = int(np.nanargmin(solution.value))
        return solution.params[best], solution.status[best]

    def _solve(self, fit: Fit, starts: Array, weights: Array, penalty: Array) -> Solution:
        with self.progress("Fitting"):
            return fit.solve(starts, weights, penalty)

    def _draws(
        self, choice: _Choice, sample: Sample, flat: Array
    ) -> tuple[DrawsKind | None, Array | None, Mapping[str, Any]]:
        """Return the kind of the intervals, draws or points of the parameters, and what they rest on."""
        if self.intervals is None:
            return None, None, {}
        fit, penalty = choice.fit, choice.penalty
        if fit.n_clusters < FEWEST:
            by = sample.clustered_by
            sentence = (
                f"error bars are by {by}, and the clicks are of {count(fit.n_clusters, *cluster_nouns(by))}: there are "
                f"none to give with fewer than {FEWEST}"
            )
            warnings.warn(sentence, HarvestWarning, stacklevel=4)
            return None, None, {}
        if choice.pooled is not None or self._can_cluster(type(fit.objective), len(flat)):
            with self.progress("Error bars"):
                near = choice.pooled or smooth(fit, sample, flat, penalty)
                found = clustered_covariance(near)
                covariance, about = found.covariance, dict(found.about)
                if sample.x.shape[1] and (off_by := misfit(fit.curve, sample, near, found)) is not None:
                    covariance = widened(fit.curve, sample, near, covariance, off_by)
                    about["misfit"] = np.sqrt(np.diag(off_by)).tolist()
                if len({one.fit.curve for one in choice.judged}) > 1:
                    off_by, about["weights"] = rivalry(choice.judged, sample.x[some_contexts(sample)])
                    covariance = widened(fit.curve, sample, near, covariance, off_by)
                    about["rivals"] = np.sqrt(np.diag(off_by)).tolist()
            if choice.pooled is not None:
                own = curve_order(fit.curve, choice.pooled.shares)
                covariance = covariance[np.ix_(own, own)]
            return "clustered", sigma_points(flat, covariance), {"clustered": about}
        if self.intervals == "sandwich":
            with self.progress("Error bars"):
                covariance = sandwich(fit, flat, penalty)
            return "sandwich", normal_draws(flat, covariance, replicates=self.replicates, seed=self.seed), {}
        with self.progress("Bootstrap") as update:
            draws = bootstrap(fit, flat, penalty, replicates=self.replicates, seed=self.seed, update=update)
        return "bootstrap", draws, {}

    def _poolable(self, curves: Iterable[Curve], objective: Objective, sample: Sample) -> list[Curve]:
        """Return the curves that are fitted as `pooling` does: not where intervals are asked for that know no prior."""
        self._check_intervals(type(objective))
        return [curve for curve in curves if self._can_cluster(type(objective)) and can_pool(curve, sample)]

    def _check_intervals(self, objective: type[Objective]) -> None:
        if self.intervals not in (None, "auto", "clustered", "bootstrap", "sandwich"):
            expected = "auto, clustered, bootstrap, sandwich or None"
            raise InputError(f"no intervals {self.intervals!r}: expected {expected}")
        if self.intervals == "clustered" and not self._can_cluster(objective):
            raise InputError(
                "clustered intervals are for the objective clickshare and the optimiser lbfgs: choose these, or "
                "intervals='auto'"
            )

    def _can_cluster(self, objective: type[Objective], size: int = 0) -> bool:
        """Return whether intervals are `clustered`, and curves pooled where they can be."""
        wanted = self.intervals not in ("bootstrap", "sandwich") and self.optimiser == "lbfgs"
        return wanted and objective is ClickShare and size <= LARGEST


class PBM(_Estimator):
    """The position-based model: one examination curve for all contexts.

    Args:
        objective: `"clickshare"` or `"allpairs"`.
        anchor: the position others are relative to.
        weighting: weights of AllPairs, see `AllPairs`.
        intervals: `"clustered"` (`query_effects`), `"bootstrap"`, `"sandwich"` or None; `"auto"` is clustered with
            ClickShare and bootstrap otherwise. Positions are pooled (`pooling`) unless bootstrap or sandwich are asked
            for, which know no pooling.
        replicates: bootstrap replicates, or draws of the sandwich normal.
        seed: seed of all randomness.
        progress: shows what is being done and how much of it is, see `clickharvest.progress`; nothing by default.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=5_000)
        >>> model = PBM().fit(harvest(read_log(log)))
        >>> model.predict().propensity.shape
        (1, 10)
    """

    def __init__(
        self,
        *,
        objective: str = "clickshare",
        anchor: int = 1,
        weighting: str = "paper",
        intervals: Intervals | None = "auto",
        replicates: int = 1_000,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.objective, self.anchor, self.weighting = objective, anchor, weighting
        self.intervals, self.replicates, self.seed, self.progress = intervals, replicates, seed, progress

    starts: int = 1
    optimiser: Literal["lbfgs"] = "lbfgs"

    def fit(self, interventions: Interventions, y: None = None) -> Self:
        """Fit to interventions; their context columns are left out.

        Raises:
            NotIdentifiedError: no position is linked to the anchor.
        """
        positions = supported_positions(interventions, self.anchor)
        sample = make_sample(interventions, positions)
        (objective,) = self._objectives(sample).values()
        curve = Constant(positions, self.anchor, 0)
        pooled = pool(curve, sample) if self._poolable([curve], objective, sample) else None
        self._finish(interventions, sample, None, _Choice(Fit(curve, objective, sample), 0.0, pooled))
        return self


class CPBM(_Estimator):
    """The contextual position-based model: an examination curve that depends on the context.

    Args:
        curve: a curve's name, or `"auto"` to choose among `AUTO` by cross-validation.
        objective: `"clickshare"` or `"allpairs"`.
        penalty: λ of the penalty on the context-dependent parameters, or `"auto"`: `constant` and `linear` with
            ClickShare are then pooled (`pooling`) unless bootstrap or sandwich are asked for, which know no pooling;
            other curves have λ by cross-validation.
        anchor: the position others are relative to.
        relevance: relevance model of AllPairs: `"constant"`; `"mlp"`, a network of the context; `"squares"`, a sigmoid
            layer of the context and its squares; `"free"`, a value for every query and pair of positions
            (`FreeAllPairs`); or `"auto"`. Where curve and penalty are `"auto"` too, that is `robust_pairs`: relevance,
            strengths of two ridges, or the PBM, by queries kept aside. With a curve or penalty of your own it fits
            constants, network and free values to four fifths of the queries and takes the one whose examination has
            the best ClickShare objective on the others. By default `"auto"` in the first case, else `"constant"`.
        weighting: weights of AllPairs, see `AllPairs`.
        rank: number of shapes of `lowrank`.
        width: hidden units of `mlp`, `recurrent` and `position`, and of the network `relevance`; 0 makes `mlp` the
            network that the paper prints, one sigmoid layer.
        shape: shape parameters of a named curve by their names, `{"rank": 2}` say; curves of your own may have others.
        kinds: kind of context columns where it is not plain from their values, see `ContextEncoder`.
        folds: folds of the cross-validation, split by query.
        optimiser: `"lbfgs"`, or `"adam"`, as one trains networks.
        early_stopping: whether Adam keeps a tenth of the queries aside, and the parameters that do best on them;
            otherwise it runs 1,000 full-batch epochs on everything, the paper's recipe.
        starts: starts of the final fit of a curve with random ones; the best is kept.
        intervals: `"clustered"` (`query_effects`, with ClickShare), which counts what the curve may miss of the
            contexts (`misfit`), `"bootstrap"`, `"sandwich"` or None; `"auto"` is clustered where it can be, and
            bootstrap otherwise.
        replicates: bootstrap replicates, or draws of the sandwich normal.
        seed: seed of all randomness.
        progress: shows what is being done and how much of it is, see `clickharvest.progress`; nothing by default.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=5_000)
        >>> interventions = harvest(read_log(log, context=["device"]))
        >>> model = CPBM(curve="linear", penalty=1.0, intervals=None).fit(interventions)
        >>> model.predict({"device": ["desktop", "mobile"]}).propensity.shape
        (2, 10)
    """

    def __init__(
        self,
        *,
        curve: str = "auto",
        objective: str = "clickshare",
        penalty: float | Literal["auto"] = "auto",
        anchor: int = 1,
        relevance: str | None = None,
        weighting: str = "paper",
        rank: int | None = None,
        width: int | None = None,
        shape: Mapping[str, int] | None = None,
        kinds: Mapping[str, str] | None = None,
        folds: int = 5,
        optimiser: Literal["lbfgs", "adam"] = "lbfgs",
        early_stopping: bool = True,
        starts: int = 3,
        intervals: Intervals | None = "auto",
        replicates: int = 1_000,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.curve, self.objective, self.penalty, self.anchor = curve, objective, penalty, anchor
        self.relevance, self.weighting, self.rank, self.width = relevance, weighting, rank, width
        self.shape, self.kinds, self.folds = shape, kinds, folds
        self.optimiser, self.early_stopping, self.starts = optimiser, early_stopping, starts
        self.intervals, self.replicates, self.seed, self.progress = intervals, replicates, seed, progress

    def fit(self, interventions: Interventions, y: None = None) -> Self:
        """Choose curve and penalty, and fit them to interventions with context columns.

        Raises:
            InputError: there are no context columns, and the curve is not a power law, which needs none.
            NotIdentifiedError: no position is linked to the anchor.
        """
        if not interventions.contexts and self.curve != "power":
            raise InputError("a CPBM needs context columns: harvest with --context, or fit a PBM or the curve power")
        positions = supported_positions(interventions, self.anchor)
        encoder = ContextEncoder.fit(interventions.contexts, kinds=self.kinds) if interventions.contexts else None
        sample = make_sample(interventions, positions, encoder)
        if self.curve == "auto" and self.shape:
            raise InputError(f"the shape {dict(self.shape)} is that of one curve: name it instead of 'auto'")
        shapes = AUTO if self.curve == "auto" else ({"name": self.curve} | self._shape(),)
        common = {"positions": positions, "anchor": self.anchor, "n_features": sample.x.shape[1]}
        if self._is_robust():
            choice = self._choose_robustly(MLP(positions, self.anchor, sample.x.shape[1], width=0), sample)
        else:
            choice = self._choose_objective([make_curve(**common, **shape) for shape in shapes], sample)
        self._finish(interventions, sample, encoder, choice)
        return self

    def _is_robust(self) -> bool:
        """Return whether AllPairs is left to `robust_pairs`: nothing is named but, perhaps, its own examination."""
        printed = self.curve == "mlp" and self._shape() == {"width": 0} and self.relevance == "auto"
        left = self.penalty == "auto" and self.relevance in (None, "auto") and self.optimiser == "lbfgs"
        return self.objective == AllPairs.name and left and (self.curve == "auto" or printed)

    def _choose_robustly(self, curve: MLP, sample: Sample) -> _Choice:
        if sample.n_clusters < 2:
            raise InputError(
                "AllPairs keeps queries aside to choose relevance and ridges, and all clicks are of one query: name "
                "curve, relevance and penalty"
            )
        self._check_intervals(AllPairs)
        with self.progress("Cross-validation") as update:
            found = fit_robust_pairs(
                curve, sample, weighting=self.weighting, folds=self.folds, seed=self.seed, update=update
            )
        if found.fit is None:
            constant = Constant(curve.positions, curve.anchor, curve.n_features)
            objective = AllPairs(sample, weighting=self.weighting)
            return _Choice(Fit(constant, objective, sample), 0.0, told=found.told)
        return _Choice(found.fit, found.penalty, found=found.flat, told=found.told)

    def _solve(self, fit: Fit, starts: Array, weights: Array, penalty: Array) -> Solution:
        if self.optimiser == "lbfgs":
            return super()._solve(fit, starts, weights, penalty)
        if self.optimiser != "adam":
            raise InputError(f"no optimiser {self.optimiser!r}: expected lbfgs or adam")
        with self.progress("Training") as update:
            if not self.early_stopping:
                return fit.train(starts, weights, None, penalty, update=update)
            aside = fold_weights(fit.n_clusters, min(10, fit.n_clusters), self.seed)[:1]
            return fit.train(starts, weights * (1 - aside), weights * aside, penalty, update=update)

    def _choose_objective(self, curves: Sequence[Curve], sample: Sample) -> _Choice:
        """Return the curve and penalty of the objective whose examination explains unseen queries best.

        Clicks alone cannot judge: a relevance model that predicts them well may spoil examination. So it is ClickShare,
        free of relevance, that judges the examination of each on queries kept aside.
        """
        objectives = self._objectives(sample)
        if len(objectives) > 1 and sample.n_clusters < 2:
            told = ", ".join(next(iter(objectives.values())).about)
            raise InputError(f"{told} 'auto' keeps queries aside, and all clicks are of one query: name a model")
        choices = {name: self._choose(curves, objective, sample) for name, objective in objectives.items()}
        if len(choices) == 1:
            return next(iter(choices.values()))
        aside = fold_weights(sample.n_clusters, min(ASIDE, sample.n_clusters), self.seed)[0]
        judge = ClickShare(sample)
        scores = {}
        for name, choice in choices.items():
            flat, _ = self._fit_choice(choice, 1 - aside)
            examination = flat[None, : _curve_size(choice.fit, flat)]
            scores[name] = float(Fit(choice.fit.curve, judge, sample).held_out(examination, aside[None])[0])
        best = choices[max(scores, key=scores.__getitem__)]
        return replace(best, told={**best.told, **{f"{name}_held_out": scores for name in best.told}})

    def _choose(self, curves: Sequence[Curve], objective: Objective, sample: Sample) -> _Choice:
        fits = {curve: Fit(curve, objective, sample) for curve in curves}
        poolable = self._poolable(curves, objective, sample)
        if len(curves) == 1 and (self.penalty != "auto" or not sample.x.shape[1]):
            penalty = 0.0 if self.penalty == "auto" else float(self.penalty)
            ridge = with_penalty(curves[0], sample, penalty) if poolable and self.intervals else None
            return _Choice(fits[curves[0]], penalty, ridge, told=objective.about)
        pooled = {}
        if self.penalty == "auto":
            with self.progress("Pooling"):
                pooled = {curve: pool(curve, sample) for curve in poolable}
        if len(curves) == 1 and pooled:
            return _Choice(fits[curves[0]], 0.0, pooled[curves[0]], told=objective.about)
        with self.progress("Cross-validation") as update:
            judged = cross_validate(
                fits.__getitem__,
                curves,
                penalties=None if self.penalty == "auto" else (float(self.penalty),),
                pooled=pooled,
                folds=self.folds,
                seed=self.seed,
                update=update,
            )
        best = next(one for one in judged if one.candidate.chosen)
        curve = best.fit.curve
        return _Choice(fits[curve], best.candidate.penalty or 0.0, pooled.get(curve), tuple(judged), objective.about)

    def _shape(self) -> dict[str, int]:
        named = {name: value for name in ("rank", "width") if (value := getattr(self, name)) is not None}
        shape = dict(self.shape or {})
        if twice := sorted(named.keys() & shape.keys()):
            raise InputError(f"{twice[0]} is given twice, by itself and in shape: give it once")
        return named | shape


def _curve_size(fit: Fit, flat: Array) -> int:
    """Return how many of a parameter vector's first entries are the curve's."""
    return sum(np.size(values) for values in fit.params(flat)["curve"].values())
