"""Simulated logs of an A/B test in which users, or pages, cluster, and queries are shared among them.

Every page shows all documents of its query, ranked by one arm. Users keep their arm; they differ in how often they
come, in how much they click and in how they read: a factor of mean 1 for every user and position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from cells import Array, World
from numpy.typing import NDArray

MOODS = np.array([0.1, 1.9])
"""What users of one page multiply all their clicks by, where pages cluster."""
EFFECT, RATE = 0.35, 0.12
"""Standard deviation of what levels add to the steepness; clicks of an examined document of relevance 1."""


@dataclass(frozen=True)
class SharedCell:
    """A kind of log.

    Attributes:
        queries: number of queries.
        documents: documents of each, and positions of a page.
        arms: rankings of every query, of which each user sees one.
        users: number of users.
        pages: pages of a user, on average.
        zipf: whether the n-th user has 1 / n of the pages of the first.
        half: whether the first user has half of all pages.
        apart: how far the factors of users and positions reach: from 1 − apart to 1 + apart.
        mood: standard deviation of how much users click, which is gamma distributed around 1.
        by: what clusters: the users, or pages, whose users click much or little.
        levels: levels of a context that a user keeps.
        alike: whether these levels have the same curve.
        curve: the curve that is fitted.
        objective: the objective.
    """

    queries: int = 30
    documents: int = 8
    arms: int = 2
    users: int = 300
    pages: float = 40.0
    zipf: bool = False
    half: bool = False
    apart: float = 1.0
    mood: float = 0.5
    by: Literal["user", "page"] = "user"
    levels: int = 0
    alike: bool = False
    curve: str = "linear"
    objective: Literal["clickshare"] = "clickshare"


USERS = SharedCell()
ZIPF = replace(USERS, users=500, zipf=True)
HOME = SharedCell(queries=1, documents=10, arms=4, users=2_000, pages=4.0, apart=0.0, mood=0.0, by="page")


def simulate_shared(cell: SharedCell, random: np.random.Generator) -> World:
    """Return a log of a cell and its truth."""
    queries, documents, levels = cell.queries, cell.documents, max(cell.levels, 1)
    relevance = random.normal(0, 0.7, (queries, 1)) + random.normal(size=(queries, documents))
    relevance = 1 / (1 + np.exp(-relevance))
    ranks = np.argsort(-random.normal(size=(cell.arms, queries, documents)), axis=2)
    ranks = np.argsort(ranks, axis=2)
    user = np.repeat(np.arange(cell.users), pages_of(cell, random))
    query = random.integers(queries, size=len(user))
    position = ranks[random.integers(cell.arms, size=cell.users)[user], query]
    level = random.integers(levels, size=cell.users)
    effect = 0.0 if cell.alike else EFFECT
    steepness = 1 + (random.normal(0, effect, levels) if cell.levels else np.zeros(1))
    log_p = -steepness[:, None] * np.log(np.arange(1, documents + 1))
    rate = RATE * np.exp(log_p[level[user][:, None], position]) * relevance[query]
    rate *= factors(cell, user, position, random)
    click = random.random(rate.shape) < rate
    page = np.repeat(np.arange(len(user)), documents)
    unit = (level[user[page]] * queries + query[page]) * documents + np.tile(np.arange(documents), len(user))
    names = np.array([f"level {i}" for i in range(levels)])
    cluster = user[page] if cell.by == "user" else page
    return World(
        interventions_of(cell, unit, position.ravel(), click.ravel(), cluster, names),
        log_p - log_p[:, :1],
        {"level": names} if cell.levels else {},
    )


def pages_of(cell: SharedCell, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the pages of every user."""
    if cell.zipf:
        share = 1 / np.arange(1, cell.users + 1)
        return 1 + (cell.users * cell.pages * share / share.sum()).astype(np.int64)
    pages = random.poisson(cell.pages * random.lognormal(0, 0.5, cell.users))
    if cell.half:
        pages[0] = pages[1:].sum()
    return pages


def factors(cell: SharedCell, user: Any, position: Any, random: np.random.Generator) -> Array:
    """Return what clicks are multiplied by, [pages, documents]."""
    reads = random.uniform(1 - cell.apart, 1 + cell.apart, (cell.users, cell.documents))
    found: Array = reads[user[:, None], position]
    if cell.mood:
        found *= random.gamma(cell.mood**-2, cell.mood**2, cell.users)[user, None]
    if cell.by == "page":
        found *= random.choice(MOODS, len(user))[:, None]
    return found


def interventions_of(cell: SharedCell, unit: Any, position: Any, click: Any, cluster: Any, names: Any) -> Any:
    """Return displays as a harvest gives them: units at two positions or more, clicks divided among the clusters."""
    from clickharvest.harvesting import Interventions

    cells, place = np.unique(unit * cell.documents + position, return_inverse=True)
    shown = np.bincount(place)
    several = np.bincount(cells // cell.documents)[cells // cell.documents] > 1
    whose = np.where(click, cluster, -1)
    rows, row = np.unique(np.stack([place, whose], axis=1)[several[place]], axis=0, return_inverse=True)
    at, own = rows[:, 0], np.bincount(row.ravel())
    of_unit = cells[at] // cell.documents
    level, query = np.divmod(of_unit // cell.documents, cell.queries)
    return Interventions(
        unit=of_unit,
        query=query,
        position=cells[at] % cell.documents + 1,
        exposure=shown[at].astype(np.float64),
        clicks=np.where(rows[:, 1] >= 0, own, 0),
        impressions=own,
        contexts={"level": names[level]} if cell.levels else {},
        cluster=rows[:, 1],
        cluster_kind=cell.by,
    )
