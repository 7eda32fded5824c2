"""Selection: curve and penalty by cross-validation, folds split by query.

The score of a candidate is its held-out log likelihood per click, summed over the folds. Nothing is chosen by looking
at a truth. Where the best is better than the constant curve by less than the standard error of that difference, the
constant one is taken: context has not shown that it does anything. A power law, the simplest curve that depends on
context, is taken unless the best is better by two: a pooled linear curve, which contains it, often ties with it by
chance. Standard errors of differences are over queries: five folds would make them a matter of luck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.loss import Fit
from clickharvest.estimation.pooling import Pooled, curve_order
from clickharvest.model.curves import Constant, Curve
from clickharvest.progress import Update, ignore, part_of

Array = NDArray[np.float64]

SIMPLER = {"constant": 1.0, "power": 2.0}
"""Curves that are taken where they are behind the best by less than so many standard errors of the difference."""
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Penalties tried first; then those halfway to the neighbours of the best."""


@dataclass(frozen=True)
class Candidate:
    """One curve and penalty, as cross-validation judged it.

    Attributes:
        curve: the curve's name and shape.
        penalty: the penalty λ; None where the curve is pooled instead.
        score: held-out log likelihood per click.
        se: its standard error over folds.
        chosen: whether it was taken.
    """

    curve: dict[str, Any]
    penalty: float | None
    score: float
    se: float
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain numbers and text."""
        return asdict(self)


def fold_weights(n_clusters: int, folds: int, seed: int) -> Array:
    """Return 0/1 weights of the queries kept aside in each fold, [folds, queries]; every query once.

    Example:
        >>> fold_weights(5, 2, seed=0).sum(axis=0).tolist()
        [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    fold = np.random.default_rng(seed).permutation(np.arange(n_clusters) % folds)
    aside: Array = (fold == np.arange(folds)[:, None]).astype(np.float64)
    return aside


def cross_validate(
    make_fit: Callable[[Curve], Fit],
    curves: Sequence[Curve],
    *,
    penalties: Sequence[float] | None = None,
    pooled: Mapping[Curve, Pooled] | None = None,
    folds: int = 5,
    seed: int = 0,
    update: Update = ignore,
) -> list[Judged]:
    """Judge curves and penalties, the one to take marked as chosen.

    Args:
        make_fit: returns the fit of a curve.
        curves: the curves to try.
        penalties: the penalties to try; by default a coarse grid, refined around the best of each curve.
        pooled: the curves that are pooled, fitted on everything; every fold chooses their variances again.
        folds: number of folds.
        seed: seed of the folds and starts.
        update: called with the share of the work done.
    """
    judged: list[Judged] = []
    for done, curve in enumerate(curves):
        fit = make_fit(curve)
        aside = fold_weights(fit.n_clusters, min(folds, fit.n_clusters), seed)
        begin, end = done / len(curves), (done + 1) / len(curves)
        if pooled and curve in pooled:
            judged.append(_judge_pooled(fit, pooled[curve], aside))
        elif isinstance(curve, Constant) or penalties is not None:
            grid = (0.0,) if isinstance(curve, Constant) or penalties is None else tuple(sorted(penalties))
            judged += _judge(fit, grid, aside, seed, part_of(update, begin, end))
        else:
            judged += _refined(fit, aside, seed, part_of(update, begin, end))
        update(end)
    chosen = _choose(judged)
    return [replace(one, candidate=replace(one.candidate, chosen=one is chosen)) for one in judged]


@dataclass(frozen=True, eq=False)
class Judged:
    """A candidate, and how cross-validation judged it.

    Attributes:
        candidate: the candidate.
        by_query: the held-out log likelihood of every query, per click of the log, [queries].
        fit: curve and objective.
        flats: the parameters that each fold found, [folds, n].
    """

    candidate: Candidate
    by_query: Array
    fit: Fit
    flats: Array


def _choose(judged: Sequence[Judged]) -> Judged:
    best = max(judged, key=lambda one: one.candidate.score)
    sound = [one for one in judged if len(one.by_query) > 1 and np.isfinite(one.by_query).all()]
    for name, errors in SIMPLER.items():
        for one in sorted(sound, key=lambda one: one.candidate.score, reverse=True):
            behind = best.by_query - one.by_query
            if one.candidate.curve["name"] == name and (one is best or behind.sum() < errors * _se(behind)):
                return one
    return best


def _refined(fit: Fit, aside: Array, seed: int, update: Update) -> list[Judged]:
    """Judge the coarse grid of penalties, then those halfway to the neighbours of the best."""
    coarse = len(PENALTIES) / (len(PENALTIES) + 2)
    found = dict(zip(PENALTIES, _judge(fit, PENALTIES, aside, seed, part_of(update, 0, coarse)), strict=True))
    best = max(found, key=lambda penalty: found[penalty].candidate.score)
    between = (best / np.sqrt(10), best * np.sqrt(10))
    found |= zip(between, _judge(fit, between, aside, seed, part_of(update, coarse, 1)), strict=True)
    return [found[penalty] for penalty in sorted(found)]


def _judge(fit: Fit, penalties: Sequence[float], aside: Array, seed: int, update: Update) -> list[Judged]:
    folds = len(aside)
    weights = np.tile(1.0 - aside, (len(penalties), 1))
    penalty = np.repeat(np.asarray(penalties, dtype=np.float64), folds)
    start = np.tile(fit.starts(1, seed), (len(penalty), 1))
    solution = fit.solve(start, weights, penalty, tolerance=1e-4, update=update)
    held_out = fit.by_query(solution.params).reshape(len(penalties), folds, -1)
    flats = solution.params.reshape(len(penalties), folds, -1)
    return [
        _judged(fit, float(p), of_folds, own, aside)
        for p, of_folds, own in zip(penalties, held_out, flats, strict=True)
    ]


def _judge_pooled(fit: Fit, pooled: Pooled, aside: Array) -> Judged:
    shares = pooled.shares
    found = np.array([pooled.refit(1.0 - kept_aside).theta for kept_aside in aside])
    held_out = np.array([shares.by_query(shares.shares(theta)) for theta in found])
    return _judged(fit, None, held_out, found[:, curve_order(fit.curve, shares)], aside)


def _judged(fit: Fit, penalty: float | None, held_out: Array, flats: Array, aside: Array) -> Judged:
    """Return a candidate by the log likelihoods of all queries, fold by fold, [folds, queries]."""
    by_query = np.where(aside > 0, held_out, 0.0).sum(axis=0)
    by_query = np.where(np.isfinite(by_query), by_query, -np.inf) / fit.scale
    se = _se(aside @ by_query) if np.isfinite(by_query).all() else 0.0
    return Judged(Candidate(fit.curve.spec, penalty, float(by_query.sum()), se), by_query, fit, flats)


def _se(values: Array) -> float:
    """Return the standard error of the sum of some values."""
    return float(np.sqrt(len(values)) * values.std(ddof=1)) if len(values) > 1 else 0.0
