"""Attraction: how likely a document is clicked by whoever looks at it, from all pages but the one that is looked at.

A display that is looked at with probability γ is clicked with probability γ r. Of its displays, clicked or not,

    log L_d(r) = Σ_clicked log r + Σ_others log(1 − γ r)

is the log likelihood of document d's attraction r up to a constant. How attractions are spread over documents is
learned from all of them: weights w on the points of `GRID` that maximise Π_d Σ_g w_g L_d(r_g). Relevant and irrelevant
documents then come apart by themselves, where a prior of one hump would draw both towards the middle. On a page, r̂ is
the mean of r under w_g L_d(r_g), L without that very display: whether it was clicked there is told by the page itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GRID = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
"""Attractions that documents may have; nothing is certain to be clicked."""
STEPS = 60
"""Steps of the learning of w: each makes the clicks likelier, and those after these hardly."""
LEAST = 1e-12
"""Least weight of a point: its logarithm is taken."""


def display_terms(clicked: NDArray[np.bool_], propensity: Array, attraction: float) -> Array:
    """Return what displays add to log L(r), of any shape.

    Example:
        >>> display_terms(np.array([True, False]), np.array([0.5, 0.5]), 0.2).round(3).tolist()
        [-1.609, -0.105]
    """
    found: Array = np.where(clicked, np.log(attraction), np.log1p(-np.minimum(propensity, 1.0) * attraction))
    return found


def learn_weights(log_likelihood: Array) -> Array:
    """Return the weights w of the points of the grid under which documents' clicks are likeliest, [points].

    Args:
        log_likelihood: log L_d(r_g), [documents, points].

    Example:
        Of four documents three have been clicked once in a hundred looks, and one always.

        >>> clicks = np.array([1, 1, 1, 100])
        >>> r = np.array(GRID)
        >>> learn_weights(clicks[:, None] * np.log(r) + (100 - clicks)[:, None] * np.log(1 - r)).round(2).tolist()
        [0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25]
    """
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    weights: Array = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    for _ in range(STEPS):
        belongs = likelihood * weights
        weights = (belongs / belongs.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.maximum(weights, LEAST)
