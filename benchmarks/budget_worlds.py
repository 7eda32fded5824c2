"""Worlds for `budget`: logs with known examination, sound ones and ones that mislead, each with one thing wrong.

Pages of ten results by three rankers, a thousand queries with Zipf traffic, users who come back. Examination is k^−.7
on desktops and k^−1.4 on phones, unless a world says otherwise. A world changes the pages before they are clicked, or
the rows that the log keeps. The checks were developed on these worlds, and are judged on those of `judged_worlds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
K, DOCS = 10, 15
STEEPNESS = np.array([0.7, 1.4])


@dataclass
class Pages:
    """Pages of results, [pages] or [pages, K].

    Attributes:
        random: source of chance.
        query: the query.
        user: who saw the page.
        ranker: who made it.
        device: 0 desktop, 1 phone.
        time: when, in [0, 1).
        shown: the documents, [pages, K].
        appeal: Pr(click | examined), [pages, K].
        examined: Pr(examined), [pages, K].
        truth: log p_k / p_1 by device, [2, K].
        clicks: clicks, [pages, K]; None until they are drawn.
        position: positions as the log has them, [pages, K].
        kept: which rows the log has, or how often, [pages, K].
        relevance: how much documents are wanted, [queries, documents of a query].
        columns: further columns of the log, by page.
        context: context columns.
        drop: columns that the log lacks.
    """

    random: np.random.Generator
    query: Array
    user: Array
    ranker: Array
    device: Array
    time: Array
    shown: Array
    appeal: Array
    examined: Array
    truth: Array
    clicks: Any = None
    position: Any = None
    kept: Any = None
    relevance: Any = None
    columns: dict[str, Array] = field(default_factory=dict)
    context: tuple[str, ...] = ("device",)
    drop: tuple[str, ...] = ()
    asked: dict[str, Any] = field(default_factory=lambda: {"device": ["desktop", "phone"]})

    def draw(self) -> Pages:
        """Let users click, each result for itself."""
        if self.clicks is None:
            self.clicks = self.random.random(self.appeal.shape) < np.minimum(self.examined * self.appeal, 1)
        return self

    def table(self) -> dict[str, Array]:
        """Return the columns of the log."""
        pages, wide = self.shown.shape
        devices = np.array(["desktop", "phone"])
        columns = {"page": np.arange(pages), "query": self.query, "user": self.user, "time": self.time}
        columns |= {"ranker": np.array(list("abcdefgh"))[self.ranker], "device": devices[self.device]}
        columns |= self.columns
        rows = {name: np.repeat(column, wide) for name, column in columns.items() if name not in self.drop}
        position = np.tile(np.arange(1, wide + 1), (pages, 1)) if self.position is None else self.position
        rows |= {"doc": self.shown.ravel(), "position": position.ravel(), "click": self.clicks.ravel().astype(np.int64)}
        if self.kept is None:
            return rows
        times = self.kept.ravel().astype(np.int64)
        return {name: np.repeat(column, times) for name, column in rows.items()}


def make(
    seed: int,
    pages: int,
    *,
    queries: int = 1000,
    rankers: int = 3,
    per_user: float = 5.0,
    by_user: bool = True,
    zipf: float = 1.0,
    popular: float = 0.0,
    noise: float | Array = 0.25,
    page_noise: float = 0.0,
    spread: float = 0.0,
    curve: Array | None = None,
    scale: float = 0.9,
    taste: float = 0.0,
    known: float = 0.0,
    known_queries: float = 1.0,
    zeal: float = 0.5,
    change: float = 0.0,
    follow: bool = False,
    turns: bool = False,
    share: Array | None = None,
    single: bool = False,
    weeks: int = 0,
    habits: int = 0,
    wide: int = K,
) -> Pages:
    """Return pages of rankers that sort by relevance plus noise of their own.

    Args:
        seed: seed of all randomness.
        pages: number of pages.
        queries: number of queries.
        rankers: number of rankers.
        per_user: pages of a user, on average.
        by_user: whether users are assigned to rankers, and not pages.
        zipf: traffic of queries falls as their rank to this power.
        popular: share of the pages that are those of the first query; 0 leaves it to `zipf`.
        noise: what rankers think differently, on the scale of relevance; of all, or [rankers, 1, 1].
        page_noise: what every page is ordered by beside it.
        spread: standard deviation of the steepness of queries.
        curve: log examination by device, [2, K].
        scale: of all relevance.
        taste: spread of what single users think of documents, on the log scale.
        known: how much rankers know of it.
        known_queries: share of the queries where they do.
        zeal: spread of how much users click, on the log scale.
        change: how much documents gain or lose over time, a share of their relevance.
        follow: whether rankers follow that.
        turns: whether rankers take turns in time.
        share: traffic of the rankers.
        single: whether all users have one device.
        weeks: weeks in which rankers take turns; 0 if they do not.
        habits: queries of a user; 0 for any.
        wide: results on a page.
    """
    random = np.random.default_rng(seed)
    docs = DOCS if wide == K else wide + 5
    size = np.arange(1.0, queries + 1) ** -zipf
    if popular:
        size[0] = popular / (1 - popular) * size[1:].sum()
    query = random.choice(queries, pages, p=size / size.sum())
    users = max(1, int(pages / per_user))
    weight = random.gamma(1.0, 1.0, users)
    user = random.choice(users, pages, p=weight / weight.sum())
    ranker = random.choice(rankers, users if by_user else pages, p=share)
    ranker = ranker[user] if by_user else ranker
    if habits:
        query = query[random.integers(pages, size=(users, habits))][user, random.integers(habits, size=pages)]
    time = np.sort(random.random(pages))
    if turns:
        ranker = np.minimum((time * rankers).astype(np.int64), rankers - 1)
    if weeks:
        ranker = (time * weeks).astype(np.int64) % rankers
    device = random.integers(2, size=users)[user] if not single else np.zeros(pages, dtype=np.int64)
    relevance = random.beta(1, 2, (queries, docs))
    own = random.normal(0, noise, (rankers, queries, docs))
    now = relevance[query]
    if change:
        way = random.choice([-1.0, 1.0], (queries, docs))[query]
        now = now * (1 + change * way * (2 * time[:, None] - 1))
    score = (now if follow else relevance[query]) + own[ranker, query]
    if page_noise:
        score = score + random.normal(0, page_noise, score.shape)
    if taste:
        liking = random.normal(0, taste, (users, docs))[user] if per_user > 1 else random.normal(0, taste, now.shape)
        now = now * np.exp(liking - taste**2 / 2)
        knows = random.random(queries) < known_queries if known_queries < 1 else np.ones(queries, dtype=bool)
        score = score + known * liking * relevance[query] * knows[query][:, None]
    shown = np.argsort(-score, axis=1)[:, :wide]
    appeal = scale * np.take_along_axis(now, shown, axis=1)
    appeal = appeal * np.exp(zeal * random.normal(size=users) - zeal**2)[user][:, None]
    truth = -STEEPNESS[:, None] * np.log(np.arange(1, wide + 1)) if curve is None else curve
    log_p = truth[device]
    if spread:
        log_p = log_p * np.exp(random.normal(0, spread, queries) - spread**2 / 2)[query][:, None]
    shown = query[:, None] * docs + shown
    appeal, examined = np.clip(appeal, 0, 1), np.exp(log_p)
    return Pages(random, query, user, ranker, device, time, shown, appeal, examined, truth, relevance=relevance)


def fold(size: float = 0.7) -> Array:
    """Return curves with a fold of the page after position 5."""
    k = np.arange(1, K + 1)
    return np.asarray(-STEEPNESS[:, None] * np.log(k) - size * (k > 5))


def trust(pages: Pages, strength: float = 0.4) -> Pages:
    """Users click useless results where they trust the rank."""
    k = np.arange(1, K + 1)
    pages.appeal = pages.appeal * (0.9 + 0.1 / k) + (1 - pages.appeal) * strength / k
    return pages


def cascade(pages: Pages, leave: float = 0.7, only: Callable[[Array], Array] | None = None) -> Pages:
    """Users leave after a click, with some probability, or after clicks on some results only."""
    pages.draw()
    leaves = pages.random.random(pages.clicks.shape) < leave
    if only is not None:
        leaves &= only(pages.appeal)
    left = pages.clicks & leaves
    pages.clicks = pages.clicks & (np.cumsum(left, axis=1) - left == 0)
    return pages


def feedback(seed: int, pages: int, days: int = 10, *, forget: bool = False) -> Pages:
    """Rankers sort by the clicks of the days before, or of the day before alone."""
    made = make(seed, pages, rankers=1, page_noise=0.2)
    queries = int(made.query.max()) + 1
    counts, shown_ = np.zeros((queries, DOCS)), np.zeros((queries, DOCS)) + 5
    random = made.random
    made.relevance = relevance = random.beta(1, 2, (queries, DOCS))
    made.clicks = np.zeros(made.shown.shape, bool)
    day = np.minimum((made.time * days).astype(int), days - 1)
    for one in range(days):
        rows = np.flatnonzero(day == one)
        q = made.query[rows]
        score = (counts + 1) / shown_ + random.normal(0, 0.02, counts.shape)
        doc = np.argsort(-score[q], axis=1)[:, :K]
        appeal = 0.9 * relevance[q[:, None], doc]
        click = random.random(doc.shape) < appeal * made.examined[rows]
        if forget:
            counts, shown_ = np.zeros((queries, DOCS)), np.zeros((queries, DOCS)) + 5
        made.shown[rows] = q[:, None] * DOCS + doc
        made.clicks[rows] = click
        np.add.at(counts, (np.repeat(q, K), doc.ravel()), click.ravel())
        np.add.at(shown_, (np.repeat(q, K), doc.ravel()), 1)
    return made


def filtered(pages: Pages) -> Pages:
    """Positions were logged before a filter removed results: what users saw stands higher."""
    pages.draw()
    removed = pages.random.random(pages.shown.shape) < 0.25
    seen = np.cumsum(~removed, axis=1) - 1
    examined = np.take_along_axis(pages.examined, np.maximum(seen, 0), axis=1)
    pages.clicks = (pages.random.random(removed.shape) < examined * pages.appeal) & ~removed
    pages.kept = ~removed
    return pages


def misplaced(pages: Pages, share: float = 0.3) -> Pages:
    """Some pages were shuffled after their positions were logged."""
    pages.draw()
    wrong = pages.random.random((len(pages.query), 1)) < share
    straight = np.tile(np.arange(1, K + 1), (len(pages.query), 1))
    pages.position = np.where(wrong, pages.random.permuted(straight, axis=1), straight)
    return pages


def lost_clicks(pages: Pages) -> Pages:
    """Half of the clicks below position 5 are lost."""
    pages.draw()
    pages.clicks &= (np.arange(K) < 5) | (pages.random.random(pages.clicks.shape) < 0.5)
    return pages


def unseen_rows(pages: Pages) -> Pages:
    """Only rows that were on the screen are logged."""
    depth = pages.random.geometric(0.15, len(pages.query))
    seen = np.arange(K) < depth[:, None] + 1
    pages.examined = pages.examined * seen
    pages.truth = pages.truth + np.log(seen.mean(axis=0))
    pages.kept = seen
    return pages.draw()


def thinned_rows(pages: Pages) -> Pages:
    """Rows without a click are kept with a chance of a fifth."""
    pages.draw()
    pages.kept = pages.clicks | (pages.random.random(pages.clicks.shape) < 0.2)
    return pages


def robots(pages: Pages, kind: str) -> Pages:
    """Two of a hundred users are robots that click on what they see: everything, or anything by chance, or the top."""
    pages.draw()
    users = int(pages.user.max()) + 1
    robot = (pages.random.random(users) < 0.02)[pages.user]
    if kind == "all":
        chance = np.ones(K)
    elif kind == "some":
        chance = np.full(K, 0.5)
    else:
        chance = np.linspace(0.0, 0.9, K)
    clicks = pages.random.random(pages.clicks.shape) < chance
    pages.clicks = np.where(robot[:, None], clicks, pages.clicks)
    return pages


def doubled(pages: Pages) -> Pages:
    """Pages whose user clicked are logged twice, under two names."""
    pages.draw()
    twice = np.flatnonzero(pages.clicks[:, 0] & (pages.random.random(len(pages.query)) < 0.8))
    for name in ("query", "user", "ranker", "device", "time", "shown", "clicks", "appeal", "examined"):
        own = getattr(pages, name)
        setattr(pages, name, np.concatenate([own, own[twice]]))
    return pages


def one_click(pages: Pages) -> Pages:
    """The log keeps the last click of a page."""
    pages.draw()
    later = np.cumsum(pages.clicks[:, ::-1], axis=1)[:, ::-1] - pages.clicks
    pages.clicks &= later == 0
    return pages


def advert(pages: Pages) -> Pages:
    """One ranker's pages have an advertisement above the third result that pushes the rest down the screen."""
    pages.examined = pages.examined * np.where((pages.ranker == 1)[:, None] & (np.arange(K) >= 2), 0.4, 1)
    return pages.draw()


