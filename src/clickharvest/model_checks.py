"""Checks of the model itself: does context matter, do pairwise ratios agree, does relevance change them?

All three are score tests of columns A added to the logits of click shares,

    π_{u,k} ∝ e_{u,k} exp(B_{u,k}·β + A_{u,k}·α),   α = 0 under the null, B the columns of the null model.

With residuals C_{u,k} − N_u π_{u,k} of the null fit, query q has the scores S_q = Σ residual · (B, A). Those of A, less
what the fit of β takes from them, are s_q = S_q^A − I_AB I_BB⁻¹ S_q^B (I the information matrix). Then

    T = Uᵀ V⁻¹ U,   U = Σ_q s_q,   V = Σ_q s_q s_qᵀ,   T / Q ~ Beta(r/2, (Q − r)/2),

r the rank of V and Q the number of queries: Hotelling's test, valid however clicks of one query depend on each other.
Only the null model is fitted, so nothing runs off to infinity. Needs NumPy and SciPy, not JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack
from scipy.special import fdtrc

from clickharvest.contexts import ContextEncoder
from clickharvest.errors import InputError
from clickharvest.findings import ALARM, Finding, spell_p
from clickharvest.interventions import Interventions
from clickharvest.samples import Sample, make_sample, supported_positions

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

QUERIES_PER_DIRECTION = 4
"""Queries needed for each tested direction; with fewer, fewer directions are tested."""

RIDGE = 1e-3
"""Penalty on the null model's parameters, weak enough to matter only where a ratio would be infinite."""


def check_model(
    interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None, seed: int = 0
) -> list[Finding]:
    """Return the findings of all checks that apply; whether context matters needs context columns.

    Args:
        interventions: the harvest.
        anchor: the position others are relative to; positions not linked to it are left out.
        kinds: kind of context columns where it is not plain from their values, see `ContextEncoder`.
        seed: seed of the split of `trust_bias`.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=5_000)
        >>> for finding in check_model(harvest(read_log(log, context=["device"]))):
        ...     print(finding.name, finding.status)
        context matters note
        transitivity ok
        trust bias ok
    """
    findings = [context_matters(interventions, anchor=anchor, kinds=kinds)] if interventions.contexts else []
    findings.append(transitivity(interventions, anchor=anchor, kinds=kinds))
    return [*findings, trust_bias(interventions, anchor=anchor, kinds=kinds, seed=seed)]


def context_matters(
    interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None
) -> Finding:
    """Test whether examination depends on context: `linear`, log p_k(x) = b_k + W_k·x, against W = 0.

    The number is the likelihood ratio 2 (ll(b, W) − ll(b)). Its χ² law holds for independent clicks only, so the
    p-value is that of the query-clustered score test of W. With fewer than four queries per entry of W the power
    direction alone is tested and fitted, W_k = −w log(k / anchor): does context make the curve steeper?

    Raises:
        InputError: there are no context columns.
        NotIdentifiedError: no position is linked to the anchor.
    """
    if not interventions.contexts:
        raise InputError("nothing to test: the interventions have no context columns; harvest with --context")
    sample = _sample(interventions, anchor, kinds)
    cells = _cells(sample)
    null, (extra, shape) = _null_columns(sample, anchor), _context_columns(sample, anchor, cells.queries)
    name, spelled = "context matters", ", ".join(interventions.contexts)
    null, extra = null[cells.rows], extra[cells.rows]
    test = _score_test(cells, null, extra)
    if test is None:
        sentence = f"Too few queries with clicks ({cells.queries:,}) to test whether examination depends on {spelled}."
        return Finding(name, "note", sentence)
    gain = 2 * (_fit_shares(cells, hstack([null, extra], format="csr")).value - test.null.value)
    told = f"likelihood ratio {gain:,.1f} on {test.freedom} degrees of freedom, {spell_p(test.p_value)}{shape}"
    if test.p_value < ALARM:
        sentence = f"Examination depends on {spelled} ({told}): fit a CPBM; a PBM would give every context the average."
        return Finding(name, "note", sentence, gain, test.p_value)
    sentence = f"No sign that examination depends on {spelled} ({told}): a PBM is enough, and more precise."
    return Finding(name, "ok", sentence, gain, test.p_value)


