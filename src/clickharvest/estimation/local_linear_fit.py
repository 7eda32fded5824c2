"""A smooth curve near its fit, where it is linear: its click shares are a multinomial logit.

Close to θ̂, log p_k(x; θ) ≈ log p_k(x; θ̂) + z·(θ − θ̂), the row z of a cell being the gradient of log p_k(x) (and of
s(x), where contexts vary inside units). So scores and the expected information have the formulas of
`multinomial_logit`, and so has the covariance of `query_random_effects`. A penalty λ P(θ) is the precision λ P'' of a
normal prior.

Folds choose λ, in sparse logs by luck, and where it is too large it has shrunk what is there. So the clicks are asked
for the variance τ² of the penalised parameters, as in `pooling`: where H is quadratic they are normal given τ and the
clicks, with mean m_τ = (H + P''/τ²)⁻¹ y and covariance C_τ = (H + P''/τ²)⁻¹, and their mean square around the estimate
is S = E[C_τ + (m_τ − θ̂)(m_τ − θ̂)ᵀ], the mean over all τ, by their evidence: where clicks are few the most evident one
is often next to nothing. What shrinkage leaves unknown makes the model's own variance S, or J⁻¹ = (H + λ P'')⁻¹ along
directions in which S is less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import softmax

from clickharvest.estimation.cells import Cells, Shares, cells_of
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.pooling import BOUNDS
from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

FREE = 1e-2
"""Precision of parameters that no penalty holds. Directions that the data leave free, such as the common level of all
outputs of a network, would otherwise have no end."""
LOG_SPREAD = np.log(np.geomspace(*BOUNDS, 100))
"""Logarithms of the standard deviations τ that are averaged over."""
WEAK = 5.0
"""Weight g of the prior of τ: the larger, the more is what a penalty shrinks taken to be about as large as 1."""
NOTHING = 1e-12
"""Precision of directions that no penalty holds, by the largest."""


class LinearisedCells(Cells):
    """The cells of all clicked units, and the gradient of their log examination at a fit.

    Args:
        cells: the cells; their arrays are shared.
        fit: curve and objective, ClickShare.
        flat: the fitted parameters θ̂, [size].
    """

    def __init__(self, cells: Cells, fit: Fit, flat: Array) -> None:
        vars(self).update(vars(cells))
        self.size = len(flat)
        self._fit, self._flat = fit, flat

    def design(self, cells: Integers) -> Array:
        """Return the rows z of some cells, [cells, size]."""
        contexts, row = np.unique(self.context[cells], return_inverse=True)
        return self._fit.gradients(self._flat, contexts)[row, self.position[cells]]

    def gradients(self, contexts: Integers) -> Array:
        """Return the gradients of log p_k(x) / p_anchor(x) of some contexts, [contexts, K, size]."""
        gradients = self._fit.gradients(self._flat, contexts)
        return gradients - gradients[:, [self._fit.curve.anchor_index]]


@dataclass(frozen=True, eq=False)
class LocalLinearFit:
    """A smooth curve's fit, as `query_random_effects` takes it.

    Attributes:
        shares: the cells it was fitted to.
        at: the click shares there.
        information: H there, [size, size].
        precision: Λ = λ P'', [size, size].
        left: what shrinkage leaves unknown, Λ or more, [size, size].
    """

    shares: LinearisedCells
    at: Shares
    information: Array
    precision: Array
    left: Array

    @property
    def score(self) -> Array:
        """The gradient of the log likelihood, [size], by the same rows as the information."""
        shares, total = self.shares, np.zeros(self.shares.size)
        for cells in shares.parts(shares.size):
            total += shares.design(cells).T @ self.at.residual[cells]
        return total


def linearise(fit: Fit, sample: Sample, flat: Array, penalty: float) -> LocalLinearFit:
    """Return the local linear fit at the fitted parameters θ̂ [size] of a ClickShare fit with some penalty λ."""
    shares = LinearisedCells(cells_of(sample), fit, flat)
    at = shares.shares_of(fit.logits(flat))
    information = shares.expected_information(at, len(flat), lambda contexts: fit.gradients(flat, contexts))
    penalised, free = np.diag(fit.ridge), FREE * np.eye(len(flat))
    precision = penalty * penalised + free
    left = precision
    if penalty:
        # At the fit the score is the penalty's gradient, also where the gradients are those of `for_intervals`.
        linear = information @ flat + penalty * penalised @ flat
        square = mean_square(information + free, linear, penalised, flat)
        left = precision + excess(information + precision, square)
    return LocalLinearFit(shares, at, information, precision, left)


def mean_square(information: Array, linear: Array, penalised: Array, estimate: Array) -> Array:
    """Return S = E[(θ − θ̂)(θ − θ̂)ᵀ] given the clicks, [size, size], over all τ.

    The evidence of τ is that of `pooling`, with the prior g (log τ − τ); log τ is even otherwise. In parameters in
    which H is 1 and P'' is diag(μ) all is diagonal.

    Args:
        information: H, positive definite, [size, size].
        linear: y = H θ̂ + score(θ̂), [size].
        penalised: P'', [size, size].
        estimate: θ̂, [size].

    Example:
        Nothing is penalised: what is unknown is H⁻¹.

        >>> information, estimate = np.diag([4.0, 1.0]), np.array([0.5, 3.0])
        >>> mean_square(information, np.array([2.0, 3.0]), np.zeros((2, 2)), estimate).round(6).tolist()
        [[0.25, 0.0], [0.0, 1.0]]
    """
    strength, basis = eigh(penalised, information, check_finite=False)
    strength = np.where(strength > NOTHING * strength.max(initial=0.0), strength, 0.0)
    variance = 1 / (1 + strength * np.exp(-2 * LOG_SPREAD[:, None]))
    turned = basis.T @ linear
    evidence = (variance @ turned**2 + np.log(variance).sum(axis=1)) / 2 - np.count_nonzero(strength) * LOG_SPREAD
    weight = softmax(evidence + WEAK * (LOG_SPREAD - np.exp(LOG_SPREAD)))
    off = variance * turned - basis.T @ (information @ estimate)
    square = (off.T * weight) @ off + np.diag(weight @ variance)
    return np.asarray(basis @ square @ basis.T)


def excess(curvature: Array, square: Array) -> Array:
    """Return J S J − J along directions in which S is more than J⁻¹, [size, size].

    Example:
        >>> excess(np.diag([4.0, 1.0]), np.diag([0.5, 0.5])).tolist()
        [[4.0, 0.0], [0.0, 0.0]]
    """
    root = np.linalg.cholesky(curvature)
    values, vectors = np.linalg.eigh(root.T @ square @ root)
    half = root @ vectors
    return np.asarray((half * np.maximum(values - 1.0, 0.0)) @ half.T)