def hidden_device(seed: int, pages: int) -> Pages:
    """Nobody names the device, and the rankers are those of devices."""
    made = make(seed, pages, rankers=2)
    prefers = made.random.random(len(made.query)) < 0.85
    made.device = np.where(prefers, made.ranker, 1 - made.ranker)
    made.examined = np.exp(made.truth[made.device])
    made.truth = np.log(np.exp(made.truth).mean(axis=0, keepdims=True))
    made.context, made.drop, made.asked = (), ("device",), {}
    return made.draw()


def seasons(seed: int, pages: int) -> Pages:
    """Documents come up and wear out, and rankers follow."""
    return make(seed, pages, change=0.8, follow=True, noise=0.1).draw()


def dear(pages: Pages) -> Pages:
    """Users buy on few of the pages."""
    pages.appeal = pages.appeal * 0.08
    return pages.draw()


def levels(seed: int, pages: int) -> Pages:
    """Twelve kinds of pages, each with its own steepness."""
    made = make(seed, pages)
    users = int(made.user.max()) + 1
    kind = made.random.integers(12, size=users)[made.user]
    steep = np.linspace(0.5, 1.6, 12)
    made.truth = -steep[:, None] * np.log(np.arange(1, K + 1))
    made.examined = np.exp(made.truth[kind])
    made.columns = {"kind": np.char.add("kind ", kind.astype(str))}
    made.context, made.asked = ("kind",), {"kind": [f"kind {i}" for i in range(12)]}
    return made.draw()