def transitivity(
    interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None
) -> Finding:
    """Test whether the ratios of all pairs of positions agree with one curve.

    In the units exposed at both k and k' the clicks there alone measure one ratio, with
    Pr(click at k' | click at k or k') = σ(log(e_k' / e_k) + β_k' − β_k + θ_{kk'}). One curve β for all means θ = 0,
    whatever the units' relevance: every (unit, pair) is made a unit of two cells, and the θ_{kk'} are the columns
    tested. With context columns β_k + W_k·x stands for β_k (units whose context varies inside are tested without).
    Pairs with most information are tested first, as many as there are queries for.

    The number is T / r: how much pairs disagree, relative to what chance allows.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    pooled = interventions.unit_kind == "query"
    sample = _sample(replace(interventions, contexts={}) if pooled else interventions, anchor, kinds)
    cells, pair = _pairs(_cells(sample), sample.position)
    columns, _ = _context_columns(sample, anchor, cells.queries)
    null = hstack([_null_columns(sample, anchor), columns], format="csr")[cells.rows]
    pairs, code = np.unique(pair, axis=1, return_inverse=True)
    second = sample.position[cells.rows] == pairs[1][code]
    spots = np.flatnonzero(second)
    extra = csr_array((np.ones(len(spots)), (spots, code[spots])), shape=(len(code), pairs.shape[1]))
    test = _score_test(cells, null, extra, most=cells.queries // QUERIES_PER_DIRECTION)
    if test is None:
        return Finding("transitivity", "note", "No position is reached in two ways: transitivity cannot be tested.")
    value = test.statistic / test.freedom
    told = f"{value:.2f} times as much as chance allows, {spell_p(test.p_value)}"
    if test.p_value >= ALARM:
        sentence = f"Ratios of position pairs differ from one curve {told}: they agree."
        return Finding("transitivity", "ok", sentence, value, test.p_value)
    worst = int(np.argmax(np.abs(test.z)))
    k, other = (sample.positions[i] for i in pairs[:, worst])
    sentence = (
        f"Ratios of position pairs differ from one curve {told}; most so positions {k} and {other}, whose ratio is "
        f"{np.exp(test.shift[worst]):.2f} times the curve's. Examination depends on more than position"
        f"{' and context' if sample.x.shape[1] else ''}: add what differs between the pages as context, or fit "
        "rankers or page types apart."
    )
    return Finding("transitivity", "warning", sentence, value, test.p_value)


def trust_bias(
    interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None, seed: int = 0
) -> Finding:
    """Test whether the ratio of positions depends on the unit's relevance, as when users trust top results.

    Impressions are split at random into halves, clicks with them; the halves' clicks are independent given the unit.
    One half gives a relevance z_u = log((C_u + 1) / (Σ_k n_{u,k} p̂_k + 1/m)), m the mean click rate of examined
    units, standardised; the other half's clicks are tested for a term γ z_u log(k / anchor), and the other way round,
    both in one score. The null model has a free value per position, and context columns where there are some.

    The number is the estimate of γ: how much flatter (> 0) the curve is, as a power of k, for units whose log
    relevance is one standard deviation higher.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    sample = _sample(interventions, anchor, kinds)
    cells, null = _cells(sample), _null_columns(sample, anchor)
    log_p = null @ _fit_shares(cells, null[cells.rows]).theta
    columns, _ = _context_columns(sample, anchor, cells.queries)
    null = hstack([null, columns], format="csr")
    log_distance = _log_distance(sample, anchor)
    halves = _halves(sample, interventions.exposure_kind == "realised", seed)
    tested = [_cells(half) for half in halves]
    relevance = [_relevance(half, log_p) for half in reversed(halves)]
    extra = [csr_array((z * log_distance)[part.rows][:, None]) for z, part in zip(relevance, tested, strict=True)]
    both = _Cells(
        rows=np.concatenate([part.rows for part in tested]),
        unit=np.concatenate([tested[0].unit, tested[1].unit + len(tested[0].first)]),
        cluster=np.concatenate([part.cluster for part in tested]),
        log_exposure=np.concatenate([part.log_exposure for part in tested]),
        clicks=np.concatenate([part.clicks for part in tested]),
    )
    test = _score_test(both, null[both.rows], vstack(extra, format="csr"))
    name = "trust bias"
    if test is None:
        return Finding(name, "note", "Too few clicks to test whether examination ratios depend on relevance.")
    value = float(test.shift[0])
    if test.p_value >= ALARM:
        sentence = f"No sign that ratios depend on relevance (power of k {value:+.2f} per sd, {spell_p(test.p_value)})."
        return Finding(name, "ok", sentence, value, test.p_value)
    fall, why = ("less", "likely trust in top results") if value > 0 else ("more", "likely a stop after a good result")
    sentence = (
        f"Relevant results lose {fall} of their clicks further down than others (power of k {value:+.2f} per sd of "
        f"log relevance, {spell_p(test.p_value)}): {why}. Propensities are then an average over relevance: correct "
        "clicks for trust (affine correction), or use the weights with care."
    )
    return Finding(name, "warning", sentence, value, test.p_value)


