"""Selection: curve and penalty by cross-validation, folds split by query.

The score of a candidate is its held-out log likelihood per click, summed over the folds. Nothing is chosen by looking
at a truth. A power law, or else the pooled linear curve, is taken unless another is better by two standard errors of
the difference over queries: their intervals are the most honest, and ties are chance.

Curves race fold by fold, simple ones first. Those that come later are left where the folds so far give them less than
one chance in forty to be ahead, in the end, of what would be taken without them. With z_f standard errors ahead after f
of F folds, z_F is expected to be normal with mean z_f √(F / f) and variance (F − f) / f.

Curves of several optima start from the pooled linear fit, instead of anywhere (`start_from_lines`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.loss import Fit
from clickharvest.estimation.pooling import Pooled, curve_order
from clickharvest.estimation.threads import in_threads
from clickharvest.model.curves import (
    MLP,
    Constant,
    Curve,
    Linear,
    LowRank,
    SingleIndex,
    flatten_params,
    unflatten_params,
)
from clickharvest.progress import Update, ignore, part_of

Array = NDArray[np.float64]

SIMPLE, CLEARLY = ("power", "linear"), 2.0
"""Curves that are taken, in this order, unless the best is ahead by so many standard errors of the difference."""
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Penalties tried first; then those halfway to the neighbours of the best."""
HOPELESS = 1.96
"""Standard errors of what is still to come by which a curve must be short of a rival, to be left."""
FAR = 3.0
"""Standard errors beyond that by which one penalty must be short, for others of the same curve not to be tried."""
CLOSE = 0.4
"""Twice how far the log likelihood of a fit of a large log may be from its maximum."""
LOOKS, MOST = 8, 60
"""Most times that the fit of the first fold looks at its curvature, and most steps of the others from there."""
COLLAPSED = 1e-4
"""Least size of the penalised parameters of a fit from which that of a smaller penalty starts."""
LOW = 3.0
"""How far below saturation the outputs of a network begin: there log σ(z) is nearly z."""
NEAR = 0.5
"""Size of the weights into hidden units of a network that begins as lines: there σ(z) is nearly a line."""


@dataclass(frozen=True)
class Candidate:
    """One curve and penalty, as cross-validation judged it.

    Attributes:
        curve: the curve's name and shape.
        penalty: the penalty λ; None where the curve is pooled instead.
        score: held-out log likelihood per click; where it was left, by its distance from the one taken so far.
        se: its standard error over folds; None where it was left, as its score then goes by another one's, or where
            folds cannot tell.
        chosen: whether it was taken.
        folds: the folds it was judged on; fewer than all where it was left as hopeless.
    """

    curve: dict[str, Any]
    penalty: float | None
    score: float
    se: float | None
    chosen: bool = False
    folds: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain numbers and text."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Judged:
    """A candidate with all that cross-validation found of it.

    Attributes:
        candidate: curve, penalty and score.
        by_query: held-out log likelihood of every query, per click of the log, [queries]; 0 in folds it was not judged
            on, where it was left (`candidate.folds`).
        fit: curve and objective.
        flats: the parameters that each fold found, [folds, n].
    """

    candidate: Candidate
    by_query: Array
    fit: Fit
    flats: Array


def fold_weights(n_clusters: int, folds: int, seed: int) -> Array:
    """Return 0/1 weights of the queries kept aside in each fold, [folds, queries]; every query once."""
    fold = np.random.default_rng(seed).permutation(np.arange(n_clusters) % folds)
    aside: Array = (fold == np.arange(folds)[:, None]).astype(np.float64)
    return aside