def numbers(seed: int, pages: int) -> Pages:
    """Three numbers of users, of which one matters."""
    made = make(seed, pages)
    users = int(made.user.max()) + 1
    x = made.random.normal(size=(3, users)).round(1)
    steep = np.exp(0.3 * x[0])
    made.examined = np.exp(-steep[made.user][:, None] * np.log(np.arange(1, K + 1)))
    asked = np.array([-1.0, 0.0, 1.0])
    made.truth = -np.exp(0.3 * asked)[:, None] * np.log(np.arange(1, K + 1))
    made.columns = {name: own[made.user] for name, own in zip("xyz", x, strict=True)}
    made.context, made.asked = ("x", "y", "z"), {"x": asked, "y": 0 * asked, "z": 0 * asked}
    return made.draw()


SOUND: dict[str, Callable[[int], Pages]] = {
    "20,000 pages": lambda s: make(s, 20_000).draw(),
    "100,000 pages": lambda s: make(s, 100_000).draw(),
    "300,000 pages": lambda s: make(s, 300_000).draw(),
    "one ranker that changes its mind": lambda s: make(s, 100_000, rankers=1, page_noise=0.25).draw(),
    "two rankers": lambda s: make(s, 100_000, rankers=2).draw(),
    "eight rankers": lambda s: make(s, 100_000, rankers=8).draw(),
    "users who come back": lambda s: make(s, 100_000, per_user=50).draw(),
    "users seen once": lambda s: make(s, 100_000, per_user=1, zeal=0.8).draw(),
    "a real fold": lambda s: make(s, 100_000, curve=fold()).draw(),
    "queries that differ": lambda s: make(s, 100_000, spread=0.3).draw(),
    "twelve kinds of pages": lambda s: levels(s, 150_000),
    "three numbers": lambda s: numbers(s, 100_000),
    "few clicks": lambda s: dear(make(s, 200_000)),
    "few queries": lambda s: make(s, 100_000, queries=60).draw(),
    "tastes that rankers do not know": lambda s: make(s, 100_000, taste=0.6).draw(),
    "documents that change": lambda s: make(s, 100_000, change=0.6).draw(),
}
BIASED: dict[str, Callable[[int], Pages]] = {
    "trust": lambda s: trust(make(s, 100_000)).draw(),
    "weak trust": lambda s: trust(make(s, 100_000), 0.1).draw(),
    "cascade": lambda s: cascade(make(s, 100_000)),
    "cascade of served users": lambda s: cascade(make(s, 100_000), 1.0, lambda appeal: appeal > 0.4),
    "weak cascade": lambda s: cascade(make(s, 100_000), 0.3),
    "rankers that know users": lambda s: make(s, 100_000, taste=0.7, known=0.6).draw(),
    "one ranker that knows users": lambda s: make(s, 100_000, taste=0.7, known=0.6, rankers=1, page_noise=0.2).draw(),
    "feedback": lambda s: feedback(s, 100_000),
    "seasons": lambda s: seasons(s, 100_000),
    "arms that take turns": lambda s: make(s, 100_000, turns=True, change=0.8, follow=True, noise=0.2).draw(),
    "positions before a filter": lambda s: filtered(make(s, 100_000)),
    "misplaced": lambda s: misplaced(make(s, 100_000)),
    "lost clicks": lambda s: lost_clicks(make(s, 100_000)),
    "unseen rows": lambda s: unseen_rows(make(s, 100_000)),
    "thinned rows": lambda s: thinned_rows(make(s, 100_000)),
    "robots that click everything": lambda s: robots(make(s, 100_000), "all"),
    "robots that click anything": lambda s: robots(make(s, 100_000), "some"),
    "robots that click the end": lambda s: robots(make(s, 100_000), "end"),
    "doubled pages": lambda s: doubled(make(s, 100_000)),
    "last click only": lambda s: one_click(make(s, 100_000)),
    "an advertisement by arm": lambda s: advert(make(s, 100_000)),
    "hidden device": lambda s: hidden_device(s, 100_000),
}


