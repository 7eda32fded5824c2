"""The fit of the affine model: slopes a_k and offsets b_k by likelihood, with relevance as a mixture.

A unit of relevance r in [0, 1] is clicked at position k with probability q_k(r) = (1 − r) q_k(0) + r q_k(1), a straight
line whatever its ends are. Its counts have the likelihood

    L_u = Σ_g π_g(z_u) Π_k q_k(r_g)^{C_uk} (1 − q_k(r_g))^{n_uk − C_uk},     log π_g(z) = const + Σ_j Q_j(r_g) B_j · z,

over a grid of relevances r_g. z_u are features of the unit's displays (`UnitCounts.features`), Q_j are Legendre
polynomials. The coefficients of the first two depend on z, so that mean and spread of relevance may differ between
units that stand high and units that stand low; the further ones give the distribution a shape. It is smooth and has few
parameters (as Efron's g-modelling, Biometrika 2016), so that error bars by query are those of an ordinary likelihood.

The ends of r are not identified, but a_k = (q_k(1) − q_k(0)) / (q_1(1) − q_1(0)) and b_k = q_k(0) − a_k q_1(0) are. A
small penalty, on B and on the distance of logits from their start, picks one of the equivalent parametrisations. The
search starts from the propensities of an examination model, without offsets.

The likelihood of a unit with many displays is so narrow that a coarse grid would miss it: the grid of a unit is as fine
as its likelihood needs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from clickharvest.click_models.affine.fitted import LARGEST, AffineModel
from clickharvest.click_models.base import Array
from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation.estimators import PBM
from clickharvest.estimation.fitting import FEWEST
from clickharvest.estimation.optimise import Status
from clickharvest.estimation.sample import supported_positions
from clickharvest.estimation.threads import on_one_thread
from clickharvest.harvesting.interventions import QUERY, Interventions, warn_of_clicked_pages
from clickharvest.harvesting.numbering import numbered
from clickharvest.model.provenance import data_fingerprint, record_provenance
from clickharvest.progress import Progress, Update, silent
from clickharvest.words import count

DEGREE = 5
"""Number of polynomials of the distribution of relevance."""
DEPENDENT = 2
"""Number of them whose coefficients depend on where a unit was shown."""
PENALTY = 0.1
"""Penalty on the squares of B and of the distance of logits from their start."""
COARSEST, FINEST = 32, 1024
"""Points of a grid; units that would need more count as if they were shown less often."""
ROWS = 4_000
"""Units in memory at once, on the coarsest grid."""
STEPS = 200
"""Most steps of an optimisation."""
SMALL = 1e-3
"""Expected gain in log likelihood of a further step below which a fit has converged."""
NUDGE = 1e-4
"""Step of the numerical derivative of the gradient."""
ENOUGH = 20_000
"""Most units that the curvature is computed from."""
LEAST_LEFT = 0.01
"""Least share of the information that is counted to all other queries where one query has nearly all."""
FLAT = 1e-6
"""Standard deviation of a feature, given the features before it, below which it is left out."""
VARIES = 2.0
"""Standard errors by which units must differ beyond chance, so that slopes are identified."""
LEAST_SPREAD = 1e-3
"""Standard deviation of click rates at the anchor between units below which they are equal."""


@on_one_thread
def fit_affine(
    interventions: Interventions, *, anchor: int = 1, intervals: bool = True, progress: Progress = silent
) -> AffineModel:
    """Fit slopes and offsets to interventions without a context.

    Args:
        interventions: interventions with the units that have no click, as `harvest` returns them by default.
        anchor: the position whose clicks are the unit.
        intervals: whether to make error bars, clustered by query.
        progress: shows what is being done.

    Raises:
        InputError: they have places instead of positions, or clusters other than queries.
        NotIdentifiedError: no position is linked to the anchor, or relevance does not vary enough to tell.
    """
    if interventions.places is not None:
        raise InputError(
            f"the model affine knows positions of a list, found places by "
            f"{', '.join(interventions.places.columns)}: fit --model examination, or leave --place out"
        )
    if interventions.cluster_kind != QUERY:
        raise InputError(
            f"clicks are clustered by {interventions.cluster_kind}: error bars of the model affine are by query; "
            "leave --cluster out"
        )
    warn_of_clicked_pages(interventions, "the model affine", stacklevel=5)
    counts = count_units(interventions, supported_positions(interventions, anchor))
    too_alike = (
        f"relevance does not vary enough: the {count(len(counts), 'unit')} shown at two positions or more differ in "
        "clicks no more than by chance, so that nothing tells trust from examination; fit --model examination, or "
        "harvest more queries"
    )
    if len(counts) < 2 or counts.variation() < VARIES:
        raise NotIdentifiedError(too_alike)
    mixture = Mixture(counts, anchor)
    with progress("Fitting") as update:
        examination = PBM(anchor=anchor, intervals=None).fit(interventions).predict()
        optimum = mixture.fit(examination.propensity[0, np.isin(examination.positions, counts.positions)], update)
    if not optimum.status.good:
        warnings.warn(f"Affine: the fit {optimum.status}", ConvergenceWarning, stacklevel=5)
    spread = mixture.relevance_spread(optimum.theta)
    if spread < LEAST_SPREAD:
        raise NotIdentifiedError(too_alike)
    a, b = mixture.affine(optimum.theta)
    covariance, effective_queries = None, None
    if intervals and counts.n_queries < FEWEST:
        there = count(counts.n_queries, "query", "queries")
        warnings.warn(
            f"error bars are by query, and there is {there}: there are none to give with fewer than {FEWEST}",
            HarvestWarning,
            stacklevel=5,
        )
    elif intervals:
        with progress("Error bars") as update:
            covariance, effective_queries = mixture.covariance(optimum.theta, update)
    rates = counts.rates()
    model = AffineModel(
        anchor=anchor,
        positions=counts.positions,
        slope=np.clip(a, -LARGEST, LARGEST),
        offset=np.clip(b, -LARGEST, LARGEST),
        covariance=None if covariance is None else np.clip(covariance, -LARGEST, LARGEST),
        shown=tuple(int(k) for k in np.unique(interventions.position)),
        info={
            "estimator": "Affine",
            "status": str(optimum.status),
            "log_likelihood": optimum.log_likelihood,
            "units": len(counts),
            "clicks": int(counts.clicks.sum()),
            "queries": counts.n_queries,
            "effective_queries": effective_queries,
            "anchor_rate": float(rates[counts.positions.index(anchor)]),
            "relevance_spread": spread,
            "data": data_fingerprint(interventions),
        },
        provenance=record_provenance("Affine", {"anchor": anchor, "intervals": intervals}),
    )
    if np.count_nonzero(model.predict().supported) < 2:
        raise NotIdentifiedError(
            f"what was shown at position {anchor} does not differ enough in relevance: slopes relative to it "
            "span a factor of ten or more; try another --anchor, or fit --model examination"
        )
    return model


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """Clicks and displays of U units at K positions.

    Attributes:
        positions: the positions, ascending, [K].
        clicks: clicks C_{u,k}, [U, K].
        shown: displays n_{u,k}, [U, K].
        query: number of each unit's query, from 0, [U].
        n_queries: number of queries.
    """

    positions: tuple[int, ...]
    clicks: Array
    shown: Array
    query: NDArray[np.int64]
    n_queries: int

    def __len__(self) -> int:
        return len(self.clicks)

    def rates(self) -> Array:
        """Return clicks per display at each position, [K]."""
        return np.asarray(self.clicks.sum(axis=0) / np.maximum(self.shown.sum(axis=0), 1))

    def features(self) -> Array:
        """Return features of a unit's displays that predict its relevance: 1, and up to five features, [U, ≤ 6].

        With m_u and s_u the mean and the standard deviation of log k over a unit's displays: polynomials of m_u up to
        the third degree, s_u, and the logarithm of the number of displays, all standardised. Features that are linear
        in those before them are left out. Rankers put relevant documents on top, so that m_u predicts best.
        """
        total = self.shown.sum(axis=1)
        log_k = np.log(self.positions)
        mean = self.shown @ log_k / total
        spread = np.sqrt(np.maximum(self.shown @ log_k**2 / total - mean**2, 0.0))
        m, s, n = (_standardised(column) for column in (mean, spread, np.log(total)))
        kept = [np.ones(len(m))]
        for column in (m, m**2, m**3, s, n):
            basis = np.column_stack(kept)
            rest = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
            if rest.std() > FLAT:
                kept.append(rest / rest.std())
        return np.column_stack(kept)

    def variation(self) -> float:
        """Return how clearly units differ in relevance, in standard errors clustered by query.

        With q_k the click rate of a position and v_u = Σ_k (C_{u,k} − n_{u,k} q_k), the sum over units of
        v_u² − Σ_k n_{u,k} q_k (1 − q_k) has the mean 0 where all units are alike, and a positive one where they differ.
        """
        q = self.rates()
        surprise = (self.clicks - self.shown * q).sum(axis=1)
        beyond = (surprise**2 - self.shown @ (q * (1 - q))) / np.maximum(self.shown.sum(axis=1), 1)
        by_query = np.bincount(self.query, beyond, self.n_queries)
        error = float(np.sqrt((by_query**2).sum()))
        return float(beyond.sum()) / error if error else 0.0


def count_units(interventions: Interventions, positions: Sequence[int]) -> UnitCounts:
    """Return the counts at some positions of the units that were shown at two of them or more.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0, 1, 1]), query=np.array(["q"] * 4), position=np.array([1, 2, 2, 3]),
        ...     exposure=np.ones(4), clicks=np.array([1, 0, 0, 0]), impressions=np.array([4, 2, 1, 1]))
        >>> counts = count_units(interventions, (1, 2))
        >>> counts.clicks.tolist(), counts.shown.tolist()
        ([[1.0, 0.0]], [[4.0, 2.0]])
    """
    rows = interventions.take(np.isin(interventions.position, positions) & (interventions.impressions > 0))
    n_units, unit = numbered(rows.unit)
    column = np.searchsorted(positions, rows.position)
    shape = (n_units, len(positions))
    clicks, shown = (
        np.bincount(unit * len(positions) + column, values, shape[0] * shape[1]).reshape(shape)
        for values in (rows.clicks, rows.impressions)
    )
    several = np.count_nonzero(shown, axis=1) >= 2
    first = np.zeros(n_units, np.intp)
    first[unit[::-1]] = np.arange(len(unit))[::-1]
    n_queries, query = numbered(rows.query[first[several]])
    return UnitCounts(tuple(map(int, positions)), clicks[several], shown[several], query, n_queries)


def _standardised(column: Array) -> Array:
    spread = column.std()
    scaled = (column - column.mean()) / spread if spread > FLAT else np.zeros_like(column)
    return np.clip(scaled, -4.0, 4.0)  # a query shown a thousand times as often as others must not tilt the rest


class Optimum(NamedTuple):
    """Parameters of the mixture, the log likelihood there, and how the search ended."""

    theta: Array
    log_likelihood: float
    status: Status


@dataclass(frozen=True, eq=False)
class _Group:
    """Units whose likelihood needs the same grid: their rows, the grid [G], and the polynomials there [G, DEGREE]."""

    rows: NDArray[np.intp]
    grid: Array
    polynomials: Array


class Mixture:
    """The likelihood of some counts.

    Parameters are the logits of q_k(0), of q_k(1), and B, [2 K + n] in all.

    Args:
        counts: the counts of units.
        anchor: the position that others are relative to.
    """

    def __init__(self, counts: UnitCounts, anchor: int) -> None:
        self.n_positions, self.anchor = len(counts.positions), counts.positions.index(anchor)
        self.query, self.n_queries = counts.query, counts.n_queries
        # Units with equal counts have equal likelihoods: many, where most were shown a few times.
        rows = np.concatenate([counts.shown, counts.clicks], axis=1)
        _, first, self.like = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        self.like = self.like.reshape(-1)
        self.times = np.bincount(self.like).astype(np.float64)
        self.clicks, self.shown = counts.clicks[first], counts.shown[first]
        self.features = counts.features()[first]
        self.of_polynomial, self.of_feature = (
            np.array(index)
            for index in zip(
                *[(j, z) for j in range(DEGREE) for z in range(self.features.shape[1] if j < DEPENDENT else 1)],
                strict=True,
            )
        )
        self.n_params = 2 * self.n_positions + len(self.of_polynomial)
        self.groups: list[_Group] = []
        self.centre = np.zeros(self.n_params)

    def start(self, a: Array) -> Array:
        """Return parameters near given slopes, without offsets, [2 K + n]; r spans the click rates of single units."""
        information = (self.shown * a**2).sum(axis=1)
        rate = (self.clicks * a).sum(axis=1) / np.maximum(information, np.finfo(float).tiny)
        best = np.argsort(-information)[: max(200, len(rate) // 4)]
        low, high = np.quantile(rate[best], [0.01, 0.99])
        low, high = low - 0.1 * (high - low), high + 0.1 * (high - low) + 0.01
        theta = np.zeros(self.n_params)
        usual = np.clip(self.times @ self.clicks / np.maximum(self.times @ self.shown, 1.0), 1e-3, 0.98)
        theta[: self.n_positions] = logit(np.clip(a * low, usual / 10, usual))
        theta[self.n_positions : 2 * self.n_positions] = logit(np.clip(a * high, usual, 1 - (1 - usual) / 10))
        return theta

    def fit(self, examination: Array, update: Update) -> Optimum:
        """Return the optimum near the propensities of an examination model, [K]; grids are refined on the way."""
        self.centre = theta = self.start(examination)
        for _ in range(2):
            self._refine(theta)
            optimum = self._climb(theta, update)
            theta = optimum.theta
        return optimum

    def affine(self, theta: Array) -> tuple[Array, Array]:
        """Return a and b, [K] each."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        a = (high - low) / (high - low)[self.anchor]
        return a, low - a * low[self.anchor]

    def covariance(self, theta: Array, update: Update) -> tuple[Array, float]:
        """Return the covariance of a and b, clustered by query, [2 K, 2 K], and the effective number of queries.

        It is H⁻¹ Σ_q t_q t_qᵀ H⁻¹ · Q / (Q − p) for Q queries and p parameters that the data determine, with the scores
        s_q of queries, t_q = s_q / √(1 − w_q): a query with a share w_q of the information pulls the fit its way, which
        makes its score small. There are 1 / Σ w_q² effective queries.

        Where only a query or two were clicked at a position, scores there are 0 at the optimum and miss the variance.
        A standard error below half of the model's own, from H⁻¹, is replaced by that one.
        """
        values, vectors = np.linalg.eigh(self._curvature(theta, update))
        root = (vectors / np.sqrt(np.maximum(values, PENALTY))) @ vectors.T
        scores = self._evaluate(theta)[1] @ root
        information = np.bincount(self.query, (scores**2).sum(axis=1)[self.like], self.n_queries)
        share = information / information.sum()
        by_query = (
            np.column_stack(
                [
                    np.bincount(self.query, column[self.like], self.n_queries)
                    for column in np.ascontiguousarray(scores.T)
                ]
            )
            / np.sqrt(np.maximum(1 - share, LEAST_LEFT))[:, None]
        )
        jacobian = self._jacobian(theta) @ root
        influence = jacobian @ by_query.T
        n_free = min(float(information.sum()), self.n_queries / 2)
        covariance = influence @ influence.T * self.n_queries / (self.n_queries - n_free)
        return _not_far_below(covariance, (jacobian**2).sum(axis=1)), 1 / float(share @ share)

    def relevance_spread(self, theta: Array) -> float:
        """Return the standard deviation of the units' click probability at the anchor under the mixture."""
        low, high = expit(theta[self.anchor]), expit(theta[self.n_positions + self.anchor])
        grid, polynomials = _grid(COARSEST)
        weights = (self.times @ self._mixing(theta, self.features, polynomials)) / self.times.sum()
        return float(abs(high - low) * np.sqrt(weights @ grid**2 - (weights @ grid) ** 2))

    def _jacobian(self, theta: Array) -> Array:
        """Return the derivatives of a and b, [2 K, 2 K + n]."""
        columns = []
        for i in range(2 * self.n_positions):
            nudge = np.zeros(self.n_params)
            nudge[i] = 1e-6
            ends = [np.concatenate(self.affine(theta + sign * nudge)) for sign in (1, -1)]
            columns.append((ends[0] - ends[1]) / 2e-6)
        return np.column_stack([*columns, np.zeros((2 * self.n_positions, self.n_params - 2 * self.n_positions))])

    def _curvature(self, theta: Array, update: Update) -> Array:
        """Return the negative second derivatives of the log likelihood; of many units, some are scaled up to all."""
        groups, scale = self.groups, float(self.times.sum())
        if len(self.times) > ENOUGH:
            keep = np.zeros(len(self.times), bool)
            keep[np.random.default_rng(0).permutation(len(self.times))[:ENOUGH]] = True
            self.groups = [_Group(g.rows[keep[g.rows]], g.grid, g.polynomials) for g in groups]
            scale /= float(self.times[keep].sum())
        else:
            scale = 1.0
        base, columns = self._gradient(theta), []
        for i in range(self.n_params):
            nudge = np.zeros(self.n_params)
            nudge[i] = NUDGE
            columns.append((base - self._gradient(theta + nudge)) / NUDGE * scale)
            update((i + 1) / self.n_params)
        self.groups = groups
        curvature = np.column_stack(columns)
        return np.asarray((curvature + curvature.T) / 2 + PENALTY * np.eye(self.n_params))

    def _gradient(self, theta: Array) -> Array:
        _, scores = self._evaluate(theta)
        return np.asarray(self.times @ scores)

    def _refine(self, theta: Array) -> None:
        """Group units by the grid that they need: its step is at most a standard deviation of r."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        middle = (low + high) / 2
        needed = np.sqrt(1.5 * (self.shown @ ((high - low) ** 2 / (middle * (1 - middle)))))
        share = np.minimum(1.0, FINEST / np.maximum(needed, 1.0))[:, None] ** 2
        self.hits, self.misses = share * self.clicks, share * (self.shown - self.clicks)
        steps = np.ceil(np.log2(np.clip(needed, COARSEST, FINEST) / COARSEST)).astype(int)
        self.groups = [
            _Group(np.flatnonzero(steps == step), *_grid(COARSEST * 2 ** int(step))) for step in np.unique(steps)
        ]

    def _climb(self, theta: Array, update: Update) -> Optimum:
        """Return the optimum by Newton steps with the information of the scores, damped until they gain."""
        damping = 1e-3
        value, scores = self._evaluate(theta)
        for step_number in range(STEPS):
            gradient = self.times @ scores - PENALTY * (theta - self.centre)
            information = (scores * self.times[:, None]).T @ scores + PENALTY * np.eye(self.n_params)
            scale = np.diag(np.diag(information) + 1e-6)
            while True:
                step = np.linalg.solve(information + damping * scale, gradient)
                gained, there = self._evaluate(theta + step)
                if gained >= value - 1e-9:
                    break
                damping = max(damping * 4, 1e-6)
                if damping > 1e8:
                    return Optimum(theta, value, Status.stalled)
            damping, theta, value, scores = max(damping / 5, 1e-8), theta + step, gained, there
            update(step_number / STEPS)
            if gradient @ step < SMALL:
                return Optimum(theta, value, Status.converged)
        return Optimum(theta, value, Status.out_of_iterations)

    def _evaluate(self, theta: Array) -> tuple[float, Array]:
        """Return the penalised log likelihood, and the score of every distinct unit, [D, 2 K + n]."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        value = -0.5 * PENALTY * float(((theta - self.centre) ** 2).sum())
        scores = np.zeros((len(self.times), self.n_params))
        for group in self.groups:
            q = _line(low, high, group.grid)
            for rows in _parts(group):
                log_likelihood, posterior, prior = self._posterior(theta, group, rows)
                value += float(self.times[rows] @ log_likelihood)
                hits, misses = self.hits[rows], self.misses[rows]
                score = np.empty((len(rows), self.n_params))
                for i, (end, weight) in enumerate(((low, 1 - group.grid), (high, group.grid))):
                    up, down = posterior @ (weight / q).T, posterior @ (weight / (1 - q)).T
                    columns = slice(i * self.n_positions, (i + 1) * self.n_positions)
                    score[:, columns] = (hits * up - misses * down) * (end * (1 - end))
                moved = (posterior - prior) @ group.polynomials
                by_b = moved[:, self.of_polynomial] * self.features[rows][:, self.of_feature]
                score[:, 2 * self.n_positions :] = by_b
                scores[rows] = score
        return value, scores

    def _posterior(self, theta: Array, group: _Group, rows: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Return log L_u, and the posterior and prior weights of the grid, [n], [n, G], [n, G]."""
        low, high = expit(theta[: self.n_positions]), expit(theta[self.n_positions : 2 * self.n_positions])
        q = _line(low, high, group.grid)
        likelihood = self.hits[rows] @ np.log(q) + self.misses[rows] @ np.log1p(-q)
        prior = self._mixing(theta, self.features[rows], group.polynomials)
        largest = likelihood.max(axis=1, keepdims=True)
        posterior = prior * np.exp(likelihood - largest)
        total = posterior.sum(axis=1, keepdims=True)
        return np.log(total[:, 0]) + largest[:, 0], posterior / total, prior

    def _mixing(self, theta: Array, features: Array, polynomials: Array) -> Array:
        """Return π_g(z): [n, Z], [G, DEGREE] → [n, G]."""
        coefficients = np.zeros((DEGREE, features.shape[1]))
        coefficients[self.of_polynomial, self.of_feature] = theta[2 * self.n_positions :]
        log_weight = features @ (polynomials @ coefficients).T
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _not_far_below(covariance: Array, floor: Array) -> Array:
    """Return a covariance with the variances `floor`, [n], where its own are less than a quarter of them.

    Example:
        >>> _not_far_below(np.array([[1.0, 0.1], [0.1, 0.04]]), np.array([3.0, 1.0])).tolist()
        [[1.0, 0.5], [0.5, 1.0]]
    """
    variance = np.maximum(np.diag(covariance), np.finfo(float).tiny)
    factor = np.sqrt(np.where(floor > 4 * variance, floor / variance, 1.0))
    return np.asarray(covariance * np.outer(factor, factor))


def _line(low: Array, high: Array, grid: Array) -> Array:
    """Return q_k(r_g), away from 0 and 1 by what logarithms need, [K, G]."""
    return np.clip(low[:, None] * (1 - grid) + high[:, None] * grid, 1e-9, 1 - 1e-9)


def _grid(points: int) -> tuple[Array, Array]:
    """Return the middles of equal parts of [0, 1], and orthonormal polynomials there, but for the constant one."""
    grid = (np.arange(points) + 0.5) / points
    scale = np.sqrt(2.0 * np.arange(1, DEGREE + 1) + 1)
    return grid, np.polynomial.legendre.legvander(2 * grid - 1, DEGREE)[:, 1:] * scale


def _parts(group: _Group) -> list[NDArray[np.intp]]:
    size = max(1, ROWS * COARSEST // len(group.grid))
    return [group.rows[begin : begin + size] for begin in range(0, len(group.rows), size)]
