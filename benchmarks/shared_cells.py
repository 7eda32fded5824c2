"""The kinds of logs of `coverage` in which not queries cluster: users of an A/B test, pages, documents of a home page.

Every page shows all documents of its query, ranked by one arm. Users keep their arm; they differ in how often they
come, in how much they click and in how they read: a factor for every user and position. Documents may differ, or pages,
instead. Factors have mean 1, so that examination is what the truth says on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from cells import World
from numpy.typing import NDArray

Array = NDArray[np.float64]
DEEPEST = 10
"""The last position of pages with more documents."""
MOODS = np.array([0.1, 1.9])
"""What users of one page multiply all their clicks by, where pages cluster."""


@dataclass(frozen=True)
class SharedCell:
    """A kind of log.

    Attributes:
        queries: number of queries.
        documents: documents of each, and positions of a page.
        positions: positions that are logged.
        arms: rankings of every query, of which each user sees one.
        users: number of users.
        pages: pages of a user, on average.
        zipf: whether the n-th user has 1 / n of the pages of the first.
        half: whether the first user has half of all pages.
        apart: how far the factors of users and positions reach: from 1 − apart to 1 + apart.
        mood: standard deviation of how much users click, which is gamma distributed around 1.
        steep: standard deviation of the steepness of users, where it is this that they differ in.
        better: how much better the second arm ranks.
        by: what clusters: the users; pages, whose users click much or little; or documents, which have factors then.
        levels: levels of a context that a user keeps.
        effect: standard deviation of what levels add to the steepness.
        rate: clicks of an examined document of relevance 1.
        curve, bar: as of `cells.Cell`.
    """

    queries: int = 30
    documents: int = 8
    positions: int = DEEPEST
    arms: int = 2
    users: int = 300
    pages: float = 40.0
    zipf: bool = False
    half: bool = False
    apart: float = 1.0
    mood: float = 0.5
    steep: float = 0.0
    better: float = 0.0
    by: Literal["user", "page", "doc"] = "user"
    levels: int = 0
    effect: float = 0.35
    rate: float = 0.12
    curve: str = "linear"
    bar: Literal["calibrated", "honest", "shown"] = "calibrated"


USERS = SharedCell()
ALIKE = replace(USERS, apart=0.0, mood=0.0)
HOME = replace(USERS, queries=1, documents=10, arms=8)
ZIPF = replace(USERS, users=500, zipf=True)
BY_DOCUMENT = replace(ALIKE, queries=1, arms=30, users=3_000, pages=8.0, by="doc")
SHARED = {
    "8 users": replace(USERS, users=8, pages=1_200.0),
    "20 users": replace(USERS, users=20, pages=600.0),
    "300 users": USERS,
    "3,000 users who click much or little": replace(USERS, queries=100, users=3_000, pages=16.0, mood=1.0),
    "50 users who click much or little": replace(USERS, users=50, pages=400.0, apart=0.5, mood=1.0),
    "users of Zipf's sizes": ZIPF,
    "users of Zipf's sizes who click much or little": replace(ZIPF, mood=1.0),
    "50 users of Zipf's sizes": replace(ZIPF, users=50, pages=200.0),
    "users of Zipf's sizes, 30 positions": replace(ZIPF, queries=60, documents=30, positions=30, users=2_000),
    "a user with half of the pages": replace(USERS, users=100, half=True),
    "users differ in steepness": replace(ALIKE, steep=0.3, pages=120.0),
    "users who read alike, and a better arm": replace(ALIKE, pages=200.0, better=3.0),
    "ten arms": replace(USERS, arms=10, pages=120.0),
    "a home page, 300 users": HOME,
    "a home page, 20 users": replace(HOME, users=20, pages=600.0),
    "a home page of two arms, 1,000 users": replace(HOME, arms=2, users=1_000),
    "three campaigns, 1,000 users": replace(USERS, queries=3, users=1_000, pages=24.0),
    "a home page, by page": replace(HOME, arms=4, users=2_000, pages=4.0, apart=0.0, mood=0.0, by="page"),
    "30 queries, by page": replace(ALIKE, users=3_000, pages=4.0, by="page"),
    "a home page of 12 documents, by document": replace(BY_DOCUMENT, documents=12),
    "a home page of 40 documents, by document": replace(BY_DOCUMENT, documents=40, pages=16.0),
    "a home page, 2 levels, 300 users": replace(HOME, levels=2, pages=160.0),
    "a home page, 5 levels, 20 users": replace(HOME, levels=5, users=20, pages=600.0),
    "auto: a home page, 5 levels, 300 users": replace(HOME, levels=5, pages=160.0, curve="auto"),
    "2 levels, 300 users": replace(USERS, levels=2, pages=80.0),
    "2 levels, users of Zipf's sizes": replace(ZIPF, levels=2, pages=80.0),
    "auto: 2 levels, users of Zipf's sizes": replace(ZIPF, levels=2, pages=80.0, curve="auto"),
    "auto: 5 levels, 300 users": replace(USERS, levels=5, pages=80.0, curve="auto"),
}


def simulate_shared(cell: SharedCell, random: np.random.Generator) -> World:
    """Return a log of a cell and its truth."""
    queries, documents, levels = cell.queries, cell.documents, max(cell.levels, 1)
    relevance = random.normal(0, 0.7, (queries, 1)) + random.normal(size=(queries, documents))
    relevance = 1 / (1 + np.exp(-relevance))
    better = np.where(np.arange(cell.arms) == 1, cell.better, 0.0)[:, None, None]
    ranks = np.argsort(-(better * relevance + random.normal(size=(cell.arms, queries, documents))), axis=2)
    ranks = np.argsort(ranks, axis=2)
    user = np.repeat(np.arange(cell.users), pages_of(cell, random))
    query = random.integers(queries, size=len(user))
    position = ranks[random.integers(cell.arms, size=cell.users)[user], query]
    level = random.integers(levels, size=cell.users)
    steepness = 1 + (random.normal(0, cell.effect, levels) if cell.levels else np.zeros(1))
    log_p = -steepness[:, None] * np.log(np.arange(1, documents + 1))
    rate = cell.rate * np.exp(log_p[level[user][:, None], position]) * relevance[query]
    rate *= factors(cell, user, query, position, random)
    click = random.random(rate.shape) < rate
    page, doc = np.nonzero(position < cell.positions)
    unit = (level[user[page]] * queries + query[page]) * documents + doc
    cluster = {"user": user[page], "page": page, "doc": unit}[cell.by]
    names = np.array([f"level {i}" for i in range(levels)])
    asked = slice(0, min(cell.positions, documents))
    return World(
        interventions_of(cell, unit, position[page, doc], click[page, doc], cluster, names),
        (log_p - log_p[:, :1])[:, asked],
        {"level": names} if cell.levels else {},
        np.arange(documents)[asked] > 0,
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


def factors(cell: SharedCell, user: Any, query: Any, position: Any, random: np.random.Generator) -> Array:
    """Return what clicks are multiplied by, [pages, documents]."""
    documents, distance = cell.documents, np.log(np.arange(1, cell.documents + 1))
    reads = random.uniform(1 - cell.apart, 1 + cell.apart, (cell.users, documents))
    if cell.steep:
        steeper = random.normal(0, cell.steep, (cell.users, 1))
        reads = np.exp(-steeper * distance - (cell.steep * distance) ** 2 / 2)
    found: Array = reads[user[:, None], position]
    if cell.mood:
        found *= random.gamma(cell.mood**-2, cell.mood**2, cell.users)[user, None]
    if cell.by == "page":
        found *= random.choice(MOODS, len(user))[:, None]
    if cell.by == "doc":
        likes = random.uniform(0, 2, (cell.queries, documents, documents))
        found *= likes[query[:, None], np.arange(documents), position]
    return found


def interventions_of(cell: SharedCell, unit: Any, position: Any, click: Any, cluster: Any, names: Any) -> Any:
    """Return displays as a harvest gives them: units at two positions or more, clicks divided among the clusters."""
    from clickharvest.harvesting import Interventions

    cells, place = np.unique(unit * cell.positions + position, return_inverse=True)
    shown = np.bincount(place)
    several = np.bincount(cells // cell.positions)[cells // cell.positions] > 1
    whose = np.where(click, cluster, -1)
    rows, row = np.unique(np.stack([place, whose], axis=1)[several[place]], axis=0, return_inverse=True)
    at, own = rows[:, 0], np.bincount(row.ravel())
    of_unit = cells[at] // cell.positions
    level, query = np.divmod(of_unit // cell.documents, cell.queries)
    return Interventions(
        unit=of_unit,
        query=query,
        position=cells[at] % cell.positions + 1,
        exposure=shown[at].astype(np.float64),
        clicks=np.where(rows[:, 1] >= 0, own, 0),
        impressions=own,
        contexts={"level": names[level]} if cell.levels else {},
        cluster=rows[:, 1],
        cluster_kind=cell.by,
    )