def power(desktop: float, phone: float, wide: int = K) -> Array:
    """Return curves k^−desktop and k^−phone, as logs."""
    return np.asarray(-np.array([[desktop], [phone]]) * np.log(np.arange(1, wide + 1)))


def plateau() -> Array:
    """Return curves that are flat at the top, fall, and are flat again."""
    k = np.arange(1, K + 1)
    curve = -np.log1p(np.exp((k - np.array([[6.0], [4.0]])) / 2))
    return np.asarray(curve - curve[:, :1])


def reorder(pages: Pages, score: Array, rows: Array | slice = slice(None)) -> Pages:
    """Sort the results of some pages by a score, the largest first."""
    order = np.argsort(-score, axis=1, kind="stable")
    for name in ("shown", "appeal"):
        getattr(pages, name)[rows] = np.take_along_axis(getattr(pages, name)[rows], order, axis=1)
    return pages


def mean_truth(pages: Pages) -> Pages:
    """Call the mean of examination the truth, by device."""
    curve = np.log([pages.examined[pages.device == one].mean(axis=0) for one in (0, 1)])
    pages.truth = curve - curve[:, :1]
    return pages


def bucket(pages: Pages) -> Pages:
    """The pages of one ranker are in random order."""
    score = (
        pages.random.random(pages.shown.shape) * (pages.ranker == 1)[:, None]
        - np.arange(K) * (pages.ranker != 1)[:, None]
    )
    return reorder(pages, score).draw()