@dataclass(frozen=True)
class _Cells:
    """Cells of units with clicks: where they stand in the sample, unit (ascending from 0), query, offset, clicks."""

    rows: Integers
    unit: Integers
    cluster: Integers
    log_exposure: Array
    clicks: Array

    @cached_property
    def first(self) -> NDArray[np.intp]:
        return np.flatnonzero(np.diff(self.unit, prepend=-1))

    @cached_property
    def totals(self) -> Array:
        return np.add.reduceat(self.clicks, self.first)

    @cached_property
    def queries(self) -> int:
        return len(np.unique(self.cluster))

    def by(self, group: Integers) -> csr_array[np.float64]:
        """Return the matrix that sums rows by group."""
        _, code = np.unique(group, return_inverse=True)
        return csr_array((np.ones(len(code)), (code, np.arange(len(code)))))

    def shares(self, logits: Array) -> Array:
        """Return π of each cell."""
        weight = np.exp(logits - np.maximum.reduceat(logits, self.first)[self.unit])
        return weight / np.add.reduceat(weight, self.first)[self.unit]

    def information(self, columns: csr_array[np.float64], shares: Array) -> Array:
        """Return Σ_u N_u Cov_π(columns): minus the second derivative of the log likelihood."""
        mean = csr_array(self.by(self.unit) @ _scaled(columns, shares))
        whole = columns.T @ _scaled(columns, shares * self.totals[self.unit])
        return np.asarray((whole - mean.T @ _scaled(mean, self.totals)).toarray())


@dataclass(frozen=True)
class _Shares:
    """A fit of click shares: parameters, π of each cell, log likelihood."""

    theta: Array
    shares: Array
    value: float


def _fit_shares(cells: _Cells, columns: csr_array[np.float64]) -> _Shares:
    """Maximise Σ C log π − RIDGE |θ|² / 2 by Newton's method with step halving; concave."""

    def at(theta: Array) -> _Shares:
        shares = cells.shares(cells.log_exposure + columns @ theta)
        return _Shares(theta, shares, float(xlogy(cells.clicks, shares).sum()))

    def objective(fit: _Shares) -> float:
        return fit.value - RIDGE * float(fit.theta @ fit.theta) / 2

    now = at(np.zeros(columns.shape[1]))
    for _ in range(50):
        gradient = columns.T @ cells.residual(now.shares) - RIDGE * now.theta
        hessian = cells.information(columns, now.shares) + RIDGE * np.eye(len(gradient))
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < 1e-8:
            break
        ahead = at(now.theta + step)
        while objective(ahead) < objective(now):
            step = step / 2
            ahead = at(now.theta + step)
        now = ahead
    return now


@dataclass(frozen=True)
class _ScoreTest:
    """T and its law; per tested column the one-step estimate alone (U / I) and z = U / √V; the null fit."""

    statistic: float
    freedom: int
    p_value: float
    shift: Array
    z: Array
    null: _Shares


