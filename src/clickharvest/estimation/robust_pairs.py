"""A robust AllPairs: the paper's estimator, held by what queries kept aside say, with the PBM to fall back on.

AllPairs has no penalty in the paper. Without one it has no hold where queries are few, and where context does nothing
it pays for freedom that it does not need. Here

1. fits start from the PBM, context weights 0, and a ridge holds these weights alone, with a strength of its own for
   examination h, one sigmoid layer, and for relevance g;
2. g is a matrix of constants, one sigmoid layer of [x, x² − 1], or free in every query and pair (`FreeAllPairs`);
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
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation.loss import Fit, flatten
from clickharvest.estimation.objectives.allpairs import AllPairs, FreeAllPairs, SquaresAllPairs, pair_number
from clickharvest.estimation.pair_scoring import Layers, PairRows, log_sigmoid, with_ones
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import fold_weights
from clickharvest.model.curves import MLP
from clickharvest.progress import Update, ignore

Array = NDArray[np.float64]

SIMPLEST_FIRST = ("constant", "squares", "free")
STRENGTHS_H = (30_000.0, 10_000.0, 3_000.0, 1_000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
STRENGTHS_G = (1_000.0, 300.0, 100.0, 30.0, 10.0)
"""Ridges that are tried, from the strongest on, until the AllPairs objective of queries kept aside has fallen twice."""
PATIENCE = 2
INFINITE = 1e12
"""A ridge that makes the model the PBM."""
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
        told: what a model file tells of the choice.
    """

    fit: Fit | None
    penalty: float
    flat: Array
    told: dict[str, Any]


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
    rows = {"constant": PairRows(sample, "constant", weighting)}
    plain = rows["constant"].fit(rows["constant"].blank(), everything, INFINITE, 0.0)
    starts = [rows["constant"].fit(plain, 1 - own, INFINITE, 0.0) for own in aside]
    shares = _Shares(sample)
    of_pbm = shares.kept_aside(starts, aside)
    judged: list[Judged] = []
    tried = SIMPLEST_FIRST if gated else SIMPLEST_FIRST[:2]
    for done, relevance in enumerate(tried):
        if relevance not in rows:
            rows[relevance] = PairRows(sample, relevance, weighting)
        search = _Search(relevance, rows[relevance], aside, starts, shares, of_pbm)
        if relevance == "squares":
            ridge_h = max((one for one in judged), key=lambda one: one.pairs).ridge_h
            best = search.walk((ridge_h, ridge_g) for ridge_g in STRENGTHS_G)
            search.walk((ridge_h, best.ridge_g) for ridge_h in STRENGTHS_H)
        else:
            search.walk((ridge_h, 0.0) for ridge_h in STRENGTHS_H)
        judged += search.judged.values()
        update((done + 1) / (len(tried) + 1))
    chosen = choose(judged) if gated else max(judged, key=lambda one: one.pairs)
    gains = {name: max(float(one.shares.sum()) for one in judged if one.relevance == name) for name in tried}
    told: dict[str, Any] = {"relevance_held_out": {"pbm": 0.0, **gains}}
    if chosen is None:
        return RobustPairs(None, 0.0, np.zeros(0), {"relevance": "constant", **told})
    own = rows[chosen.relevance]
    layers = own.fit(own.widened(plain), everything, chosen.ridge_h, chosen.ridge_g)
    update(1.0)
    told |= {"relevance": chosen.relevance, "relevance_penalty": chosen.ridge_g}
    return RobustPairs(*_as_fit(curve, sample, weighting, chosen, own, layers), told)


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

    def __init__(
        self, relevance: str, rows: PairRows, aside: Array, starts: Sequence[Layers], shares: _Shares, of_pbm: Array
    ) -> None:
        self.relevance, self.rows, self.aside, self.shares, self.of_pbm = relevance, rows, aside, shares, of_pbm
        self.starts = [rows.widened(start) for start in starts]
        self.judged: dict[tuple[float, float], Judged] = {}

    def walk(self, ridges: Iterable[tuple[float, float]]) -> Judged:
        """Judge ridges from the strongest on, each fit starting from the last, and return the best by AllPairs."""
        layers, best, fallen = self.starts, None, 0
        for ridge_h, ridge_g in ridges:
            layers = [
                self.rows.fit(start, 1 - own, ridge_h, ridge_g) for start, own in zip(layers, self.aside, strict=True)
            ]
            pairs = sum(self.rows.value(fitted, own) for fitted, own in zip(layers, self.aside, strict=True))
            gained = self.shares.kept_aside(layers, self.aside) - self.of_pbm
            one = Judged(self.relevance, ridge_h, ridge_g, pairs, gained)
            self.judged[ridge_h, ridge_g] = one
            if best is None or one.pairs > best.pairs:
                best, fallen = one, 0
            elif (fallen := fallen + 1) == PATIENCE:
                break
        assert best is not None
        return best


class _Shares:
    """The ClickShare objective of every query, for examination by one sigmoid layer."""

    def __init__(self, sample: Sample) -> None:
        clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
        _, self.first, self.unit = np.unique(sample.unit[clicked], return_index=True, return_inverse=True)
        self.context, self.position, self.cluster = (
            values[clicked] for values in (sample.context, sample.position, sample.cluster)
        )
        self.log_exposure, self.clicks = np.log(sample.exposure[clicked]), sample.clicks[clicked]
        self.x, self.n_clusters = with_ones(sample.x), sample.n_clusters

    def kept_aside(self, fits: Sequence[Layers], aside: Array) -> Array:
        """Return the objective of each query by the fit that it was kept aside from, [queries]."""
        scores = [own * self.of(fitted) for fitted, own in zip(fits, aside, strict=True)]
        return np.stack(scores).sum(axis=0, dtype=np.float64)  # type: ignore[no-any-return]

    def of(self, layers: Layers) -> Array:
        """Return Σ_u Σ_k C log π of every query, [queries]."""
        logits = self.log_exposure + log_sigmoid(self.x @ layers.h)[self.context, self.position]
        logits -= np.maximum.reduceat(logits, self.first)[self.unit]
        log_total = np.log(np.add.reduceat(np.exp(logits), self.first))[self.unit]
        by_query: Array = np.zeros(self.n_clusters)
        np.add.at(by_query, self.cluster, self.clicks * (logits - log_total))
        return by_query


def _as_fit(
    curve: MLP, sample: Sample, weighting: str, chosen: Judged, rows: PairRows, layers: Layers
) -> tuple[Fit, float, Array]:
    """Return layers as a fit, its penalty and parameters, for intervals and for the file."""
    size = rows.n_positions
    own: dict[str, Any] = {}
    objective: AllPairs
    if chosen.relevance == "constant":
        objective, relevance = AllPairs(sample, weighting=weighting), np.zeros((size, size))
        relevance[rows.low, rows.high] = relevance[rows.high, rows.low] = layers.g[0]
        own = {"r": relevance.ravel()}
    elif chosen.relevance == "squares":
        objective = SquaresAllPairs(sample, weighting=weighting, strength=chosen.ridge_g / chosen.ridge_h)
        own = objective.init(np.random.default_rng(0))
        pairs = pair_number(rows.low, rows.high, size)
        own["c"][pairs], own["v"][:, pairs] = layers.g[0], layers.g[1:]
    else:
        objective = FreeAllPairs(sample, weighting=weighting)
    flat = flatten({"curve": {"c": layers.h[0], "v": layers.h[1:]}, "objective": own})
    return Fit(curve, objective, sample), chosen.ridge_h, flat