def bursts(pages: Pages) -> Pages:
    """Seven of ten pages of a query come within a twenty-fifth of the time."""
    centre = pages.random.random(int(pages.query.max()) + 1)[pages.query]
    near = pages.random.random(len(pages.query)) < 0.7
    pages.time = np.where(near, (centre + pages.random.uniform(0, 0.04, len(near))) % 1, pages.time)
    return pages.draw()


def weekends(pages: Pages) -> Pages:
    """On the last two days of seven, phones are twice as usual, and everything is clicked half as often."""
    weekend = (pages.time * 28).astype(np.int64) % 7 >= 5
    pages.device = (pages.random.random(len(weekend)) < np.where(weekend, 0.7, 0.35)).astype(np.int64)
    pages.examined = np.exp(pages.truth[pages.device])
    pages.appeal = pages.appeal * np.where(weekend, 0.5, 1.0)[:, None]
    return pages.draw()


def devices(pages: Pages) -> Pages:
    """Users have a phone and a desktop, and take the one or the other for each page."""
    pages.device = pages.random.integers(2, size=len(pages.query))
    pages.examined = np.exp(pages.truth[pages.device])
    return pages.draw()


def without(pages: Pages, *columns: str) -> Pages:
    """The log lacks some columns."""
    pages.drop = columns
    return pages.draw()


