"""Small worlds for `levels`: logs of pages, and interventions of queries, whole or with one fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest.harvesting.interventions import Interventions
from clickharvest.simulate import SimulatedUsers

if TYPE_CHECKING:
    import pyarrow as pa

QUERIES, DOCS, POSITIONS = 20, 10, 5


def page_log(
    seed: int,
    *,
    pages: int = 1_000,
    each: int = 1,
    by_user: bool = False,
    zipf: float | None = None,
    arms: int = 2,
    skew: float = 0.0,
    share: float = 0.5,
    common: float = 0.0,
    single: float = 0.0,
    follow: float = 0.0,
    queries: int = QUERIES,
    liking: float = 0.0,
    personal: float = 0.0,
    shuffled: float = 0.0,
    depth: float = 0.0,
    apart: float = 0.0,
) -> pa.Table:
    """Return a log of some rankers; users have a device, a favourite query, and click much or little.

    Args:
        seed: seed of all randomness.
        pages: number of pages.
        each: pages of each user, on average; one after another unless `zipf` is given.
        by_user: whether users, not pages, are assigned to rankers.
        zipf: users come back at any time, and their pages fall as this power of their rank.
        arms: rankers; those but a share what it does not get.
        skew: share of what is assigned that gets the ranker of its device.
        share: share of ranker a.
        common: how much all documents are clicked more at the end than in the middle.
        single: the same, up or down, each document its own way.
        follow: how much documents that are clicked more and more move up.
        queries: number of queries.
        liking: spread of what single users think of documents, on the log scale.
        personal: how much the rankers know of it.
        shuffled: share of the pages that are shuffled after positions were logged.
        depth: spread of users' powers of the position around −1.
        apart: how much steeper it is with ranker b.
    """
    random = np.random.default_rng(seed)
    user, users = _users(random, pages, each, zipf)
    device = random.integers(2, size=users)[user]
    favourite, mood = random.integers(queries, size=users), random.choice([0.3, 1.7], users)
    query = np.where(random.random(pages) < 0.5, favourite[user], random.integers(queries, size=pages))
    assigned = user if by_user else np.arange(pages)
    chance, follows = random.random((2, pages))[:, assigned]
    arm = np.ceil((1 - chance / (1 - share)) * (arms - 1)).clip(0)
    arm = np.where(follows < skew, device, arm).astype(np.int64)
    quality = random.beta(1, 2, (queries, DOCS))
    taste = random.normal(0, 0.2, (arms, queries, DOCS))
    way = random.choice([-1.0, 1.0], (queries, DOCS))
    trend = 2 * np.arange(pages) / pages - 1
    drawn = random.normal(0, 0.3, (pages, DOCS)) + follow * way[query] * trend[:, None]
    others = np.random.default_rng([seed, 1])  # worlds without likings are what they were before there were any
    likes = others.normal(0, liking, (users, queries, DOCS))[user, query]
    score = quality[query] + taste[arm, query] + personal * likes + drawn
    doc = np.argsort(-score, axis=1)[:, :POSITIONS]
    position = np.arange(1, POSITIONS + 1)
    appeal = (0.2 + 0.6 * quality)[query[:, None], doc] + (common + single * way[query[:, None], doc]) * trend[:, None]
    appeal = appeal * np.exp(np.take_along_axis(likes, doc, axis=1))
    power = 1 + others.normal(0, depth, users)[user] + apart * (arm == 1)
    clicks = random.random(doc.shape) < appeal * position ** -power[:, None] * (mood[user] / 1.7)[:, None]
    columns = {"page": np.arange(pages), "time": np.arange(pages), "user": user, "query": query}
    columns |= {"ranker": np.array(list("abcdefghij"))[arm], "device": np.array(["phone", "desk"])[device]}
    logged = np.tile(position, (pages, 1))
    logged = np.where(others.random((pages, 1)) < shuffled, others.permuted(logged, axis=1), logged)
    return _table(columns, doc, logged, clicks)


def click_log(seed: int, *, clicks: str, mood: bool = False, pages: int = 1_000) -> pa.Table:
    """Return a log of pages that a click model of `clickharvest.simulate` clicks on, p_k = 1 / k."""
    random = np.random.default_rng(seed)
    query = random.integers(QUERIES, size=pages)
    quality = random.random((QUERIES, DOCS))
    doc = np.argsort(-(quality[query] + random.normal(0, 0.4, (pages, DOCS))), axis=1)[:, :POSITIONS]
    relevant = quality[query[:, None], doc] > 0.6
    curve = np.tile(1.0 / np.arange(1, POSITIONS + 1), (pages, 1))
    if mood:
        curve *= random.choice([0.29, 1.0], (pages, 1)) ** 1.5
    model = SimulatedUsers(clicks, 0.2)
    ones = np.ones((1, pages), np.int64)
    drawn, _ = model.draw(ones, np.ones((1, *doc.shape), bool), relevant[None], curve, random)
    columns = {"page": np.arange(pages), "query": query, "device": np.array(["phone", "desk"])[query % 2]}
    return _table(columns, doc, np.tile(np.arange(1, POSITIONS + 1), (pages, 1)), drawn[0])


def swap_log(
    seed: int, *, pages: int = 500, each: int = 1, zipf: float | None = None, keep: bool = False, swapped: float = 1.0
) -> pa.Table:
    """Return a log of pages on which the first result was swapped with one at a random rank, p_k = 1 / k.

    Args:
        seed: seed of all randomness.
        pages: number of pages.
        each: pages of each user, on average.
        zipf: the pages of users fall as this power of their rank.
        keep: whether a rank is drawn once for each user, not for each page.
        swapped: share of the pages that take part; the others are left as they are.
    """
    import pyarrow as pa

    random = np.random.default_rng(seed)
    user, users = _users(random, pages, each, zipf)
    drawn = random.integers(POSITIONS, size=users)[user] if keep else random.integers(POSITIONS, size=pages)
    drawn = np.where(random.random(pages) < swapped, drawn, 0)
    original = np.tile(np.arange(POSITIONS), (pages, 1))
    position = original.copy()
    position[:, 0] = drawn
    position[np.arange(pages), drawn] = 0
    query = random.integers(QUERIES, size=pages)
    appeal = random.beta(1, 2, (QUERIES, POSITIONS))[query]
    clicks = random.random(position.shape) < appeal / (position + 1)
    rows = {"page": np.arange(pages), "user": user, "query": query}
    rows = {name: np.repeat(column, POSITIONS) for name, column in rows.items()}
    rows |= {"doc": rows["query"] * POSITIONS + original.ravel(), "original": original.ravel() + 1}
    return pa.table(rows | {"position": position.ravel() + 1, "click": clicks.ravel().astype(np.int64)})


def _users(random: np.random.Generator, pages: int, each: int, zipf: float | None) -> tuple[Any, int]:
    """Return the user of each page, `each` pages of one after another or sizes that fall as `zipf`, and how many."""
    user = np.arange(pages) // each
    users = int(user[-1]) + 1
    if zipf is not None:
        size = np.arange(1.0, users + 1) ** -zipf
        user = random.choice(users, pages, p=size / size.sum())
    return user, users


def _table(columns: dict[str, Any], doc: Any, position: Any, clicks: Any) -> pa.Table:
    import pyarrow as pa

    wide = doc.shape[1]
    rows = {name: np.repeat(column, wide) for name, column in columns.items()}
    rows["doc"] = rows["query"] * DOCS + doc.ravel()
    return pa.table(rows | {"position": position.ravel(), "click": clicks.ravel().astype(np.int64)})


def query_interventions(
    seed: int,
    *,
    queries: int = 80,
    sessions: int = 60,
    zipf: float = 0.0,
    spread: float = 0.0,
    unlike: float = 0.0,
    main: float = 0.0,
    together: float = 0.0,
    adjacent: float = 0.0,
    trust: bool = False,
    appeal: float = 0.5,
    popularity: bool = False,
) -> Interventions:
    """Return the interventions of queries with five documents and three rankings, p_k = 1 / k.

    Args:
        seed: seed of all randomness.
        queries: number of queries.
        sessions: pages of a query, on average.
        zipf: sizes of queries fall as the power of their rank.
        spread: standard deviation of the log steepness of queries.
        unlike: spread of queries' tastes for positions, 1 ± that, mean 1.
        main: how much the context a changes log steepness.
        together: how much the product of contexts a and b does.
        adjacent: added to log p_2 of documents that are also shown at position 3.
        trust: users click as in `simulate --clicks trust`.
        appeal: chance that the most relevant result is clicked where it is examined, on average over moods and tastes.
        popularity: the context is the logarithm of how often a query is shown, instead of a and b.
    """
    docs = 5
    random = np.random.default_rng(seed)
    rankings = random.permuted(np.tile(np.arange(docs), (queries, 3, 1)), axis=2)
    size = np.arange(1.0, queries + 1) ** -zipf
    query = np.sort(random.choice(queries, queries * sessions, p=size / size.sum()))
    place = rankings[query, random.integers(0, 3, len(query))]
    a, b = random.choice([-1.0, 1.0], (2, queries))
    steepness = np.exp(spread * random.normal(size=queries) + main * a + together * a * b)
    relevance = 1 / (1 + np.exp(0.5 - random.normal(size=(queries, 1)) - random.normal(size=(queries, docs))))
    at_both = (rankings == 1).any(axis=1) & (rankings == 2).any(axis=1)
    log_p = -np.log(place + 1) * steepness[query, None] + adjacent * (at_both[query] & (place == 1))
    attraction = relevance[query]
    if trust:
        judged = np.stack([_by_document(SimulatedUsers("trust", 0.1), place, value) for value in (False, True)])
        attraction = judged[0] * (1 - relevance[query]) + judged[1] * relevance[query]
    mood = random.choice([0.3, 1.7], (len(query), 1)) if unlike else 1.0
    taste = random.choice([1 - unlike, 1 + unlike], (queries, docs))[query[:, None], place]
    clicked = random.random(place.shape) < np.exp(log_p) * appeal * attraction * mood * taste
    cell = ((query[:, None] * docs + np.arange(docs)) * docs + place).ravel()
    shown = np.bincount(cell, minlength=queries * docs * docs)
    clicks = np.bincount(cell, weights=clicked.ravel(), minlength=len(shown)).astype(np.int64)
    cells = np.flatnonzero(shown)
    unit = cells // docs
    cells = cells[np.bincount(unit)[unit] > 1]
    unit, shown, clicks = cells // docs, shown[cells], clicks[cells]
    own = unit // docs
    contexts = {"a": a[own].astype(str), "b": b[own].astype(str)} if main or together or unlike else {}
    if popularity:
        contexts = {"popularity": np.log(np.bincount(own, shown)[own])}
    return Interventions(unit, own, cells % docs + 1, shown.astype(np.float64), clicks, shown, contexts)


def _by_document(model: SimulatedUsers, place: Any, relevant: bool) -> Any:
    """Return Pr(click | examined) of each document where it is placed, if all were relevant, or none."""
    return model.attraction(np.full(place.shape, relevant))[np.arange(len(place))[:, None], place]