def _score_test(
    cells: _Cells, null: csr_array[np.float64], extra: csr_array[np.float64], *, most: int | None = None
) -> _ScoreTest | None:
    """Test the columns `extra` beside `null`, at most the `most` informative; None if the clicks cannot tell."""
    fit = _fit_shares(cells, null)
    columns, size = hstack([null, extra], format="csr"), null.shape[1]
    information = cells.information(columns, fit.shares)
    scores = csr_array(cells.by(cells.cluster) @ _scaled(columns, cells.residual(fit.shares)))
    taken = information[size:, :size] @ np.linalg.pinv(information[:size, :size], rcond=1e-10, hermitian=True)
    efficient = np.hstack([-taken, np.eye(extra.shape[1])])
    score = efficient @ scores.sum(axis=0)
    spread = efficient @ (scores.T @ scores).toarray() @ efficient.T
    left = information[size:, size:] - taken @ information[:size, size:]
    told = np.diag(left) > 1e-9 * np.maximum(np.diag(information)[size:], 1e-9)
    told[np.argsort(np.where(told, -np.diag(left), 0.0), kind="stable")[most:]] = False
    basis = _directions(left[np.ix_(told, told)])
    basis = basis @ _directions(basis.T @ spread[np.ix_(told, told)] @ basis)
    freedom, queries = basis.shape[1], cells.queries
    if not 0 < 2 * freedom <= queries:
        return None
    root = basis.T @ score[told]
    statistic = float(root @ np.linalg.solve(basis.T @ spread[np.ix_(told, told)] @ basis, root))
    beyond = queries - freedom
    ratio = statistic / max(queries - statistic, 1e-12) * beyond / freedom
    nothing = np.zeros(len(score))
    shift = np.divide(score, np.diag(left), out=nothing.copy(), where=told)
    z = np.divide(score, np.sqrt(np.abs(np.diag(spread))), out=nothing, where=told & (np.diag(spread) > 0))
    return _ScoreTest(statistic, freedom, float(fdtrc(freedom, beyond, ratio)), shift, z, fit)


def _directions(matrix: Array) -> Array:
    """Return a basis, [n, rank], of the directions in which a positive matrix is not flat, each column scaled first."""
    scale = 1 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    values, vectors = np.linalg.eigh(matrix * scale * scale[:, None])
    basis: Array = (scale[:, None] * vectors)[:, values > 1e-8]
    return basis


def _scaled(matrix: csr_array[np.float64], weight: Array) -> csr_array[np.float64]:
    """Return diag(weight) · matrix."""
    data = matrix.data * np.repeat(weight, np.diff(matrix.indptr))
    return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _sample(interventions: Interventions, anchor: int, kinds: Mapping[str, str] | None) -> Sample:
    positions = supported_positions(interventions, anchor)
    encoder = ContextEncoder.fit(interventions.contexts, kinds=kinds) if interventions.contexts else None
    return make_sample(interventions, positions, encoder)


def _cells(sample: Sample) -> _Cells:
    clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
    rows = np.flatnonzero(clicked & (sample.exposure > 0))
    _, unit = np.unique(sample.unit[rows], return_inverse=True)
    clicks = sample.clicks[rows].astype(np.float64)
    return _Cells(rows, unit, sample.cluster[rows], np.log(sample.exposure[rows]), clicks)


def _pairs(cells: _Cells, position: Integers) -> tuple[_Cells, Integers]:
    """Make every pair of a unit's cells a unit of its own; return it with the pair of positions of each cell."""
    later = np.append(cells.first[1:], len(cells.unit))[cells.unit] - np.arange(len(cells.unit)) - 1
    one = np.repeat(np.arange(len(cells.unit)), later)
    two = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(later) - later, later)
    clicked = cells.clicks[one] + cells.clicks[two] > 0
    index = np.stack([one[clicked], two[clicked]], axis=1)
    at = position[cells.rows[index]]
    index, at = np.take_along_axis(index, np.argsort(at, axis=1), axis=1).ravel(), np.sort(at, axis=1)
    columns = (getattr(cells, name)[index] for name in ("cluster", "log_exposure", "clicks"))
    return _Cells(cells.rows[index], np.repeat(np.arange(len(at)), 2), *columns), np.repeat(at, 2, axis=0).T


def _null_columns(sample: Sample, anchor: int) -> csr_array[np.float64]:
    """Return the columns of the PBM, [n, K − 1]; where contexts vary inside units, also x, how much they click."""
    return _by_position(np.ones((len(sample.unit), 1)), sample, anchor) if not _varying(sample) else 0