def purchases(pages: Pages) -> Pages:
    """The log has purchases, rare, at most one a page, and nearly all of good results."""
    pages.appeal = 0.08 * pages.appeal**2
    pages.draw()
    best = np.argmax(pages.clicks * pages.random.random(pages.clicks.shape), axis=1)
    pages.clicks &= best[:, None] == np.arange(K)
    return pages


def short_queries(pages: Pages) -> Pages:
    """Three of ten queries have only six results."""
    short = (pages.random.random(int(pages.query.max()) + 1) < 0.3)[pages.query]
    pages.kept = ~short[:, None] | (np.arange(K) < 6)
    return pages.draw()


def two_columns(pages: Pages) -> Pages:
    """Steepness depends on the device and on which of three countries users are from."""
    country = pages.random.integers(3, size=int(pages.user.max()) + 1)[pages.user]
    more = np.array([-0.2, 0.0, 0.3])
    steep = (STEEPNESS[:, None] + more).ravel()
    pages.truth = -steep[:, None] * np.log(np.arange(1, K + 1))
    pages.examined = np.exp(pages.truth[pages.device * 3 + country])
    names = np.array(["it", "no", "pt"])
    pages.columns, pages.context = {"country": names[country]}, ("device", "country")
    pages.asked = {"device": np.repeat(["desktop", "phone"], 3), "country": np.tile(names, 2)}
    return pages.draw()


def trusted_rank(pages: Pages) -> Pages:
    """Near the top, users click weak results nearly as often as good ones: appeal to the power 1 − .6 / k."""
    pages.appeal = pages.appeal ** (1 - 0.6 / np.arange(1, K + 1))
    return pages.draw()


def two_clicks(pages: Pages) -> Pages:
    """Users leave after the second click."""
    pages.draw()
    pages.clicks &= np.cumsum(pages.clicks, axis=1) <= 2
    return pages


def cascade_at_top(pages: Pages) -> Pages:
    """Nine of ten users leave after a click on the first two results, one of ten after any other."""
    pages.draw()
    left = pages.clicks & (pages.random.random(pages.clicks.shape) < np.where(np.arange(K) < 2, 0.9, 0.1))
    pages.clicks &= np.cumsum(left, axis=1) - left == 0
    return pages


def outshone(pages: Pages) -> Pages:
    """A good result draws the eye from the one below, clicked or not; the truth is the mean."""
    pages.examined[:, 1:] *= 1 - 0.8 * pages.appeal[:, :-1]
    return mean_truth(pages).draw()


def history(pages: Pages) -> Pages:
    """What users have clicked before moves up by four places for them."""
    pages.clicks = np.zeros(pages.shown.shape, dtype=bool)
    known = np.zeros(0, dtype=np.int64)
    many = int(pages.shown.max()) + 1
    for rows in np.array_split(np.arange(len(pages.query)), 25):
        mine = np.isin(pages.user[rows, None] * many + pages.shown[rows], known)
        reorder(pages, 4.5 * mine - np.arange(K), rows)
        clicks = pages.random.random((len(rows), K)) < pages.examined[rows] * pages.appeal[rows]
        pages.clicks[rows] = clicks
        known = np.union1d(known, (pages.user[rows, None] * many + pages.shown[rows])[clicks])
    return pages


def new_season(pages: Pages) -> Pages:
    """Half of the documents double in relevance at half-time, and the ranker that takes over then knows."""
    doubles = (pages.random.random(int(pages.shown.max()) + 1) < 0.5)[pages.shown]
    own = pages.random.normal(0, 0.2, int(pages.shown.max()) + 1)[pages.shown]
    late = np.flatnonzero(pages.ranker == 1)
    pages.appeal[late] = np.minimum(pages.appeal[late] * (1 + doubles[late]), 1)
    return reorder(pages, np.log(pages.appeal[late] + 1e-9) + own[late], late).draw()


