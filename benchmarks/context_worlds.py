"""Worlds for `levels` in which contexts of pages decide how steeply examination falls."""

from __future__ import annotations

from typing import Literal

import numpy as np

from clickharvest.harvesting.interventions import Interventions

QUERIES, POSITIONS = 300, 5
"""Number of queries, and documents of a query."""


def context_interventions(
    seed: int, law: Literal["device", "xor", "office"], *, pages: int = 12_000, trust: float = 0.0
) -> Interventions:
    """Return the interventions of three good rankers where contexts of pages decide the power of the position.

    Queries have Zipf sizes. Examination is k^-1.4 in some contexts and k^-.5 in the others.

    Args:
        seed: seed of all randomness.
        law: the contexts with k^-1.4: `device`, phones; `xor`, pages on which two columns agree; `office`, hours from
            9 to 16.
        pages: number of pages.
        trust: chance that a user takes an irrelevant document for relevant at position 1; trust / k at k.
    """
    random = np.random.default_rng(seed)
    size = 1 / np.arange(1, QUERIES + 1)
    query = np.sort(random.choice(QUERIES, pages, p=size / size.sum()))
    quality = random.normal(-1, 0.8, (QUERIES, 1, POSITIONS))
    order = np.argsort(-(quality + random.normal(size=(QUERIES, 3, POSITIONS))), axis=2)
    place = np.argsort(order, axis=2)[query, random.integers(0, 3, pages)]
    if law == "office":
        context = random.integers(0, 24, pages)
        contexts = {"hour": context.astype(float)}
        steep = (context >= 9) & (context < 17)
    else:
        one, two = (
            random.integers(0, 2, (2, pages)) if law != "device" else np.stack([random.integers(0, 2, pages)] * 2)
        )
        context = 2 * one + two
        contexts = {"device": np.array(["desk", "phone"])[one]}
        contexts |= {} if law == "device" else {"side": np.array(["left", "right"])[two]}
        steep = one == two if law == "xor" else one == 1
    relevance = np.minimum(np.exp(quality[:, 0]), 1)[query]
    attraction = 0.6 * (relevance + (1 - relevance) * trust / (place + 1))
    clicked = random.random(place.shape) < attraction * (place + 1.0) ** -np.where(steep, 1.4, 0.5)[:, None]
    unit = (query * 24 + context)[:, None] * POSITIONS + np.arange(POSITIONS)
    cell, first, row, shown = np.unique(
        (unit * POSITIONS + place).ravel(), return_index=True, return_inverse=True, return_counts=True
    )
    clicks = np.bincount(row, clicked.ravel()).astype(np.int64)
    _, unit = np.unique(cell // POSITIONS, return_inverse=True)
    kept = np.flatnonzero(np.bincount(unit)[unit] > 1)
    unit, shown, clicks, page = unit[kept], shown[kept].astype(np.int64), clicks[kept], first[kept] // POSITIONS
    told = {name: column[page] for name, column in contexts.items()}
    return Interventions(unit, query[page], cell[kept] % POSITIONS + 1, shown.astype(float), clicks, shown, told)