def cross_validate(
    make_fit: Callable[[Curve], Fit],
    curves: Sequence[Curve],
    *,
    penalties: Sequence[float] | None = None,
    pooled: Mapping[Curve, Pooled] | None = None,
    learners: Mapping[Curve, Fit] | None = None,
    folds: int = 5,
    seed: int = 0,
    update: Update = ignore,
) -> list[Judged]:
    """Judge curves and penalties, the one to take marked as chosen.

    Args:
        make_fit: returns the fit of a curve.
        curves: the curves to try, simple ones first.
        penalties: the penalties to try; by default a coarse grid, refined around the best of each curve.
        pooled: the curves that are pooled, fitted on everything; every fold chooses their variances again.
        learners: fits of the same parameters, by curve, that see more positions than curves are judged by.
        folds: number of folds.
        seed: seed of the folds and starts.
        update: called with the share of the work done.
    """
    judged: list[Judged] = []
    lines = _lines(pooled or {})
    for done, curve in enumerate(curves):
        fit = make_fit(curve)
        aside = fold_weights(fit.n_clusters, min(folds, fit.n_clusters), seed)
        tell = part_of(update, done / len(curves), (done + 1) / len(curves))
        if pooled and curve in pooled:
            judged.append(_judge_pooled(fit, pooled[curve], aside))
        else:
            free = isinstance(curve, Constant)
            given = (0.0,) if free else None if penalties is None else tuple(sorted(penalties))
            begin = None if lines is None else start_from_lines(curve, *lines, seed)
            start = fit.starts(1, seed)[0]
            if begin is not None:
                start = np.concatenate([begin, start[len(begin) :]])
            race = _Race(fit, aside, start, judged, (learners or {}).get(curve))
            judged += race.run(PENALTIES if given is None else given, refine=given is None, update=tell)
        update((done + 1) / len(curves))
    chosen = _choose(judged)
    return [
        replace(one, candidate=replace(one.candidate, chosen=one is chosen, score=_comparable(one, chosen, aside)))
        for one in judged
    ]


def _comparable(one: Judged, chosen: Judged, aside: Array) -> float:
    """Return a score for all folds: other folds may be harder to predict than those that a candidate was judged on."""
    seen = one.candidate.folds
    if seen is None:
        return one.candidate.score
    inside = aside[:seen].sum(axis=0) > 0
    ahead = (one.by_query[inside] - chosen.by_query[inside]).sum()
    return chosen.candidate.score + float(ahead) * len(aside) / seen