def counts_from_two(pages: Pages) -> Pages:
    """One ranker of three numbers its results from 2."""
    pages.position = np.arange(1, K + 1) + (pages.ranker == 1)[:, None]
    return pages.draw()


def lost_on_phones(pages: Pages) -> Pages:
    """A fifth of the clicks of phones below position 4 are lost."""
    pages.draw()
    pages.clicks &= (pages.device == 0)[:, None] | (np.arange(K) < 4) | (pages.random.random(pages.clicks.shape) < 0.8)
    return pages


def unseen_in_arm(pages: Pages) -> Pages:
    """One ranker of three logs only what was on the screen."""
    seen = np.arange(K) < pages.random.geometric(0.15, len(pages.query))[:, None] + 1
    pages.examined = pages.examined * seen
    pages.kept = seen | (pages.ranker != 1)[:, None]
    return mean_truth(pages).draw()


def single_robots(pages: Pages) -> Pages:
    """Three of a hundred users, each seen once, are robots that click on half of what they are shown."""
    return clicked_by(pages, 0.03, np.full(K, 0.5))


def scrapers(pages: Pages) -> Pages:
    """Five of a hundred users open the first result of every page and nothing else."""
    return clicked_by(pages, 0.05, np.arange(K) < 1)


def clicked_by(pages: Pages, share: float, chance: Array) -> Pages:
    """A share of the users are robots that click by position."""
    pages.draw()
    robot = (pages.random.random(int(pages.user.max()) + 1) < share)[pages.user][:, None]
    pages.clicks = np.where(robot, pages.random.random(pages.clicks.shape) < chance, pages.clicks)
    return pages


def clicked_twice(pages: Pages) -> Pages:
    """A join has doubled half of the clicked rows, in a log without pages."""
    pages.draw()
    pages.drop = ("page",)
    pages.kept = 1 + (pages.clicks & (pages.random.random(pages.clicks.shape) < 0.5))
    return pages


def phone_advert(pages: Pages, where: Array) -> Pages:
    """Some phone pages have an advertisement above all results that is not in the log; the truth is the mean."""
    pushed = np.exp(-STEEPNESS[1] * np.log(np.arange(2, K + 2)))
    pages.examined = np.where((where & (pages.device == 1))[:, None], pushed, pages.examined)
    return mean_truth(pages).draw()


def no_swap(pages: Pages) -> Pages:
    """Three of ten pages are logged with the first result and another swapped, and half of them were not."""
    many, other = len(pages.query), pages.random.integers(1, K, len(pages.query))
    swapped = pages.random.random(many) < 0.3
    done = swapped & (pages.random.random(many) < 0.5)
    seen = np.tile(np.arange(K), (many, 1))
    seen[done, 0], seen[done, other[done]] = other[done], 0
    pages.examined = np.take_along_axis(pages.examined, seen, axis=1)
    pages.position = np.tile(np.arange(1, K + 1), (many, 1))
    pages.position[swapped, 0], pages.position[swapped, other[swapped]] = other[swapped] + 1, 1
    return pages.draw()


def row_below(pages: Pages) -> Pages:
    """Fifteen of a hundred clicks are logged with the row below."""
    pages.draw()
    slips = pages.clicks & (pages.random.random(pages.clicks.shape) < 0.15) & (np.arange(K) < K - 1)
    pages.clicks = (pages.clicks & ~slips) | np.roll(slips, 1, axis=1)
    return pages


def enthusiasts(pages: Pages) -> Pages:
    """Users choose the ranker, and those of the second read on and click more; the truth is the mean."""
    keen = (pages.ranker == 1)[:, None]
    pages.examined = np.where(keen, np.sqrt(pages.examined), pages.examined)
    pages.appeal = pages.appeal * np.where(keen, 1.0, 0.6)
    return mean_truth(pages).draw()


def back_button(pages: Pages) -> Pages:
    """Who comes back from a result makes a new page in the log, with the clicks that follow."""
    pages.draw()
    first = pages.clicks & (np.cumsum(pages.clicks, axis=1) == 1)
    again = np.flatnonzero(pages.clicks.any(axis=1) & (pages.random.random(len(pages.query)) < 0.7))
    later = (pages.clicks & ~first)[again]
    pages.clicks[again] = first[again]
    for name in ("query", "user", "ranker", "device", "time", "shown", "appeal", "examined"):
        own = getattr(pages, name)
        setattr(pages, name, np.concatenate([own, own[again]]))
    pages.clicks = np.concatenate([pages.clicks, later])
    return pages


