"""Estimators: PBM and CPBM, with scikit-learn manners.

Parameters go into the constructor and are kept as they are; `fit` learns, what it learned ends in an underscore, and
`propensities_` is the result to use, save and share. `parameters` tells what of scikit-learn works on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from clickharvest.errors import InputError
from clickharvest.estimation.fitting import Array, Choice, Estimator, Intervals
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives import OBJECTIVES
from clickharvest.estimation.objectives.base import Objective
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.optimise import Solution
from clickharvest.estimation.pooling import Pooled, pool_seen, with_penalty
from clickharvest.estimation.robust_pairs import fit_robust_pairs
from clickharvest.estimation.sample import Reach, Sample, find_reach, make_samples
from clickharvest.estimation.selection import cross_validate, fold_weights
from clickharvest.estimation.threads import on_one_thread
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import MLP, Constant, Curve, Power, flatten_params, make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.positions.places import Anchor, find_anchor
from clickharvest.progress import Progress, silent

AUTO: tuple[dict[str, Any], ...] = (
    {"name": "power"},
    {"name": "linear"},
    {"name": "index"},
    {"name": "mlp", "width": 8},
)
"""The curves that `curve="auto"` tries. Two contexts are on a line, which needs no bends: they have no index."""
CHOOSING = 200_000
"""Rows, drawn at random from logs of twice as many or more, on which curve and penalty are chosen: more would choose
the same, later."""
ASIDE = 5
"""One in so many queries is kept aside to choose between alternatives of an objective."""


class PBM(Estimator):
    """The position-based model: one examination curve for all contexts.

    Args:
        objective: `"clickshare"` or `"allpairs"`.
        anchor: the position others are relative to; of places the number, or the values, such as `(1, 1)` or `"top"`.
        weighting: weights of AllPairs, see `AllPairs`.
        intervals: `"clustered"` (by query, or by what else clusters), `"bootstrap"`, `"sandwich"` or None; `"auto"` is
            clustered with ClickShare and bootstrap otherwise. Positions are pooled (`pooling`) unless bootstrap or
            sandwich are asked for, which know no pooling.
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
        anchor: Anchor = 1,
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

    @on_one_thread
    def fit(self, interventions: Interventions, y: None = None) -> Self:
        """Fit to interventions; their context columns are left out.

        Raises:
            NotIdentifiedError: no position is linked to the anchor.
        """
        self._check(interventions)
        anchor = find_anchor(self.anchor, interventions.places)
        sample, seen = make_samples(interventions, self._reach(interventions, anchor))
        (objective,) = self._objectives(sample).values()
        curve = Constant(sample.positions, anchor, 0)
        pooled = pool_seen(curve, sample, seen) if self._poolable([curve], objective, sample) else None
        self._finish(interventions, (sample, seen), None, Choice(Fit(curve, objective, sample), 0.0, pooled))
        return self

    def _reach(self, interventions: Interventions, anchor: int) -> Reach:
        """Return the positions to estimate, and those to see."""
        return find_reach(interventions, anchor)


