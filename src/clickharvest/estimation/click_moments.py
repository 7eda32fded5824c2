"""Moments of clicks: slopes and offsets between positions without any assumption on relevance.

With y_k = C_k / n_k of the units shown at both j and k, each weighted by what it tells,

    Cov(y_j, y_k) = a_j a_k Var(c),     Var(y_k) − noise = a_k² Var(c),

where the noise is that of binomial counts and known: C (C − 1) / n (n − 1) has the mean of a squared click rate. So a
pair of positions tells log a_k − log a_j = ½ log(Var_k / Var_j), and then b_k / a_k − b_j / a_j. All pairs together
give a and b by weighted least squares. This is unbiased whatever relevance is, and noisy: it is where the likelihood
of `relevance_mixture` starts, which is not far from its optimum then.

Variances need units that were clicked twice at a position. Where these are few, noise decides whether a variance comes
out positive, and the pairs where it does would make slopes too large: such pairs tell nothing. Of a position that no
pair tells of, the slope is the examination of a model without trust, and the offset 0.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from clickharvest.estimation.unit_counts import Array, UnitCounts

FEWEST = 5
"""Units shown twice or more at both positions, below which a pair tells nothing."""
TWICE = 100
"""Two clicks on one unit at one position, Σ C (C − 1), below which a pair tells nothing."""
LARGEST_SHARE = 0.95
"""Weights above this quantile are cut to it, so that no unit decides alone."""
PRIOR = 1.0
"""Weight of log a = log p and b = 0, in units, so that what no pair tells is a number all the same."""


def estimate_moments(counts: UnitCounts, anchor: int, examination: Array) -> tuple[Array, Array]:
    """Return a and b of c_k = a_k c_anchor + b_k, [K] each: 1 and 0 at the anchor.

    Args:
        counts: the counts of units.
        anchor: the position that others are relative to.
        examination: p_k / p_anchor of a model without trust, [K].

    Example:
        Four kinds of units, as often as wanted: c_2 = ½ c_1 − .05.

        >>> rate = np.tile([0.2, 0.4, 0.6, 0.8], 5)
        >>> shown = np.full((20, 2), 1000.0)
        >>> counts = UnitCounts((1, 2), np.column_stack([rate, rate / 2 - 0.05]) * 1000, shown, np.arange(20), 20)
        >>> a, b = estimate_moments(counts, 1, np.array([1, 0.5]))
        >>> round(float(a[1]), 1), round(float(b[1]), 2)
        (0.5, -0.05)
    """
    n_positions, here = len(counts.positions), counts.positions.index(anchor)
    rows, slopes, means, weights = [], [], [], []
    for j, k in combinations(range(n_positions), 2):
        told = _compare(counts, j, k)
        if told is None:
            continue
        rows.append((j, k))
        slopes.append(told[0])
        means.append(told[1])
        weights.append(told[2])
    design, root = np.zeros((len(rows), n_positions)), np.sqrt(np.array(weights))
    for i, (j, k) in enumerate(rows):
        design[i, [j, k]] = -1.0, 1.0
    log_p = np.log(examination)
    a = np.exp(log_p + _solve(design * root[:, None], (np.array(slopes) - design @ log_p) * root, here))
    of_pair = np.array(means).reshape(-1, 2)
    gaps = [of_pair[i, 1] / a[k] - of_pair[i, 0] / a[j] for i, (j, k) in enumerate(rows)]
    return a, a * _solve(design * root[:, None], np.array(gaps) * root, here)


def _compare(counts: UnitCounts, j: int, k: int) -> tuple[float, tuple[float, float], float] | None:
    """Return log a_k − log a_j, the mean rates at j and k, and how much both tell; None where they tell nothing."""
    both = (counts.shown[:, j] > 1) & (counts.shown[:, k] > 1)
    if np.count_nonzero(both) < FEWEST:
        return None
    clicks, shown = counts.clicks[both][:, [j, k]], counts.shown[both][:, [j, k]]
    if (clicks * (clicks - 1)).sum(axis=0).min() < TWICE:
        return None
    w = shown.prod(axis=1) / shown.sum(axis=1)
    w = np.minimum(w, np.quantile(w, LARGEST_SHARE))
    w /= w.sum()
    rate, square = clicks / shown, clicks * (clicks - 1) / (shown * (shown - 1))
    mean = w @ rate
    variance = w @ square - mean**2 + w**2 @ (rate**2 - square)
    covariance = float(w @ rate.prod(axis=1) - mean.prod())
    if covariance <= 0 or variance.min() <= 0:
        return None
    effective = min(1.0, covariance**2 / float(variance.prod())) / float(w @ w)
    return 0.5 * float(np.log(variance[1] / variance[0])), (float(mean[0]), float(mean[1])), effective


def _solve(design: Array, told: Array, here: int) -> Array:
    """Return the least squares solution that is 0 at one position, drawn to 0 a little elsewhere."""
    others = np.delete(np.arange(design.shape[1]), here)
    rows = design[:, others]
    found = np.zeros(design.shape[1])
    found[others] = np.linalg.solve(rows.T @ rows + PRIOR * np.eye(len(others)), rows.T @ told)
    return found