def commercial(pages: Pages) -> Array:
    """Return whether pages are those of the four of ten queries that have advertisements."""
    return (pages.random.random(int(pages.query.max()) + 1) < 0.4)[pages.query]


SOUND |= {
    "nearly flat": lambda s: make(s, 100_000, curve=power(0.0, 0.2)).draw(),
    "very steep": lambda s: make(s, 100_000, curve=power(1.8, 2.4)).draw(),
    "a plateau at the top": lambda s: make(s, 100_000, curve=plateau()).draw(),
    "a good and a poor ranker": lambda s: make(
        s, 100_000, rankers=2, noise=np.array([0.05, 0.6]).reshape(2, 1, 1)
    ).draw(),
    "a random bucket": lambda s: bucket(make(s, 100_000, rankers=2, share=np.array([0.9, 0.1]))),
    "rankers by page": lambda s: make(s, 100_000, rankers=4, by_user=False, per_user=20).draw(),
    "a query with 40 % of the pages": lambda s: make(s, 100_000, popular=0.4).draw(),
    "bursts of queries": lambda s: bursts(make(s, 60_000)),
    "weekends": lambda s: weekends(make(s, 100_000)),
    "users with two devices": lambda s: devices(make(s, 60_000, per_user=10)),
    "neither user nor time": lambda s: without(make(s, 100_000), "user", "time"),
    "neither ranker nor page": lambda s: without(make(s, 100_000), "ranker", "page"),
    "purchases": lambda s: purchases(make(s, 200_000)),
    "five positions": lambda s: make(s, 60_000, curve=power(0.7, 1.4, 5), wide=5).draw(),
    "twenty positions": lambda s: make(s, 50_000, curve=power(0.7, 1.4, 20), wide=20).draw(),
    "queries with six results": lambda s: short_queries(make(s, 100_000)),
    "two columns": lambda s: two_columns(make(s, 100_000)),
}
BIASED |= {
    "trust in the rank": lambda s: trusted_rank(make(s, 60_000)),
    "two clicks are enough": lambda s: two_clicks(make(s, 60_000)),
    "cascade at the top": lambda s: cascade_at_top(make(s, 60_000)),
    "outshone by the result above": lambda s: outshone(make(s, 60_000)),
    "rankers that know users of some queries": lambda s: make(
        s, 60_000, taste=0.7, known=0.6, known_queries=0.3
    ).draw(),
    "own clicks move results up": lambda s: history(make(s, 60_000, per_user=15, habits=2, taste=0.8)),
    "weekly feedback": lambda s: feedback(s, 60_000, 4, forget=True),
    "a new season and a new ranker": lambda s: new_season(make(s, 60_000, rankers=2, turns=True, scale=0.5, noise=0.1)),
    "arms that take turns by week": lambda s: make(
        s, 60_000, rankers=2, weeks=8, change=0.8, follow=True, noise=0.2
    ).draw(),
    "one arm counts from 2": lambda s: counts_from_two(make(s, 60_000)),
    "clicks lost on phones": lambda s: lost_on_phones(make(s, 100_000)),
    "unseen rows in one arm": lambda s: unseen_in_arm(make(s, 60_000)),
    "robots seen once": lambda s: single_robots(make(s, 60_000, per_user=1)),
    "scrapers of the top": lambda s: scrapers(make(s, 60_000)),
    "clicked rows twice": lambda s: clicked_twice(make(s, 60_000)),
    "advertisements on phones": lambda s: phone_advert(p := make(s, 60_000), commercial(p)),
    "an advertisement on phones by arm": lambda s: phone_advert(p := make(s, 60_000), p.ranker == 1),
    "swaps that did not happen": lambda s: no_swap(make(s, 60_000, rankers=1)),
    "clicks on the row below": lambda s: row_below(make(s, 60_000)),
    "arms that users choose": lambda s: enthusiasts(make(s, 60_000, rankers=2)),
    "back button": lambda s: back_button(make(s, 60_000)),
}
