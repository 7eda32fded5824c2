"""Worlds for `levels` in which contexts of pages decide how steeply examination falls."""

from __future__ import annotations

import numpy as np

from clickharvest.harvesting.interventions import Interventions


def context_interventions(
    seed: int, law: str, *, queries: int = 300, pages: int = 12_000, trust: float = 0.0, positions: int = 5
) -> Interventions:
    """Return the interventions of three good rankers where contexts of pages decide the power of the position.

    Queries have Zipf sizes. What contexts do, by law: `device`, k^-1.4 on phones and k^-.5 on desks; `additive`, the
    same, beside a column that does nothing; `xor`, the same by whether two columns agree; `office`, by whether the hour
    is one of 9 to 16; `wave`, k^-(1 + .5 cos(2π hour / 12)).

    Args:
        seed: seed of all randomness.
        law: what contexts do.
        queries: number of queries.
        pages: number of pages.
        trust: chance that a user takes an irrelevant document for relevant at position 1; trust / k at k.
        positions: documents of a query, and positions.
    """
    random = np.random.default_rng(seed)
    size = 1 / np.arange(1, queries + 1)
    query = np.sort(random.choice(queries, pages, p=size / size.sum()))
    quality = random.normal(-1, 0.8, (queries, 1, positions))
    order = np.argsort(-(quality + random.normal(size=(queries, 3, positions))), axis=2)
    place = np.argsort(order, axis=2)[query, random.integers(0, 3, pages)]
    if law in ("office", "wave"):
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
    power = 1 + 0.5 * np.cos(2 * np.pi * context / 12) if law == "wave" else np.where(steep, 1.4, 0.5)
    relevance = np.minimum(np.exp(quality[:, 0]), 1)[query]
    attraction = 0.6 * (relevance + (1 - relevance) * trust / (place + 1))
    clicked = random.random(place.shape) < attraction * (place + 1.0) ** -power[:, None]
    unit = (query * 24 + context)[:, None] * positions + np.arange(positions)
    cell, first, row, shown = np.unique(
        (unit * positions + place).ravel(), return_index=True, return_inverse=True, return_counts=True
    )
    clicks = np.bincount(row, clicked.ravel()).astype(np.int64)
    _, unit = np.unique(cell // positions, return_inverse=True)
    kept = np.flatnonzero(np.bincount(unit)[unit] > 1)
    unit, shown, clicks, page = unit[kept], shown[kept].astype(np.int64), clicks[kept], first[kept] // positions
    told = {name: column[page] for name, column in contexts.items()}
    return Interventions(unit, query[page], cell[kept] % positions + 1, shown.astype(float), clicks, shown, told)
