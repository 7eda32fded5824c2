"""Pooling: positions and contexts are free, and held together by variances that the data choose.

Log examination has a normal prior around 0 whose precision Λ(τ) depends on a few standard deviations: that of a list
holds positions near a power law (`power_law_prior`), that of places near their parents (`normal_prior`). A sparse log
gives a smooth curve, a dense log a free one, without a penalty to choose.

The variances maximise the evidence, the likelihood with θ integrated out by Laplace's method,

    ½ yᵀ(H + Λ)⁻¹y + ½ log|Λ| − ½ log|H + Λ| + Σ g (log τ − τ),   y = H θ̂ + score(θ̂),

in which the likelihood is replaced by its quadratic at θ̂, found again until τ settles. The last term, a weak prior,
keeps a variance from collapsing to 0 where too little is there to learn it from. Nothing is held out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from clickharvest.estimation.cells import Shares, cells_of
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.normal_prior import FREE, NormalPrior, place_prior
from clickharvest.estimation.optimise import Status
from clickharvest.estimation.power_law_prior import PowerLawPrior
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Constant, Curve, Linear

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

BOUNDS = (1e-3, 10.0)
"""Least and largest standard deviation of an effect on log examination."""
START = 0.3
"""Standard deviation to start from: effects of a third."""
SETTLED = 0.02
"""Once no variance changes by more than this, on the log scale, the quadratic is good enough."""
ROUNDS, AGAIN, STEPS = 12, 2, 60
"""Most rounds of quadratics, from scratch and from a fit to most of the queries, and most Newton steps of each."""
LARGEST = 2_000
"""Most parameters: beyond, factoring their matrices takes minutes."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """A curve's parameters with the prior that held them together.

    Attributes:
        shares: the cells they were fitted to.
        theta: the parameters by blocks, [size].
        at: the click shares there.
        information: H there, [size, size].
        precision: Λ, [size, size].
        prior: what Λ is made of; None where it is that of a given penalty.
        log_spread: log τ, [priors].
        status: how the fit ended.
    """

    shares: MultinomialLogit
    theta: Array
    at: Shares
    information: Array
    precision: Array
    prior: NormalPrior | None
    log_spread: Array
    status: Status

    @property
    def score(self) -> Array:
        """The gradient of the log likelihood, [size]: what the prior holds in balance."""
        return self.shares.score(self.at)

    @property
    def off_curve(self) -> dict[int, list[int]]:
        """The positions that the others do not predict: of all contexts (0), and by the number of a feature, from 1."""
        rows = {} if self.prior is None else self.prior.off_curve()
        return {row: [self.shares.positions[i] for i in at] for row, at in rows.items()}

    @property
    def left(self) -> Array:
        """What shrinkage leaves unknown, [size, size]."""
        return self.precision

    @property
    def spread(self) -> dict[str, float | None] | None:
        """The prior's standard deviations; None where Λ is that of a given penalty."""
        if self.prior is None:
            return None
        tau = zip(self.prior.names, np.exp(self.log_spread).tolist(), self.prior.learned, strict=True)
        return {name: one if learned else None for name, one, learned in tau}

    def refit(self, weights: Array) -> Pooled:
        """Return the fit with queries weighted, [queries]; their clicks choose the variances again."""
        return settle(_newton(replace(self, shares=self.shares.weighted(weights))), AGAIN)


def can_pool(curve: Curve, sample: Sample) -> bool:
    """Return whether a curve is linear in its parameters, and a sample's parameters few enough."""
    if isinstance(curve, Constant):
        # A context that varies inside units has a parameter of its own, which a constant curve has no block for.
        return len(curve.positions) - 1 <= LARGEST and (sample.unit_kind != "query" or not sample.x.shape[1])
    return isinstance(curve, Linear) and len(curve.positions) * (1 + sample.x.shape[1]) <= LARGEST


def logit_of(curve: Curve, sample: Sample) -> MultinomialLogit:
    """Return the cells that a curve which `can_pool` is fitted to."""
    if isinstance(curve, Constant):
        return MultinomialLogit(cells_of(sample).in_one_context(), np.zeros((1, 0)), curve.anchor)
    return MultinomialLogit(cells_of(sample), sample.x, curve.anchor, varying=sample.unit_kind == "query")


def make_prior(curve: Curve, sample: Sample, width: int, size: int) -> NormalPrior:
    """Return the prior of a curve's positions, or of its places, for blocks of some width and size in all."""
    if sample.places is not None:
        return place_prior(sample.places, sample.positions, curve.anchor, width, size)
    return PowerLawPrior(curve.log_distance(), curve.anchor_index, width, size)


def pool(curve: Curve, sample: Sample) -> Pooled:
    """Fit a curve that `can_pool`, variances by marginal likelihood."""
    shares = logit_of(curve, sample)
    prior = make_prior(curve, sample, shares.width, shares.size)
    log_spread = np.log(np.where(prior.learned, START, BOUNDS[0]))
    begun = start(-curve.log_distance(), shares, prior.matrix(np.exp(log_spread)))
    return settle(replace(begun, prior=prior, log_spread=log_spread))