class _Race:
    """The penalties of one curve, judged fold by fold, as long as one of them may still be taken.

    On the first fold penalties are tried from the middle of the list, up and down, until the score gets worse: there is
    one best. Once all folds have seen these, penalties halfway between are tried, and further ones, until all folds
    have seen both neighbours of the best. A fit of the first fold starts from that of the nearest penalty, those of
    other folds from that of the first.

    Args:
        fit: curve and objective.
        aside: queries kept aside in each fold, [folds, queries].
        start: parameters to start from, [n].
        rivals: what was judged before.
        learner: the fit that folds are fitted by, if another one.
    """

    def __init__(
        self, fit: Fit, aside: Array, start: Array, rivals: Sequence[Judged], learner: Fit | None = None
    ) -> None:
        self.fit, self.aside, self.rivals, self.start, self.learner = fit, aside, rivals, start, learner or fit
        self.tolerance = float(np.clip(np.sqrt(CLOSE / (len(start) * fit.scale)), 1e-5, 1e-4))
        self.roots: dict[float, Array | None] = {}
        self.of_folds: dict[float, list[Array]] = {}
        self.held_out: dict[float, list[Array]] = {}
        self.fold, self.learning, self.judging = -1, self.learner, fit

    def run(self, penalties: Sequence[float], *, refine: bool, update: Update) -> list[Judged]:
        """Return what was found of every penalty, ascending."""
        folds = len(self.aside)
        if refine:
            self._climb(penalties)
        else:
            for penalty in penalties[::-1]:
                self._judge(penalty, 0)
        left = sorted(self.of_folds)
        for fold in range(1, folds):
            update(fold / (folds + 1))
            left = self._hopeful(left, fold)
            self._judge_all(left, fold)
        while refine and left:
            best = max(left, key=lambda penalty: self._judged(penalty).candidate.score)
            near = [self._as_tried(one) for one in (best / np.sqrt(10), best * np.sqrt(10))]
            new = [one for one in near if one not in left and penalties[0] / 4 < one < penalties[-1] * 4]
            if not new:
                break
            for fold in range(folds):
                self._judge_all([one for one in new if len(self.of_folds.get(one, ())) == fold], fold)
            left += new
        return [self._judged(penalty) for penalty in sorted(self.of_folds)]

    def _as_tried(self, penalty: float) -> float:
        """Return a penalty as it was tried, to the last digit, if it was."""
        return next((one for one in self.of_folds if np.isclose(one, penalty)), penalty)

    def _climb(self, penalties: Sequence[float]) -> None:
        """Judge penalties on the first fold until both neighbours of the best are worse."""
        best = len(penalties) // 2
        scores: dict[int, float] = {}
        while True:
            for place in (best, best - 1, best + 1):
                if 0 <= place < len(penalties) and place not in scores:
                    scores[place] = self._judge(penalties[place], 0)
                    if not self._hopeful(list(self.of_folds), 1, FAR):
                        return
            further = max(scores, key=scores.__getitem__)
            if further == best:
                return
            best = further

    def _judge_all(self, penalties: Sequence[float], fold: int) -> None:
        self._look_at(fold)
        list(in_threads(lambda penalty: self._judge(penalty, fold), penalties, self.fit.workers() if fold else 1))

    def _look_at(self, fold: int) -> None:
        if fold != self.fold:
            aside = self.aside[fold] > 0
            self.fold, self.learning, self.judging = fold, self.learner.among(~aside), self.fit.among(aside)

    def _judge(self, penalty: float, fold: int) -> float:
        """Fit the queries outside a fold, and return the log likelihood of those inside."""
        self._look_at(fold)
        fit, aside = self.learning, self.aside[fold]
        weights, strength = (1.0 - aside)[None], np.array([penalty])

        if not fold:
            solution = fit.settle(self._near(penalty)[None], weights, strength, tolerance=self.tolerance, rounds=LOOKS)
        else:
            begin = self.of_folds[penalty][0][None]
            if penalty not in self.roots:
                self.roots[penalty] = fit.root(begin[0], penalty)
            root = self.roots[penalty]
            solution = fit.solve(begin, weights, strength, root=root, tolerance=self.tolerance, max_iterations=MOST)
        (by_query,) = self.judging.by_query(solution.params)
        self.of_folds.setdefault(penalty, []).append(solution.params[0])
        self.held_out.setdefault(penalty, []).append(by_query)
        inside = by_query[aside > 0].sum()
        return float(inside) if np.isfinite(inside) else -np.inf

    def _near(self, penalty: float) -> Array:
        """Return the fit of the nearest penalty, unless that has left nothing of the context."""
        if not self.of_folds:
            return self.start
        nearest = min(self.of_folds, key=lambda other: abs(np.log((other or 1) / (penalty or 1))))
        flat = self.of_folds[nearest][0]
        tamed = self.fit.ridge > 0
        collapsed = nearest > penalty and np.abs(flat[tamed]).max(initial=0.0) < COLLAPSED
        return self.start if collapsed or not np.isfinite(flat).all() else flat

    def _judged(self, penalty: float) -> Judged:
        held_out, of_folds = np.array(self.held_out[penalty]), np.array(self.of_folds[penalty])
        return judged_by_folds(self.fit, penalty, held_out, self.aside, of_folds)

    def _hopeful(self, penalties: Sequence[float], seen: int, beyond: float = 0.0) -> list[float]:
        """Return the penalties that may still be taken, by the folds seen: none behind the best of them, or a rival.

        A penalty has to be short of the rival by some standard errors `beyond` chance.
        """
        if not penalties:
            return []
        judged = {penalty: self._judged(penalty) for penalty in penalties}
        best = max(judged.values(), key=lambda one: one.candidate.score)
        rival = _choose(self.rivals) if self.rivals else None
        return [
            penalty
            for penalty, one in judged.items()
            if (one is best or self._chance(one, best, seen))
            and (rival is None or self._chance(one, rival, seen, beyond))
        ]

    def _chance(self, one: Judged, rival: Judged, seen: int, beyond: float = 0.0) -> bool:
        """Return whether one may be ahead of a rival in the end, or behind by no more than some standard errors."""
        inside = self.aside[:seen].sum(axis=0) > 0
        ahead, folds = (one.by_query - rival.by_query)[inside], len(self.aside)
        if not np.isfinite(ahead).all():
            return bool(np.isfinite(one.by_query).all())
        errors = _se(ahead)
        if errors == 0:
            return bool(ahead.sum() >= 0)
        expected = ahead.sum() / errors * np.sqrt(folds / seen)
        return bool(expected + HOPELESS * np.sqrt((folds - seen) / seen) + beyond >= 0)


def _choose(judged: Sequence[Judged]) -> Judged:
    whole = [one for one in judged if one.candidate.folds is None]
    best = max(whole, key=lambda one: one.candidate.score)
    sound = [one for one in whole if len(one.by_query) > 1 and np.isfinite(one.by_query).all()]
    for name in SIMPLE:
        for one in sorted(sound, key=lambda one: one.candidate.score, reverse=True):
            behind = best.by_query - one.by_query
            if one.candidate.curve["name"] == name and (one is best or behind.sum() < CLEARLY * _se(behind)):
                return one
    return best


