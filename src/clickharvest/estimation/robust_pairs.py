"""A robust AllPairs: the paper's estimator, held by what queries kept aside say, with the PBM to fall back on.

AllPairs has no penalty in the paper. Without one it has no hold where queries are few, and where context does nothing
it pays for freedom that it does not need. Here

1. fits start from the PBM, context weights 0, and a ridge holds these weights alone, with a strength of its own for
   examination h, one sigmoid layer, and for relevance g;
2. g is a matrix of constants, one sigmoid layer of [x, x² − 1], or free in every query and pair (see `AllPairs`);
3. every g and strength is fitted to all folds of the queries but one and judged on that one, by two objectives:
   AllPairs, and ClickShare, which is free of relevance. Clicks alone cannot judge: a g that predicts them well may
   spoil examination. So ClickShare rules out, and AllPairs chooses among what is left:

   - only what is ahead of the PBM by more than a standard error of the difference, query by query, is eligible; where
     nothing is, the PBM stays;
   - of these, what is behind the best by no more than a standard error;
   - of these, the simplest g;
   - of these, the strengths with the best AllPairs objective.

Nothing is chosen by a truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.allpairs import AllPairs
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import fold_weights
from clickharvest.model.curves import MLP, log_sigmoid
from clickharvest.progress import Update, ignore

Array = NDArray[np.float64]

SIMPLEST_FIRST = ("constant", "squares", "free")
STRENGTHS_H = (30_000.0, 10_000.0, 3_000.0, 1_000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
STRENGTHS_G = (1_000.0, 300.0, 100.0, 30.0, 10.0)
"""Ridges that are tried, from the strongest on, until the AllPairs objective of queries kept aside has fallen twice."""
PATIENCE = 2
TOP = 0.97
"""Largest examination, and relevance, that fits start from."""
ERRORS = 1.0
"""Standard errors that count as a difference."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A relevance model with its ridges, as queries kept aside judge it.

    Attributes:
        relevance: one of `SIMPLEST_FIRST`.
        ridge_h: ridge on the context weights of examination.
        ridge_g: ridge on those of relevance.
        pairs: AllPairs objective of queries kept aside.
        shares: ClickShare objective of each query when kept aside, less the PBM's, [queries].
    """

    relevance: str
    ridge_h: float
    ridge_g: float
    pairs: float
    shares: Array


@dataclass(frozen=True)
class RobustPairs:
    """What was chosen, ready to be used.

    Attributes:
        fit: curve and objective on the sample; None where the PBM stays.
        penalty: its penalty.
        flat: its parameters, fitted to all queries.
        about: what a model file keeps of the choice.
    """

    fit: Fit | None
    penalty: float
    flat: Array
    about: dict[str, Any]


def fit_robust_pairs(
    curve: MLP,
    sample: Sample,
    *,
    weighting: str = "paper",
    folds: int = 5,
    aside: Array | None = None,
    gated: bool = True,
    seed: int = 0,
    update: Update = ignore,
) -> RobustPairs:
    """Choose relevance model and ridges, or the PBM, and fit what was chosen to all queries.

    Args:
        curve: the examination curve, one sigmoid layer.
        sample: the sample, of two queries or more.
        weighting: ω of a unit and pair, see `AllPairs`.
        folds: folds that queries are kept aside in.
        aside: which queries are kept aside, 0 or 1, [folds, queries], where that is not drawn.
        gated: whether ClickShare rules out, with the PBM to fall back on. Otherwise AllPairs alone chooses, among g of
            constants and of squares, as the paper does; a free g follows the queries that are to judge it.
        seed: seed of the folds.
        update: called with the share of the work done.
    """
    everything = np.ones(sample.n_clusters)
    if aside is None:
        aside = fold_weights(sample.n_clusters, min(folds, sample.n_clusters), seed)
    fits = {"constant": Fit(curve, AllPairs(sample, weighting=weighting), sample)}
    plain = _fit_pbm(curve, sample, weighting, np.concatenate([everything[None], 1 - aside]))
    shares = Fit(curve, ClickShare(sample), sample)
    judged: list[Judged] = []
    tried = SIMPLEST_FIRST if gated else SIMPLEST_FIRST[:2]
    for done, relevance in enumerate(tried):
        if relevance not in fits:
            fits[relevance] = Fit(curve, AllPairs(sample, relevance=relevance, weighting=weighting), sample)
        search = _Search(relevance, fits[relevance], shares, aside, plain[1:])
        if relevance == "squares":
            ridge_h = max(judged, key=lambda one: one.pairs).ridge_h
            best = search.walk((ridge_h, ridge_g) for ridge_g in STRENGTHS_G)
            search.walk((ridge_h, best.ridge_g) for ridge_h in STRENGTHS_H)
        else:
            search.walk((ridge_h, 0.0) for ridge_h in STRENGTHS_H)
        judged += search.judged.values()
        update((done + 1) / (len(tried) + 1))
    chosen = choose(judged) if gated else max(judged, key=lambda one: one.pairs)
    gains = {name: max(float(one.shares.sum()) for one in judged if one.relevance == name) for name in tried}
    about: dict[str, Any] = {"relevance_held_out": {"pbm": 0.0, **gains}}
    if chosen is None:
        return RobustPairs(None, 0.0, np.zeros(0), {"relevance": "constant", **about})
    fit = fits[chosen.relevance].with_ridge(chosen.ridge_g / chosen.ridge_h)
    start = _with_contexts(fit, plain[0])
    flat = fit.settle(start[None], everything[None], np.array([chosen.ridge_h])).params[0]
    update(1.0)
    about |= {"relevance": chosen.relevance, "relevance_penalty": chosen.ridge_g}
    return RobustPairs(fit, chosen.ridge_h, flat, about)


def _fit_pbm(curve: MLP, sample: Sample, weighting: str, weights: Array) -> Array:
    """Return the log odds of examination, and of relevance by pair, of the PBM for each of some weights of queries.

    It knows the products h g alone. With context their level is known, and has optima of its own: the best has the top
    nearly always examined, so that fits start there.
    """
    blank = replace(sample, x=np.zeros((1, 0)), context=np.zeros_like(sample.context))
    fit = Fit(replace(curve, n_features=0), AllPairs(blank, weighting=weighting), blank)
    start = fit.starts(1, 0)
    start[0, : len(curve.positions)] = 1.0 - np.log(np.arange(1, len(curve.positions) + 1))
    odds = fit.settle(np.repeat(start, len(weights), axis=0), weights, np.zeros(len(weights))).params
    log_h, log_g = np.split(log_sigmoid(odds), [len(curve.positions)], axis=1)
    higher = np.log(TOP) - log_h.max(axis=1, keepdims=True)
    log_chance = np.minimum(np.concatenate([log_h + higher, log_g - higher], axis=1), np.log(TOP))
    return np.asarray(log_chance - np.log(-np.expm1(log_chance)))


def _with_contexts(fit: Fit, plain: Array) -> Array:
    """Return the parameters of the PBM as those of a fit, weights of the context 0."""
    positions = len(fit.curve.positions)
    start = np.zeros(fit.size)
    start[:positions] = plain[:positions]
    if fit.objective.columns:
        begin = positions * (1 + fit.x.shape[1])
        start[begin : begin + fit.objective.columns] = plain[positions:]
    return start


def choose(judged: Sequence[Judged]) -> Judged | None:
    """Return what to take, or None for the PBM; see the head of this module.

    Example:
        >>> near = Judged("constant", 100.0, 0.0, -50.0, np.array([2.0, 1.0, 1.5]))
        >>> far = Judged("free", 1.0, 0.0, -10.0, np.array([9.0, -9.0, 1.0]))
        >>> choose([near, far]) is near, choose([far]) is None
        (True, True)
    """
    eligible = [one for one in judged if _is_ahead(one.shares)]
    if not eligible:
        return None
    best = max(eligible, key=lambda one: float(one.shares.sum()))
    left = [one for one in eligible if one is best or not _is_ahead(best.shares - one.shares)]
    simplest = min((one.relevance for one in left), key=SIMPLEST_FIRST.index)
    return max((one for one in left if one.relevance == simplest), key=lambda one: one.pairs)


def _is_ahead(differences: Array) -> bool:
    """Return whether a sum over queries is above 0 by more than its standard error."""
    return bool(differences.sum() > ERRORS * differences.std() * len(differences) ** 0.5)


class _Search:
    """Ridges of one relevance model, judged as they are asked for."""

    def __init__(self, relevance: str, fit: Fit, shares: Fit, aside: Array, plain: Array) -> None:
        self.relevance, self.aside, self.size = relevance, aside, shares.size
        self.fits = [(fit.among(fold == 0), fit.among(fold > 0), shares.among(fold > 0)) for fold in aside]
        self.starts = [_with_contexts(fit, one) for one in plain]
        self.of_pbm = self._shares(self.starts)
        self.judged: dict[tuple[float, float], Judged] = {}

    def walk(self, ridges: Iterable[tuple[float, float]]) -> Judged:
        """Judge ridges from the strongest on, each fit starting from the last, and return the best by AllPairs."""
        flats, best, fallen = self.starts, None, 0
        for ridge_h, ridge_g in ridges:
            flats = [
                learning.with_ridge(ridge_g / ridge_h)
                .settle(start[None], (1 - fold)[None], np.array([ridge_h]))
                .params[0]
                for (learning, _, _), start, fold in zip(self.fits, flats, self.aside, strict=True)
            ]
            pairs = sum(
                float(judging.by_query(flat[None]).sum())
                for (_, judging, _), flat in zip(self.fits, flats, strict=True)
            )
            one = Judged(self.relevance, ridge_h, ridge_g, pairs, self._shares(flats) - self.of_pbm)
            self.judged[ridge_h, ridge_g] = one
            if best is None or one.pairs > best.pairs:
                best, fallen = one, 0
            elif (fallen := fallen + 1) == PATIENCE:
                break
        assert best is not None
        return best

    def _shares(self, flats: Sequence[Array]) -> Array:
        """Return the ClickShare objective of each query by the fit that it was kept aside from, [queries]."""
        by_fold = [
            shares.by_query(flat[None, : self.size])[0] for (_, _, shares), flat in zip(self.fits, flats, strict=True)
        ]
        return np.asarray(np.sum(by_fold, axis=0))
