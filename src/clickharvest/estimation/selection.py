"""Selection: curve and penalty by cross-validation, folds split by query.

The score of a candidate is its held-out log likelihood per click, summed over the folds. Nothing is chosen by looking
at a truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.loss import Fit
from clickharvest.model.curves import Constant, Curve
from clickharvest.progress import Update, ignore, part_of

Array = NDArray[np.float64]

PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Penalties tried first; then those halfway to the neighbours of the best."""


@dataclass(frozen=True)
class Candidate:
    """One curve and penalty, as cross-validation judged it.

    Attributes:
        curve: the curve's name and shape.
        penalty: the penalty λ.
        score: held-out log likelihood per click.
        se: its standard error over folds.
        chosen: whether it was taken.
    """

    curve: dict[str, Any]
    penalty: float
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
    folds: int = 5,
    seed: int = 0,
    update: Update = ignore,
) -> list[Candidate]:
    """Judge curves and penalties, best marked as chosen.

    Args:
        make_fit: returns the fit of a curve.
        curves: the curves to try.
        penalties: the penalties to try; by default a coarse grid, refined around the best of each curve.
        folds: number of folds.
        seed: seed of the folds and starts.
        update: called with the share of the work done.
    """
    judged: list[Candidate] = []
    for done, curve in enumerate(curves):
        fit = make_fit(curve)
        aside = fold_weights(fit.n_clusters, min(folds, fit.n_clusters), seed)
        free = isinstance(curve, Constant)
        grid = (0.0,) if free else PENALTIES if penalties is None else tuple(penalties)
        begin, end = done / len(curves), (done + 1) / len(curves)
        middle = end if free or penalties is not None else begin + (end - begin) * len(grid) / (len(grid) + 2)
        own = _judge(fit, grid, aside, seed, part_of(update, begin, middle))
        if penalties is None and not free:
            best = max(own, key=lambda candidate: candidate.score).penalty
            own += _judge(fit, (best / np.sqrt(10), best * np.sqrt(10)), aside, seed, part_of(update, middle, end))
        judged += sorted(own, key=lambda candidate: candidate.penalty)
        update(end)
    best = max(range(len(judged)), key=lambda i: judged[i].score)
    return [Candidate(c.curve, c.penalty, c.score, c.se, i == best) for i, c in enumerate(judged)]


def _judge(fit: Fit, penalties: Sequence[float], aside: Array, seed: int, update: Update) -> list[Candidate]:
    folds = len(aside)
    weights = np.tile(1.0 - aside, (len(penalties), 1))
    penalty = np.repeat(np.asarray(penalties, dtype=np.float64), folds)
    start = np.tile(fit.starts(1, seed), (len(penalty), 1))
    solution = fit.solve(start, weights, penalty, tolerance=1e-4, update=update)
    kept_aside = np.tile(aside, (len(penalties), 1))
    held_out = fit.held_out(solution.params, kept_aside).reshape(len(penalties), folds)
    scores = np.where(np.isfinite(held_out), held_out, -np.inf) / fit.scale
    return [
        Candidate(fit.curve.spec, float(p), float(s.sum()), float(np.sqrt(folds) * s.std(ddof=1)))
        for p, s in zip(penalties, scores, strict=True)
    ]
