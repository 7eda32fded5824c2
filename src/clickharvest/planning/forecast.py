"""Forecast: the widths of the intervals of a fit with s times the traffic.

The covariance of a fit, by query (`query_random_effects`), is V = J⁻¹ (φ H + σ² S + ς² T + Λ) J⁻¹ with J = H + Λ, H
the information of the clicks, S and T the score's variance by queries that differ, and Λ the precision of the prior.
With s times as many pages of the same kind H becomes s H. S and T do not: more clicks of the same queries are no new
queries. Clicks N_u of units are about Poisson, and of S the part of pairs of clicks grows with s², the part of single
clicks with s:

    S(s) = s² (S − B) + s B,   B = Σ_u Σ_k N_u π_{u,k}² (z_{u,k} − z̄_u)(z_{u,k} − z̄_u)ᵀ,

and T, nearly all of it pairs, with s². So V(s) does not go to 0 where queries differ (σ² > 0) and the same queries come
again and again: then no amount of such traffic is enough, and only other queries help. With `new_queries` all traffic
beyond the log is of other queries, and S grows with s. Misfit of the contexts (`model_uncertainty`) falls with 1/s.

That takes σ², ς², φ and Λ for known; the draws of `outlook` do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from clickharvest.estimation.model_uncertainty import misfit, widened
from clickharvest.estimation.pooling import Pooled, curve_order, pool_seen
from clickharvest.estimation.power_law_prior import PowerLawPrior
from clickharvest.estimation.query_random_effects import Clustered, clustered_covariance
from clickharvest.estimation.sample import Sample, find_reach, make_samples
from clickharvest.estimation.support import effective_queries
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant, Curve, Linear, unflatten_params
from clickharvest.planning.outlook import Outlook, quadratic_form
from clickharvest.planning.query_variances import counts, query_variances, single_clicks, unseen

Array = NDArray[np.float64]

MOST_CONTEXTS = 50
"""Contexts whose intervals are forecast: those with most clicks."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The covariance of a fit, ready to be scaled.

    Attributes:
        positions: the positions linked to the anchor, ascending, [K].
        contexts: the contexts that are forecast, as columns of values, [c] each; empty without context.
        clicks: clicks on intervened units in each context, [c].
        gradients: gradients of log p_k / p_anchor, [c, K, size].
        log_p: log p_k / p_anchor, [c, K].
        information: H, [size, size].
        precision: Λ, [size, size].
        apart: σ² S and ς² T, or the variance by users, [size, size].
        overdispersion: φ.
        missed: covariance by misfit, [size, size].
        queries: number of queries.
        effective: effective queries, or other clusters, of log p_k / p_anchor; None for the anchor, [K].
        fit: the fit itself.
        clustered: its covariance.
        sample: its sample.
        interventions: what was fitted.
    """

    positions: tuple[int, ...]
    contexts: dict[str, NDArray[np.object_]]
    clicks: Array
    gradients: Array
    log_p: Array
    information: Array
    precision: Array
    apart: Array
    overdispersion: float
    missed: Array
    queries: int
    effective: tuple[float | None, ...]
    fit: Pooled
    clustered: Clustered
    sample: Sample
    interventions: Interventions

    @cached_property
    def _basis(self) -> tuple[Array, Array]:
        """D and P with Pᵀ (H + Λ) P = 1 and Pᵀ H P = D, so that (s H + Λ)⁻¹ = P (1 + (s − 1) D)⁻¹ Pᵀ for every s."""
        values, vectors = eigh(self.information, self.information + self.precision, check_finite=False)
        return values, vectors

    @cached_property
    def single(self) -> Array:
        """σ² B, [size, size]."""
        variance = self.clustered.variance
        return variance * single_clicks(self.fit) if variance else np.zeros_like(self.apart)

    @cached_property
    def log_sd_now(self) -> Array:
        """The standard deviations of log p_k / p_anchor of the fit, [c, K]."""
        covariance = self.clustered.covariance + self.missed
        return np.asarray(np.sqrt(np.maximum(quadratic_form(self.gradients, covariance), 0.0)))

    def log_sd(self, scale: float | Array, *, new_queries: bool = False) -> Array:
        """Return the standard deviations of log p_k / p_anchor with `scale` times the traffic, [c, K].

        Each entry may have a scale of its own.
        """
        values, vectors = self._basis
        s = np.broadcast_to(np.asarray(scale, np.float64), self.gradients.shape[:2])
        rows = self.gradients @ vectors / (1 + (s[..., None] - 1) * values)
        pairs = np.zeros_like(self.apart) if new_queries else self.apart - self.single
        singles = self.overdispersion * self.information + (self.apart if new_queries else self.single)
        fixed, once, twice = (
            quadratic_form(rows, vectors.T @ part @ vectors) for part in (self.precision, singles, pairs)
        )
        # The variance by pairs of clicks is an estimate, and may come out below 0.
        variance = fixed + s * once + s**2 * np.maximum(twice, 0.0) + quadratic_form(self.gradients, self.missed) / s
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def outlook(self, seed: int = 0) -> Outlook:
        """Return the distribution of the widths of grown logs; its entries are those of [c, K], one after the other."""
        fit, (values, vectors) = self.fit, self._basis
        gradients = self.gradients.reshape(-1, self.gradients.shape[-1])
        variances, (by_position, by_steepness), single = query_variances(fit, self.clustered, self.sample)
        prior = fit.prior
        learned = np.zeros(0, dtype=bool) if prior is None else prior.learned
        chance, slopes = counts(fit, gradients)

        def turned(matrix: Array) -> Array:
            return vectors.T @ matrix @ vectors

        return Outlook(
            rows=gradients @ vectors,
            information=np.maximum(values, 0.0),
            precision=np.maximum(1 - values, 0.0),
            linear=vectors.T @ (fit.information @ fit.theta + fit.score),
            rank=prior.rank if isinstance(prior, PowerLawPrior) and learned.any() else 0,
            spread=np.exp(fit.log_spread[learned]),
            pairs=turned(by_position - single),
            single=turned(single),
            steep=turned(by_steepness),
            missed=quadratic_form(gradients, self.missed),
            counts=chance,
            slopes=slopes @ vectors,
            variances=variances,
            unseen=unseen(self.interventions, fit, seed),
            seed=seed,
        )


def forecast(interventions: Interventions, *, anchor: int = 1) -> Forecast:
    """Fit interventions as `PBM`, or with contexts as a pooled `linear` curve, and return what scales its covariance.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    reach = find_reach(interventions, anchor)
    encoder = ContextEncoder.fit(interventions.contexts) if interventions.contexts else None
    sample, seen = make_samples(interventions, reach, encoder)
    features = sample.x.shape[1]
    curve: Curve = Linear(reach.linked, anchor, features) if features else Constant(reach.linked, anchor, 0)
    fit = pool_seen(curve, sample, seen)
    if fit.shares.positions == reach.tied:
        curve, sample = replace(curve, positions=reach.tied), seen
    clustered = clustered_covariance(fit)
    off_by = misfit(curve, sample, fit, clustered) if features else None
    whole = clustered.covariance if off_by is None else widened(sample, fit, clustered.covariance, off_by)
    effective = dict(zip(curve.positions, _effective(curve, sample, fit, clustered), strict=True))
    clicks = np.bincount(sample.context, sample.clicks, len(sample.x)).astype(np.float64)
    most = np.sort(np.argsort(-clicks, kind="stable")[:MOST_CONTEXTS])
    gradients = fit.shares.gradients(most)[:, np.isin(fit.shares.positions, reach.linked)]
    contexts = {} if encoder is None else _values(interventions, encoder, sample.x[most])
    return Forecast(
        positions=reach.linked,
        contexts=contexts,
        clicks=clicks[most],
        gradients=gradients,
        log_p=np.einsum("cki,i->ck", gradients, fit.theta),
        information=fit.information,
        precision=fit.precision,
        apart=clustered.apart,
        overdispersion=clustered.overdispersion,
        missed=whole - clustered.covariance,
        queries=sample.n_queries,
        effective=tuple(effective[k] for k in reach.linked),
        fit=fit,
        clustered=clustered,
        sample=sample,
        interventions=interventions,
    )


def _effective(curve: Curve, sample: Sample, fit: Pooled, clustered: Clustered) -> tuple[float | None, ...]:
    """Return effective queries, or other clusters, of every position of a curve, as a fit has them, [K]."""
    if sample.clustered_by != "query":
        of_clusters = dict(zip(curve.positions, clustered.effective_queries.tolist(), strict=True))
        return tuple(None if k == curve.anchor else n for k, n in of_clusters.items())
    flat = fit.theta[curve_order(curve, fit.shares)]
    params = unflatten_params(flat, curve.init(np.random.default_rng(0)))
    return effective_queries(sample, curve.anchor, curve.relative(params, sample.x))


def _values(interventions: Interventions, encoder: ContextEncoder, x: Array) -> dict[str, NDArray[np.object_]]:
    """Return the values of the context columns that were encoded as x."""
    columns = {name: interventions.contexts[name] for name in encoder.columns}
    encoded = encoder.transform(columns)
    row = {tuple(values): i for i, values in reversed(list(enumerate(np.round(encoded, 12).tolist())))}
    first = [row[tuple(values)] for values in np.round(x, 12).tolist()]
    return {name: column[first].astype(object) for name, column in columns.items()}
