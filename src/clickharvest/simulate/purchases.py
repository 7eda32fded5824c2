"""Purchases after clicks, with known truth: how often a click leads to one falls with the position, or does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def add_purchases(log: pa.Table, *, steepness: float = 0.0, eagerness: float = 1.0, seed: int = 0) -> pa.Table:
    """Add a column `purchase` to a simulated log: 1 or 0 where there is a click, and 0 elsewhere.

    Every query and document has its own rate b ~ Beta(2, 4), and a click at position k leads to a purchase with
    probability s_k b, s_k = k^{−steepness}: the truth that a fit of the log after the click should find.

    Args:
        log: a log with the columns `query, doc, position, click`.
        steepness: 0 where position does not matter once there is a click.
        eagerness: how many times as often half of the pages buy as the others, wherever they click; needs `page`.
        seed: seed of all randomness.

    Example:
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log = add_purchases(simulate_ab_log(pages=100)[0])
        >>> sum(log["click"].to_pylist()), sum(log["purchase"].to_pylist())
        (157, 38)
    """
    import pyarrow as pa

    random = np.random.default_rng([seed, 4])
    _, query = np.unique(log["query"].to_numpy(), return_inverse=True)
    _, doc = np.unique(log["doc"].to_numpy(), return_inverse=True)
    _, unit = np.unique(query * (int(doc.max()) + 1) + doc, return_inverse=True)
    rate = random.beta(2, 4, int(unit.max()) + 1)[unit] * log["position"].to_numpy().astype(float) ** -steepness
    if eagerness != 1:
        _, page = np.unique(log["page"].to_numpy(), return_inverse=True)
        rate = rate * random.choice([2 / (1 + eagerness), 2 * eagerness / (1 + eagerness)], int(page.max()) + 1)[page]
    bought = (random.random(len(unit)) < rate) & (log["click"].to_numpy() == 1)
    return log.append_column("purchase", pa.array(bought.astype(np.int8)))