def pool_seen(curve: Curve, sample: Sample, seen: Sample) -> Pooled:
    """Fit a curve that `can_pool` to all positions that are seen, if these are not too many.

    `sample` is at the curve's positions, `seen` at these and others.
    """
    whole = replace(curve, positions=seen.positions)
    return pool(whole, seen) if can_pool(whole, seen) else pool(curve, sample)


def with_penalty(curve: Curve, sample: Sample, penalty: float) -> Pooled:
    """Fit a curve that `can_pool` with the penalty λ/2 Σ W² on its context effects, positions free."""
    shares = logit_of(curve, sample)
    diagonal = np.full((shares.n_blocks, shares.width), penalty + FREE)
    diagonal[: shares.n_positions - 1, 0] = FREE
    return start(-curve.log_distance(), shares, np.diag(diagonal.ravel()))


def curve_order(curve: Curve, shares: MultinomialLogit) -> Integers:
    """Return which of the parameters by blocks stand where in a curve's own vector, `curves.flatten_params`.

    The curve's positions are among those of the cells.
    """
    others = [k for k in shares.positions if k != curve.anchor]
    numbers = np.arange(len(others) * shares.width).reshape(-1, shares.width)[np.isin(others, curve.positions)]
    return np.concatenate([numbers[:, 1:].T.ravel(), numbers[:, 0]])


def start(log_p: Array, shares: MultinomialLogit, precision: Array) -> Pooled:
    """Return the fit with a given precision Λ [size, size] that starts from one curve in every context.

    `log_p` is that curve at the positions but the anchor, [K − 1]: such as p_k = anchor / k.
    """
    theta = np.zeros((shares.n_blocks, shares.width))
    theta[: shares.n_positions - 1, 0] = log_p
    begin = theta.ravel()
    at = shares.shares(begin)
    return _newton(Pooled(shares, begin, at, np.empty((0, 0)), precision, None, np.empty(0), Status.converged))


def settle(fit: Pooled, rounds: int = ROUNDS) -> Pooled:
    """Return the fit whose variances have most evidence: quadratics in turns, at most `rounds`, until they settle."""
    if fit.prior is None or not fit.prior.learned.any():
        return fit
    for _ in range(rounds):
        linear = fit.information @ fit.theta + fit.score
        log_spread = most_evident(fit.prior, fit.log_spread, fit.information, linear)
        prior = fit.prior.loosened(np.exp(log_spread), fit.information, linear)
        moved = np.abs(log_spread - fit.log_spread).max()
        if isinstance(prior, PowerLawPrior) and isinstance(fit.prior, PowerLawPrior):
            moved = max(moved, np.abs(prior.weights - fit.prior.weights).max())
        known = fit.status is Status.converged
        precision = prior.matrix(np.exp(log_spread))
        fit = _newton(replace(fit, precision=precision, prior=prior, log_spread=log_spread), known=known)
        if moved < SETTLED:
            break
    return fit


def _newton(fit: Pooled, *, known: bool = False, tolerance: float = 1e-9) -> Pooled:
    """Return the maximum of log likelihood − ½ θᵀΛθ, by Newton steps with backtracking from the fit's parameters.

    Args:
        fit: cells, precision, and parameters to start from.
        known: whether its click shares and information are those of its cells at these parameters already.
        tolerance: what a further step would gain, twice, at most.
    """
    shares, precision = fit.shares, fit.precision

    def objective(theta: Array, at: Shares | None = None) -> tuple[float, Shares]:
        at = at or shares.shares(theta)
        return at.value - float(theta @ precision @ theta) / 2, at

    theta = fit.theta
    value, at = objective(theta, fit.at if known else None)
    status = Status.out_of_iterations
    for step_number in range(STEPS):
        gradient = shares.score(at) - precision @ theta
        information = fit.information if known and not step_number else shares.information(at)
        step = cho_solve(cho_factor(information + precision, check_finite=False), gradient, check_finite=False)
        gain = float(gradient @ step)
        if gain < tolerance:
            status = Status.converged
            break
        length = 1.0
        while True:
            further = theta + length * step
            new_value, new_at = objective(further)
            if new_value >= value + 1e-4 * length * gain or length < 1e-6:
                break
            length /= 2
        if new_value <= value:
            status = Status.stalled
            break
        theta, value, at = further, new_value, new_at
    return replace(fit, theta=theta, at=at, information=information, status=status)


def most_evident(prior: NormalPrior, start: Array, information: Array, linear: Array) -> Array:
    """Return the log τ of most evidence, those that nothing can tell left as they are."""
    learned = prior.learned

    def loss(some: Array) -> tuple[float, Array]:
        log_spread = start.copy()
        log_spread[learned] = some
        value, gradient = prior.evidence(log_spread, information, linear)
        return -value, -gradient[learned]

    bounds = [tuple(np.log(BOUNDS))] * int(learned.sum())
    best = start.copy()
    best[learned] = minimize(loss, start[learned], jac=True, method="L-BFGS-B", bounds=bounds).x
    return best
