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

Array = NDArray[np.float64]

WIDTHS = tuple(range(8, 17))
PLAIN_WIDTH = 12
RATE, EPOCHS, EVERY = 0.03, 1_000, 10
SPREAD = 0.1
LEAST = 1e-12
"""Examination below this is taken for this: 32-bit sigmoids reach 0, and a ratio to 0 is no number."""


class Looks(NamedTuple):
    """Estimates relative to position 1 that matter, [contexts, K] each, and how the oracle's was found."""

    last: Array
    oracle: Array
    chosen: dict[str, Any]


def train_as_authors(x: Array, rows: dict[str, Any], positions: int, test_x: Array, truth: Array, seed: int) -> Looks:
    """Train all networks and look at them.

    Args:
        x: raw contexts, [m, d].
        rows: ĉ and ¬ĉ of every query, context and pair, as `AllPairs.data` holds them.
        positions: number K of positions.
        test_x: contexts to look at, [n, d].
        truth: true examination of these, relative to position 1, [n, K]; the oracle's alone.
        seed: seed of the weights.
    """
    import jax
    import jax.numpy as jnp
    import optax

    masks = jnp.asarray([[unit < width for unit in range(WIDTHS[-1])] for width in WIDTHS], jnp.float32)
    context, place = jnp.asarray(rows["context"]), jnp.asarray(rows["position"])
    clicked, passed = (jnp.asarray(rows[name], jnp.float32) for name in ("clicked", "passed"))
    inputs, looked_at, true = (jnp.asarray(values, jnp.float32) for values in (x, test_x, truth))
    pair = place[:, 0] * positions + place[:, 1], place[:, 1] * positions + place[:, 0]

    def network(weights: Any, values: Any, mask: Any) -> Any:
        hidden = jax.nn.sigmoid(values @ weights["A"] + weights["a"]) * mask
        return jax.nn.sigmoid(hidden @ weights["v"] + weights["c"])

    def loss(params: Any, mask: Any) -> Any:
        h = network(params["h"], inputs, mask)[context[:, None], place]
        if "A" in params["g"]:
            ways = network(params["g"], inputs, mask)
            g = (ways[context, pair[0]] + ways[context, pair[1]]) / 2
        else:
            ways = jax.nn.sigmoid(params["g"]["c"])
            g = (ways[pair[0]] + ways[pair[1]]) / 2
        product = jnp.clip(h * g[:, None], 1e-6, 1 - 1e-6)
        return -jnp.sum(clicked * jnp.log(product) + passed * jnp.log1p(-product)) / len(context)

    def estimates(params: Any, mask: Any) -> Any:
        h = jnp.maximum(network(params["h"], looked_at, mask), LEAST)
        return h / h[:, :1]

    optimiser = optax.adam(RATE)

    @jax.jit
    def train(params: Any) -> Any:
        """Return the RelError at every look, [looks, widths], the estimates of the best and of the last."""
        state = jax.vmap(optimiser.init)(params)

        def step(carry: Any, _: Any) -> Any:
            params, state = carry
            slope = jax.vmap(jax.grad(loss))(params, masks)
            update, state = jax.vmap(optimiser.update)(slope, state)
            return (optax.apply_updates(params, update), state), None

        def look(carry: Any, _: Any) -> Any:
            inner, best, least = carry
            inner, _ = jax.lax.scan(step, inner, length=EVERY)
            found = jax.vmap(estimates)(inner[0], masks)
            errors = jnp.mean(jnp.abs(1 - found / true), axis=(1, 2))
            best = jnp.where((errors < least)[:, None, None], found, best)
            return (inner, best, jnp.minimum(errors, least)), errors

        blank = jnp.ones((len(WIDTHS), *true.shape)), jnp.full(len(WIDTHS), jnp.inf)
        (inner, best, _), errors = jax.lax.scan(look, ((params, state), *blank), length=EPOCHS // EVERY)
        return errors, best, jax.vmap(estimates)(inner[0], masks)

    last, oracle = {}, {}
    for relevance in ("network", "constant"):
        errors, best, end = (np.asarray(values, np.float64) for values in train(_start(x, positions, relevance, seed)))
        look, width = np.unravel_index(np.nanargmin(errors), errors.shape)
        last[relevance] = end[WIDTHS.index(PLAIN_WIDTH)]
        oracle[float(errors[look, width])] = (
            best[width],
            {"width": WIDTHS[width], "epoch": (int(look) + 1) * EVERY, "relevance": relevance},
        )
    return Looks(last["network"], *oracle[min(oracle)])


def _start(x: Array, positions: int, relevance: str, seed: int) -> dict[str, Any]:
    """Return the weights that training starts from, one set for every width."""
    from scipy.stats import truncnorm

    random = np.random.default_rng([seed, 97])

    def drawn(*shape: int) -> Any:
        found = truncnorm.rvs(-2, 2, scale=SPREAD, size=(len(WIDTHS), *shape), random_state=random)
        return found.astype(np.float32)

    def layers(outputs: int) -> dict[str, Any]:
        most = WIDTHS[-1]
        return {"A": drawn(x.shape[1], most), "a": drawn(most), "v": drawn(most, outputs), "c": drawn(outputs)}

    g = layers(positions**2) if relevance == "network" else {"c": drawn(positions**2)}
    return {"h": layers(positions), "g": g}