class CPBM(Estimator):
    """The contextual position-based model: an examination curve that depends on the context.

    Args:
        curve: a curve's name, or `"auto"` to choose among `AUTO` by cross-validation.
        objective: `"clickshare"` or `"allpairs"`.
        penalty: λ of the penalty on the context-dependent parameters, or `"auto"`: `constant` and `linear` with
            ClickShare are then pooled (`pooling`) unless bootstrap or sandwich are asked for, which know no pooling;
            other curves have λ by cross-validation.
        anchor: the position others are relative to; of places the number, or the values, such as `(1, 1)` or `"top"`.
        relevance: relevance model of AllPairs: `"constant"`; `"mlp"`, a network of the context; `"squares"`, a sigmoid
            layer of the context and its squares; `"free"`, a value for every query and pair of positions
            (`AllPairs`); or `"auto"`. Where curve and penalty are `"auto"` too, that is `robust_pairs`: relevance,
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
        intervals: `"clustered"` (with ClickShare), which counts what the curve may miss of the contexts
            (`model_uncertainty`), `"bootstrap"`, `"sandwich"` or None; `"auto"` is clustered where it can be, otherwise
            bootstrap, and none where folds chose curve or penalty, which a bootstrap does not count.
        replicates: bootstrap replicates, or draws of the sandwich normal.
        start: a ClickShare model of the same context columns, such as yesterday's: its curve and penalty are taken
            instead of chosen, which is most of the work, and the fit starts at its parameters. How far the curves
            differed between which it was chosen stays in the intervals.
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
        anchor: Anchor = 1,
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
        start: Propensities | None = None,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        self.curve, self.objective, self.penalty, self.anchor = curve, objective, penalty, anchor
        self.relevance, self.weighting, self.rank, self.width = relevance, weighting, rank, width
        self.shape, self.kinds, self.folds = shape, kinds, folds
        self.optimiser, self.early_stopping, self.starts = optimiser, early_stopping, starts
        self.intervals, self.replicates, self.seed, self.progress = intervals, replicates, seed, progress
        self.start = start

    _begin: tuple[Curve, tuple[str, ...], Array] | None = None
    """Curve, features and parameters to start from."""
    _rivals: Mapping[int, float] | None = None
    """By position, how far the curves differed between which the one of the model to start from was chosen."""

    @on_one_thread
    def fit(self, interventions: Interventions, y: None = None) -> Self:
        """Choose curve and penalty, and fit them to interventions with context columns.

        Raises:
            InputError: there are no context columns, and the curve is not a power law, which needs none; or a
                parameter is out of range; or the model to start from does not go with the others.
            NotIdentifiedError: no position is linked to the anchor.
        """
        if self.start is not None:
            self.propensities_ = self._begun(self.start, interventions).fit(interventions).propensities_
            return self
        self._check(interventions)
        if not interventions.contexts and self.curve != "power":
            raise InputError("a CPBM needs context columns: harvest with --context, or fit a PBM or the curve power")
        anchor = find_anchor(self.anchor, interventions.places)
        reach = find_reach(interventions, anchor)
        encoder = ContextEncoder.fit(interventions.contexts, kinds=self.kinds) if interventions.contexts else None
        sample, seen = make_samples(interventions, reach, encoder)
        if self.curve == "auto" and self.shape:
            raise InputError(f"the shape {dict(self.shape)} is that of one curve: name it instead of 'auto'")
        if self.curve == "auto":
            shapes = [shape for shape in AUTO if shape["name"] != "index" or len(sample.x) > 2]
        else:
            shapes = [{"name": self.curve} | self._shape()]
        common = {"positions": sample.positions, "anchor": anchor, "n_features": sample.x.shape[1]}
        curves = [make_curve(**common, **shape) for shape in shapes]
        if interventions.places is not None:
            curves = [curve for curve in curves if not curve.needs_order]
        if not curves and interventions.places is not None:
            raise InputError(
                f"the curve {self.curve!r} goes down a list, and places ({', '.join(interventions.places.columns)}) "
                "have no order: choose another, such as constant or linear"
            )
        if self._is_robust():
            choice = self._choose_robustly(MLP(sample.positions, anchor, sample.x.shape[1], width=0), sample)
        else:
            choice = self._choose_objective(curves, sample, seen)
        if choice.near is None:
            choice = replace(choice, near=self._near(choice.fit.curve, encoder), rivals=self._rivals)
        self._finish(interventions, (sample, seen), encoder, choice)
        return self

    def _begun(self, start: Propensities, interventions: Interventions) -> CPBM:
        """Return the estimator with the curve and penalty of a model, which starts at its parameters."""
        named = [name for name in ("rank", "width", "shape") if getattr(self, name) is not None]
        named += [name for name in ("curve", "penalty") if getattr(self, name) != "auto"]
        if named:
            raise InputError(f"{named[0]} is given, and the model to start from has its own: give one of them")
        if self.objective != ClickShare.name or start.fit_info.objective != ClickShare.name:
            raise InputError(f"a fit starts from a model of the objective {ClickShare.name}, and is one: name no other")
        if set(start.context) != set(interventions.contexts):
            had, has = (", ".join(sorted(names)) or "none" for names in (start.context, interventions.contexts))
            raise InputError(f"the model to start from depends on {had}, and the data have the contexts {has}")
        curve, params = start.curve, start.params
        if isinstance(curve, Power):
            curve, params = replace(curve, apart=0), {name: own for name, own in params.items() if name != "d"}
        penalty = "auto" if start.fit_info.pooled is not None else start.fit_info.penalty or 0.0
        given = {"curve": curve.name, "shape": dict(curve.shape), "penalty": penalty, "starts": 1, "start": None}
        estimator = type(self)(**(self.get_params() | given))
        if start.encoder is not None:
            estimator.kinds = {part.name: part.kind for part in start.encoder.parts} | dict(self.kinds or {})
        features = () if start.encoder is None else start.encoder.feature_names
        estimator._begin = curve, features, flatten_params(params)
        if rivals := (start.fit_info.clustered or {}).get("rivals"):
            estimator._rivals = dict(zip(curve.positions, rivals, strict=True))
        return estimator

    def _near(self, curve: Curve, encoder: ContextEncoder | None) -> Array | None:
        """Return the parameters to start from, if curve and features are those of the model they come from."""
        features = () if encoder is None else encoder.feature_names
        return self._begin[2] if self._begin is not None and self._begin[:2] == (curve, features) else None

    def _is_robust(self) -> bool:
        """Return whether AllPairs is left to `robust_pairs`: nothing is named but, perhaps, its own examination."""
        printed = self.curve == "mlp" and self._shape() == {"width": 0} and self.relevance == "auto"
        left = self.penalty == "auto" and self.relevance in (None, "auto") and self.optimiser == "lbfgs"
        return self.objective == "allpairs" and left and (self.curve == "auto" or printed)

    def _choose_robustly(self, curve: MLP, sample: Sample) -> Choice:
        if sample.n_clusters < 2:
            raise InputError(
                "AllPairs keeps queries aside to choose relevance and ridges, and all clicks are of one query: name "
                "curve, relevance and penalty"
            )
        kind = OBJECTIVES.find(self.objective)
        self._check_intervals(kind)
        with self.progress("Cross-validation") as update:
            robust = fit_robust_pairs(
                curve, sample, weighting=self.weighting, folds=self.folds, seed=self.seed, update=update
            )
        if robust.fit is None:
            constant = Constant(curve.positions, curve.anchor, curve.n_features)
            objective = kind(sample, weighting=self.weighting)
            return Choice(Fit(constant, objective, sample), 0.0, about=robust.about, by_folds=True)
        return Choice(robust.fit, robust.penalty, flat=robust.flat, about=robust.about, by_folds=True)

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

    def _choose_objective(self, curves: Sequence[Curve], sample: Sample, seen: Sample) -> Choice:
        """Return the curve and penalty of the objective whose examination explains unseen queries best.

        Clicks alone cannot judge: a relevance model that predicts them well may spoil examination. So it is ClickShare,
        free of relevance, that judges the examination of each on queries kept aside.
        """
        objectives = self._objectives(sample)
        if len(objectives) > 1 and sample.n_clusters < 2:
            options = ", ".join(next(iter(objectives.values())).about)
            raise InputError(f"{options} 'auto' keeps queries aside, and all clicks are of one query: name a model")
        choices = {name: self._choose(curves, name, objective, sample, seen) for name, objective in objectives.items()}
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
        return replace(best, about={**best.about, **{f"{name}_held_out": scores for name in best.about}}, by_folds=True)

    def _choose(self, curves: Sequence[Curve], name: str, objective: Objective, sample: Sample, seen: Sample) -> Choice:
        fits = {curve: Fit(curve, objective, sample) for curve in curves}
        poolable = self._poolable(curves, objective, sample)
        learners = _learners(curves, objective, sample, seen)
        if len(curves) == 1 and (self.penalty != "auto" or not sample.x.shape[1]):
            penalty = 0.0 if self.penalty == "auto" else float(self.penalty)
            ridge = with_penalty(curves[0], sample, penalty) if poolable and self.intervals else None
            return Choice(fits[curves[0]], penalty, ridge, about=objective.about, learner=learners.get(curves[0]))
        if len(curves) == 1 and self.penalty == "auto" and poolable:
            return Choice(fits[curves[0]], 0.0, self._pool(poolable, sample, seen)[curves[0]], about=objective.about)
        if sample.n_clusters < 2:
            raise InputError(
                f"cross-validation keeps some clicks aside by {sample.clustered_by}, and all clicks are of one "
                f"{sample.clustered_by}: choose the curve linear, which needs no cross-validation, or name curve and "
                "penalty"
            )
        if len(seen.unit) > 2 * CHOOSING:
            return self._choose_on_some(fits, name, objective, sample, seen)
        pooled = self._pool(poolable, sample, seen) if self.penalty == "auto" else {}
        with self.progress("Cross-validation") as update:
            judged = cross_validate(
                fits.__getitem__,
                curves,
                penalties=None if self.penalty == "auto" else (float(self.penalty),),
                pooled=pooled,
                learners=learners,
                folds=self.folds,
                seed=self.seed,
                update=update,
            )
        best = next(one for one in judged if one.candidate.chosen)
        curve = best.fit.curve
        return Choice(
            fits[curve],
            best.candidate.penalty or 0.0,
            pooled.get(curve),
            tuple(judged),
            objective.about,
            near=None if curve in pooled else best.flats[0],
            learner=learners.get(curve),
            by_folds=len(judged) > 1,
        )

    def _choose_on_some(
        self, fits: Mapping[Curve, Fit], name: str, objective: Objective, sample: Sample, seen: Sample
    ) -> Choice:
        """Return the curve and penalty that some of the rows choose, to be fitted to all."""
        some_seen = seen.some_rows(CHOOSING, self.seed)
        some = some_seen.at(sample.positions)
        choice = self._choose(list(fits), name, self._objectives(some)[name], some, some_seen)
        curve = choice.fit.curve
        pooled = self._pool([curve] if choice.pooled is not None else [], sample, seen)
        return replace(
            choice,
            fit=fits[curve],
            pooled=pooled.get(curve),
            about={**objective.about, "chosen_on": len(some.unit)},
            learner=_learners([curve], objective, sample, seen).get(curve),
        )

    def _pool(self, curves: Sequence[Curve], sample: Sample, seen: Sample) -> dict[Curve, Pooled]:
        with self.progress("Pooling"):
            return {curve: pool_seen(curve, sample, seen) for curve in curves}

    def _shape(self) -> dict[str, int]:
        named = {name: value for name in ("rank", "width") if (value := getattr(self, name)) is not None}
        shape = dict(self.shape or {})
        if twice := sorted(named.keys() & shape.keys()):
            raise InputError(f"{twice[0]} is given twice, by itself and in shape: give it once")
        return named | shape


def _learners(curves: Sequence[Curve], objective: Objective, sample: Sample, seen: Sample) -> dict[Curve, Fit]:
    """Return fits of power laws to all positions that are seen, by curve; none where these are those of the sample."""
    if seen is sample or not isinstance(objective, ClickShare):
        return {}
    powers = [curve for curve in curves if isinstance(curve, Power)]
    return {one: Fit(replace(one, positions=seen.positions), ClickShare(seen), seen) for one in powers}


def _curve_size(fit: Fit, flat: Array) -> int:
    """Return how many of a parameter vector's first entries are the curve's."""
    return sum(np.size(values) for values in fit.params(flat)["curve"].values())