def _lines(pooled: Mapping[Curve, Pooled]) -> tuple[Array, Array] | None:
    """Return b and W of a pooled linear curve, if there is one."""
    for curve, fit in pooled.items():
        if isinstance(curve, Linear):
            flat = fit.theta[curve_order(curve, fit.shares)]
            params = unflatten_params(flat, curve.init(np.random.default_rng(0)))
            return np.asarray(params["b"]), np.asarray(params["W"])
    return None


def _judge_pooled(fit: Fit, pooled: Pooled, aside: Array) -> Judged:
    shares = pooled.shares
    again = np.array(list(in_threads(lambda fold: pooled.refit(1.0 - fold).theta, list(aside), fit.workers())))
    flats = again[:, curve_order(fit.curve, shares)]
    if shares.positions == fit.curve.positions:
        held_out = np.array([shares.by_query(shares.log_p(theta)) for theta in again])
    else:
        held_out = fit.by_query(flats)
    return judged_by_folds(fit, None, held_out, aside, flats)


def judged_by_folds(fit: Fit, penalty: float | None, held_out: Array, aside: Array, flats: Array) -> Judged:
    """Return a candidate by the log likelihoods of all queries in the folds seen, [seen, queries].

    `aside` [folds, queries] are the queries kept aside, `flats` [seen, n] the parameters of the folds seen.
    """
    seen, folds = len(held_out), len(aside)
    by_query = np.where(aside[:seen] > 0, held_out, 0.0).sum(axis=0)
    by_query = np.where(np.isfinite(by_query), by_query, -np.inf) / fit.scale
    known = seen == folds > 1 and bool(np.isfinite(by_query).all())
    se = _se(aside @ by_query) if known else None
    score = float(by_query.sum()) * folds / seen
    candidate = Candidate(fit.curve.spec, penalty, score, se, folds=None if seen == folds else seen)
    return Judged(candidate, by_query, fit, flats)


def _se(values: Array) -> float:
    """Return the standard error of the sum of some values."""
    return float(np.sqrt(len(values)) * values.std(ddof=1)) if len(values) > 1 else 0.0


def start_from_lines(curve: Curve, base: Array, slopes: Array, seed: int) -> Array | None:
    """Return parameters of a curve that begins as straight lines do, [n]; None where a curve cannot.

    Slopes [d, K − 1] are what a unit of each feature adds to log examination of an average context, `base` [K − 1].
    Their largest singular values are the shapes of a low-rank curve, the very largest that of an index; a network whose
    outputs are far from saturation can begin as that curve, other hidden units small and random.
    """
    params = curve.init(np.random.default_rng(seed))
    if isinstance(curve, LowRank):
        into, out = _shapes(slopes, curve.rank)
        return flatten_params(params | {"b": base, "u": into, "V": out})
    if isinstance(curve, SingleIndex):
        left, values, right = np.linalg.svd(slopes, full_matrices=False)
        lines = np.concatenate([values[:1, None] * right[:1], np.zeros_like(params["V"][1:])])
        return flatten_params(params | {"b": base, "u": left[:, :1], "V": lines})
    if isinstance(curve, MLP) and curve.width:
        rank = min(2, curve.width)
        into, out = _shapes(slopes, rank)
        size = np.maximum(np.abs(into).max(axis=0), 1e-6) / NEAR
        anchored = np.insert(out, curve.anchor_index, 0.0, axis=1)
        params["A"][:, :rank] = into / size
        # σ(z) is about ½ + z / 4.
        params["v"] *= 0.1
        params["v"][:rank] = 4 * size[:, None] * anchored
        params["c"] = np.insert(base, curve.anchor_index, 0.0) - LOW - params["v"].sum(axis=0) / 2
        return flatten_params(params)
    return None


def _shapes(slopes: Array, rank: int) -> tuple[Array, Array]:
    """Return u [d, rank] and V [rank, K − 1] of equal size, uV the nearest to the slopes."""
    left, values, right = np.linalg.svd(slopes, full_matrices=False)
    root = np.zeros(rank)
    root[: len(values)] = np.sqrt(values[:rank])
    into, out = np.zeros((len(slopes), rank)), np.zeros((rank, slopes.shape[1]))
    kept = min(rank, len(values))
    into[:, :kept], out[:kept] = left[:, :kept], right[:kept]
    return into * root, out * root[:, None]
