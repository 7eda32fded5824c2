"""The recipe of the paper's authors, written anew from its facts: what they trained, and what they chose by the truth.

h has a hidden sigmoid layer and sigmoid outputs; g is such a network too, symmetrised, or a matrix without context.
Contexts enter as they are, not standardised. Weights and biases start from normals of sd .1, cut at two sd. Adam at .03
takes 1,000 steps on the full batch. Widths are 8 to 16, the same for h and g.

- *last epoch*: width 12, g a network, the parameters after the last step. Nothing is chosen.
- *chosen by the truth*: of all widths, both g, and a look every ten steps, the one of the least RelError. It is an
  oracle: no user has the true propensities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import truncnorm

from clickharvest.estimation import AllPairs, Fit, Sample, descend
from clickharvest.model.curves import MLP

Array = NDArray[np.float64]

WIDTHS = tuple(range(8, 17))
PLAIN_WIDTH = 12
RATE, EPOCHS, EVERY = 0.03, 1_000, 10
SPREAD = 0.1


class Looks(NamedTuple):
    """Estimates relative to position 1 that matter, [contexts, K] each, and how the oracle's was found."""

    last: Array
    oracle: Array
    chosen: dict[str, Any]


def train_as_authors(sample: Sample, test_x: Array, truth: Array, seed: int) -> Looks:
    """Train all networks and look at them.

    Args:
        sample: the sample, of raw contexts.
        test_x: contexts to look at, [n, d].
        truth: true examination of these, relative to position 1, [n, K]; the oracle's alone.
        seed: seed of the weights.
    """
    random = np.random.default_rng([seed, 97])
    weights, none, least = np.ones((1, sample.n_clusters)), np.zeros(1), np.inf
    last = oracle = np.ones_like(truth)
    chosen: dict[str, Any] = {}
    for relevance in ("mlp", "constant"):
        for width in WIDTHS:
            curve = MLP(sample.positions, 1, sample.x.shape[1], width=width)
            fit = Fit(curve, AllPairs(sample, relevance=relevance, width=width), sample)
            looks: list[Array] = []

            def look(flat: Array, fit: Fit = fit, looks: list[Array] = looks) -> Array:
                looks.append(np.exp(fit.curve.relative(fit.params(flat[0])["curve"], test_x)))
                return none

            def grad(flat: Array, fit: Fit = fit) -> Array:
                return fit.grad(flat, weights, none)

            start = truncnorm.rvs(-2, 2, scale=SPREAD, size=(1, fit.size), random_state=random)
            descend(grad, look, start, rate=RATE, epochs=EPOCHS, every=EVERY)
            errors = [float(np.abs(1 - estimates / truth).mean()) for estimates in looks]
            best = int(np.nanargmin(errors))
            if errors[best] < least:
                least, oracle = errors[best], looks[best]
                chosen = {"width": width, "epoch": (best + 1) * EVERY, "relevance": relevance}
            if (relevance, width) == ("mlp", PLAIN_WIDTH):
                last = looks[-1]
    return Looks(last, oracle, chosen)
