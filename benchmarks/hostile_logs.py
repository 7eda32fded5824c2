"""Hostile logs for `attacks`: each is what a user might bring, with one thing wrong that the log itself may not show.

Pages of eight results by three rankers, 200 queries of Zipf traffic, examination k^−.8, relevance Beta(1, 2), unless a
world says otherwise. A world changes the pages before they are clicked, or the rows that the log keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
QUERIES, DOCS, K, RANKERS, PAGES = 200, 12, 8, 3, 12_000
STEEPNESS = 0.8


@dataclass
class Pages:
    """Pages as they are shown, before a log is made of them.

    Attributes:
        random: source of chance.
        columns: one value a page: `query`, `ranker`, `time`, and what a world adds.
        shown: the documents of each page, [pages, K].
        appeal: Pr(click | examined) of each, [pages, K].
        examined: Pr(examined), [pages, K].
        clicks: clicks, [pages, K]; drawn by `draw`.
        kept: which rows the log keeps, [pages, K]; all if empty.
        position: positions as the log has them, [pages, K]; as they are if empty.
        truth: log p_k / p_1 of what the user wants to know.
        asked: the context for which it is asked, if the user names any.
    """

    random: np.random.Generator
    columns: dict[str, Array]
    shown: Array
    appeal: Array
    examined: Array
    truth: Array
    clicks: Array = field(default_factory=lambda: np.zeros(0))
    kept: Array = field(default_factory=lambda: np.zeros(0))
    position: Array = field(default_factory=lambda: np.zeros(0))
    asked: dict[str, Any] = field(default_factory=dict)

    def draw(self) -> Pages:
        """Let users click."""
        chance = np.minimum(self.examined * self.appeal, 1.0)
        return replace(self, clicks=self.random.random(chance.shape) < chance)

    def table(self) -> dict[str, Array]:
        """Return the log's columns."""
        wide = self.shown.shape[1]
        columns = {"page": np.arange(len(self.shown))} | self.columns
        rows = {name: np.repeat(column, wide) for name, column in columns.items()}
        position = self.position if self.position.size else np.tile(np.arange(1, wide + 1), (len(self.shown), 1))
        rows |= {"doc": self.shown.ravel(), "position": position.ravel(), "click": self.clicks.ravel().astype(np.int64)}
        kept = self.kept.ravel().astype(bool) if self.kept.size else np.ones(self.clicks.size, bool)
        return {name: column[kept] for name, column in rows.items()}


def ranked(
    random: np.random.Generator,
    *,
    queries: int = QUERIES,
    pages: int = PAGES,
    docs: int = DOCS,
    wide: int = K,
    rankers: int = RANKERS,
    noise: float = 0.25,
    zipf: float = 1.0,
    scale: float = 1.0,
    curve: Array | None = None,
    share: Array | None = None,
    taste: float = 0.0,
    personal: float = 0.0,
) -> Pages:
    """Return pages of rankers that sort by relevance plus noise of their own.

    Args:
        random: source of chance.
        queries: number of queries.
        pages: number of pages.
        docs: documents of a query.
        wide: results on a page.
        rankers: number of rankers.
        noise: of the rankers.
        zipf: traffic of queries falls as their rank to this power.
        scale: of all relevance.
        curve: examination; k^−.8 if not given.
        share: traffic of the rankers; equal if not given.
        taste: spread of what single users think of documents, on the log scale.
        personal: how much the rankers know of it.
    """
    size = np.arange(1.0, queries + 1) ** -zipf
    query = random.choice(queries, pages, p=size / size.sum())
    ranker = random.choice(rankers, pages, p=share)
    relevance = random.beta(1, 2, (queries, docs))
    own = random.normal(0, noise, (rankers, queries, docs))
    liking = random.normal(0, taste, (pages, docs)) if taste else np.zeros((1, docs))
    now = np.clip(relevance[query] * np.exp(liking), 0, 1)
    score = relevance[query] + own[ranker, query] + personal * liking
    shown = np.argsort(-score, axis=1)[:, :wide]
    appeal = scale * np.take_along_axis(np.broadcast_to(now, score.shape), shown, axis=1)
    examined = np.arange(1.0, wide + 1) ** -STEEPNESS if curve is None else curve
    columns = {"query": query, "ranker": np.array([f"r{i}" for i in range(rankers)])[ranker], "time": np.arange(pages)}
    return Pages(
        random, columns, query[:, None] * docs + shown, appeal, np.tile(examined, (pages, 1)),
        np.log(examined / examined[0]),
    )  # fmt: skip


def keep(pages: Pages, which: Array) -> Pages:
    """Return the pages of a log that keeps some of them."""
    return replace(pages, kept=np.repeat(which[:, None], pages.clicks.shape[1], 1))


def first_click(pages: Pages) -> Pages:
    """The log keeps the first click of a page."""
    pages = pages.draw()
    return replace(pages, clicks=pages.clicks & (np.cumsum(pages.clicks, axis=1) == 1))


def last_click(pages: Pages) -> Pages:
    """The log keeps the last click of a page."""
    pages = pages.draw()
    return replace(pages, clicks=pages.clicks & (np.cumsum(pages.clicks[:, ::-1], axis=1)[:, ::-1] == 1))


def thinned_rows(pages: Pages) -> Pages:
    """Of rows without a click a tenth is kept."""
    pages = pages.draw()
    return replace(pages, kept=pages.clicks | (pages.random.random(pages.clicks.shape) < 0.1))


def thinned_pages(pages: Pages) -> Pages:
    """Of pages without a click a tenth is kept."""
    pages = pages.draw()
    return keep(pages, pages.clicks.any(1) | (pages.random.random(len(pages.clicks)) < 0.1))


def seen_rows(pages: Pages) -> Pages:
    """Users scroll to a depth; what is beyond is neither seen nor logged."""
    seen = pages.random.random((len(pages.shown), 1)) < pages.examined
    return replace(replace(pages, examined=seen.astype(float)).draw(), kept=seen)


def bot(pages: Pages, *, share: float, top: int, user: bool) -> Pages:
    """A bot makes a share of the pages and clicks the first results."""
    pages = pages.draw()
    by_bot = pages.random.random(len(pages.shown)) < share
    if user:
        pages.columns["user"] = np.where(by_bot, -1, np.arange(len(pages.shown)) // 3)
    return replace(pages, clicks=np.where(by_bot[:, None], np.arange(pages.shown.shape[1]) < top, pages.clicks))


def another_layout(pages: Pages) -> Pages:
    """One arm has another layout, in which half as much is clicked everywhere."""
    less = np.where(pages.columns["ranker"] == "r2", 0.5, 1.0)
    return replace(pages, appeal=pages.appeal * less[:, None]).draw()


def inserted(pages: Pages, *, share: float, factor: float) -> Pages:
    """Ranker r1 shows what r0 does, below a new result for a share of the queries, and is clicked otherwise."""
    query = pages.columns["query"]
    known, first = np.unique(query, return_index=True)
    same = first[np.searchsorted(known, query)]
    shown, appeal = pages.shown[same], pages.appeal[same]
    new = (pages.columns["ranker"] == "r1")[:, None]
    pushed = new & (pages.random.random(QUERIES) < share)[query, None]
    shown = np.where(pushed, np.hstack([10_000 + query[:, None], shown[:, :-1]]), shown)
    appeal = np.where(pushed, np.hstack([np.full((len(query), 1), 0.3), appeal[:, :-1]]), appeal)
    return replace(pages, shown=shown, appeal=appeal * np.where(new, factor, 1.0)).draw()


def season(pages: Pages) -> Pages:
    """One ranker after the other, while clicking doubles."""
    late = pages.columns["ranker"] == "r1"
    pages.columns["time"] = np.argsort(np.argsort(late, kind="stable"))
    return replace(pages, appeal=pages.appeal * np.where(late, 1.0, 0.5)[:, None]).draw()


def hidden_device(pages: Pages) -> Pages:
    """Phones, which are read less far, mostly meet ranker r1; the log does not name them."""
    phone = pages.random.random(len(pages.shown)) < np.where(pages.columns["ranker"] == "r1", 0.9, 0.1)
    k = np.arange(1.0, pages.shown.shape[1] + 1)
    examined = k ** -np.where(phone, 1.6, 0.4)[:, None]
    return replace(pages, examined=examined, truth=np.log((k**-1.6 + k**-0.4) / 2)).draw()


def bandit(random: np.random.Generator) -> Pages:
    """Results stand in the order of their click rates so far."""
    pages = ranked(random)
    query, relevance = pages.columns["query"], random.beta(1, 2, (QUERIES, DOCS))
    clicks, displays = np.ones((QUERIES, DOCS)), np.full((QUERIES, DOCS), 2.0)
    shown, clicked = np.zeros((PAGES, K), np.int64), np.zeros((PAGES, K), bool)
    chance, jitter = random.random((PAGES, K)), random.normal(0, 1e-3, (PAGES, DOCS))
    for i, q in enumerate(query):
        shown[i] = np.argsort(-(clicks[q] / displays[q] + jitter[i]))[:K]
        clicked[i] = chance[i] < pages.examined[0] * relevance[q, shown[i]]
        clicks[q, shown[i]] += clicked[i]
        displays[q, shown[i]] += 1
    pages.columns["ranker"] = np.full(PAGES, "bandit")
    return replace(pages, shown=query[:, None] * DOCS + shown, clicks=clicked)


def clicks_of_page(pages: Pages) -> Pages:
    """The user names as context how many clicks the page has."""
    pages = pages.draw()
    pages.columns["clicks_of_page"] = np.minimum(pages.clicks.sum(1), 3).astype(str)
    return replace(pages, asked={"clicks_of_page": "1"})


def engaged(pages: Pages) -> Pages:
    """The user names as context whether anything was clicked, with a tenth of errors."""
    pages = pages.draw()
    flag = pages.clicks.any(1) ^ (pages.random.random(len(pages.clicks)) < 0.1)
    pages.columns["engaged"] = np.where(flag, "yes", "no")
    return replace(pages, asked={"engaged": "yes"})


def rank_before(pages: Pages) -> Pages:
    """The log has the ranker's rank, but three pages in ten were shuffled after it."""
    pages = pages.draw()
    position = np.tile(np.arange(1, K + 1), (PAGES, 1))
    mixed = pages.random.permuted(position, axis=1)
    return replace(pages, position=np.where(pages.random.random((PAGES, 1)) < 0.3, mixed, position))


def fanned_out(pages: Pages) -> Pages:
    """Clicks were joined by user, query and document, without the page: one click marks every display."""
    pages.columns["user"] = user = pages.random.integers(PAGES // 6, size=PAGES)
    pages = pages.draw()
    keys = user[:, None] * 100_000 + pages.shown
    return replace(pages, clicks=np.isin(keys, keys[pages.clicks]))


def few_users(random: np.random.Generator) -> Pages:
    """Thirty users who read to different depths make all pages; the truth is that of all users there might be."""
    pages = ranked(random)
    user = random.integers(30, size=PAGES)
    pages.columns["user"] = user
    k = np.arange(1.0, K + 1)
    depth = random.normal(STEEPNESS, 0.3, 30)
    anybody = np.mean(k ** -random.normal(STEEPNESS, 0.3, 100_000)[:, None], axis=0)
    return replace(pages, examined=np.minimum(k ** -depth[user][:, None], 1.0), truth=np.log(anybody)).draw()


def feed(random: np.random.Generator, *, personal: float) -> Pages:
    """A home page of one ranker, which 600 users of different taste come back to; results change from page to page."""
    user, docs, k = random.integers(600, size=PAGES), 30, np.arange(1.0, K + 1)
    relevance, liking = random.beta(1, 2, docs), random.normal(0, 0.7, (600, docs))[user]
    shown = np.argsort(-(relevance + personal * liking + random.normal(0, 0.2, liking.shape)), axis=1)[:, :K]
    appeal = np.clip(relevance[shown] * np.exp(np.take_along_axis(liking, shown, axis=1)), 0, 1)
    columns = {"query": np.zeros(PAGES, np.int64), "user": user, "time": np.arange(PAGES)}
    examined = np.tile(k**-STEEPNESS, (PAGES, 1))
    return Pages(random, columns, shown, appeal, examined, -STEEPNESS * np.log(k)).draw()


def unnamed(pages: Pages) -> Pages:
    """The log does not name rankers."""
    del pages.columns["ranker"]
    return pages.draw()


def unequal_lengths(pages: Pages) -> Pages:
    """Queries have from three to eight results."""
    length = pages.random.integers(3, K + 1, QUERIES)[pages.columns["query"]]
    return replace(pages.draw(), kept=np.arange(K) < length[:, None])


def unique_queries(pages: Pages) -> Pages:
    """Every page has a query of its own: nothing is shown twice."""
    pages.columns["query"] = np.arange(PAGES)
    return pages.draw()


def top_two(pages: Pages) -> Pages:
    """The arms differ in the order of the first two results alone."""
    pages = inserted(pages, share=0.0, factor=1.0)  # both show the same
    swap = np.where((pages.columns["ranker"] == "r1")[:, None], [1, 0, *range(2, K)], np.arange(K))
    shown, appeal = (np.take_along_axis(part, swap, 1) for part in (pages.shown, pages.appeal))
    return replace(pages, shown=shown, appeal=appeal).draw()


def settled(pages: Pages) -> tuple[Array, Array]:
    """Return what is shown, and its appeal, if all pages of a query showed the same in the same order."""
    known, first = np.unique(pages.columns["query"], return_index=True)
    same = first[np.searchsorted(known, pages.columns["query"])]
    return pages.shown[same], pages.appeal[same]


def read_by_kind(pages: Pages, steep: Array) -> Pages:
    """Pages are read by k^-2 or k^-.4; the truth is their average."""
    k = np.arange(1.0, K + 1)
    examined = np.where(steep[:, None], k**-2.0, k**-0.4)
    return replace(pages, examined=examined, truth=np.log(examined.mean(0))).draw()


def navigational(pages: Pages) -> Pages:
    """On three queries in five all rankers agree; they are hardly read beyond the first result."""
    still = pages.columns["query"] % 5 < 3
    shown, appeal = (
        np.where(still[:, None], *both) for both in zip(settled(pages), (pages.shown, pages.appeal), strict=True)
    )
    return read_by_kind(replace(pages, shown=shown, appeal=appeal), still)


def chained(pages: Pages) -> Pages:
    """Half of the queries move at ranks 1 and 2 alone, and are hardly read further; the others move below rank 1."""
    query, ranker = pages.columns["query"], np.unique(pages.columns["ranker"], return_inverse=True)[1]
    top, order = query % 2 == 0, np.tile(np.arange(K), (QUERIES, RANKERS, 1))
    order[::2, 1, :2] = [1, 0]
    order[1::2, :, 1:] = pages.random.permuted(order[1::2, :, 1:], axis=2)
    shown, appeal = (np.take_along_axis(part, order[query, ranker], 1) for part in settled(pages))
    return read_by_kind(replace(pages, shown=shown, appeal=appeal), top)


def clicks_at(pages: Pages, which: Array) -> Pages:
    """Clicks are logged at some positions only."""
    pages = pages.draw()
    return replace(pages, clicks=pages.clicks & which)


@dataclass(frozen=True)
class World:
    """A kind of hostile log.

    Attributes:
        told: what is wrong, in words.
        make: makes the pages.
        named_by: findings that name the fault; none where nothing is wrong, or nothing can tell.
    """

    told: str
    make: Callable[[np.random.Generator], Pages]
    named_by: tuple[str, ...] = ()


def of(
    told: str, change: Callable[..., Pages], *named_by: str, pages: dict[str, Any] | None = None, **how: Any
) -> World:
    """Return a world whose pages are changed by a function."""
    return World(told, lambda random: change(ranked(random, **(pages or {})), **how), named_by)


def plain(told: str, *named_by: str, **pages: Any) -> World:
    """Return a world whose pages are as they are, and clicked."""
    return World(told, lambda random: ranked(random, **pages).draw(), named_by)


TWO = {"rankers": 2}
WORLDS = {
    "fine": plain("nothing is wrong"),
    "first click": of("only the first click of a page is logged", first_click, "single clicks"),
    "last click": of("only the last click of a page is logged", last_click, "single clicks"),
    "at most one click": of(
        "pages with two clicks or more are not logged", lambda p: keep(q := p.draw(), q.clicks.sum(1) < 2),
        "single clicks",
    ),
    "clicked pages": of(
        "pages without a click are not logged", lambda p: keep(q := p.draw(), q.clicks.any(1)), "clicked pages"
    ),
    "thinned pages": of("a tenth of the pages without a click is logged", thinned_pages),
    "thinned rows": of("a tenth of the rows without a click is logged", thinned_rows, "missing rows"),
    "seen rows": of("rows are logged once users scroll to them", seen_rows, "unequal pages"),
    "robot clicks all": of(
        "a robot makes 10 % of the pages and clicks everything", bot, "clicked through", share=0.1, top=K, user=False
    ),
    "robot clicks first": of(
        "a robot makes 30 % of the pages and clicks the first result; user column", bot, "one user",
        share=0.3, top=1, user=True,
    ),
    "the same, no users": of("the same without a user column", bot, "one user", share=0.3, top=1, user=False),
    "fanned out": of(
        "clicks are joined by user, query and document, without the page", fanned_out, "repeated clicks",
        pages={"queries": 20},
    ),
    "inserted": of(
        "one arm puts a new result on top, and half as much is clicked there", inserted, "clicks by ranker",
        pages=TWO, share=1.0, factor=0.5,
    ),
    "inserted, alike": of(
        "the same for half of the queries, clicked alike in both arms", inserted, pages=TWO, share=0.5, factor=1.0
    ),
    "another layout": of("in one of three arms half as much is clicked", another_layout),
    "season": of("one ranker after the other, while clicking doubles", season, pages=TWO),
    "hidden device": of("phones, not named, mostly meet one arm", hidden_device, "depth by ranker", pages=TWO),
    "personalised": plain("all rankers know the taste of the user", "usual position", taste=0.7, personal=0.2),
    "the same, no rankers": of(
        "the same without a ranker column", unnamed, "usual position", pages={"taste": 0.7, "personal": 0.2}
    ),
    "feed": World("a home page that users of different taste come back to", lambda random: feed(random, personal=0.0)),
    "personal feed": World(
        "the same, and its one ranker knows their taste", lambda random: feed(random, personal=0.2),
        ("usual position by user",),
    ),
    "bandit": World("results stand in the order of their clicks so far", bandit, ("drift with position",)),
    "rank before": of("3 in 10 pages are shuffled after the rank was logged", rank_before, "usual position"),
    "clicks as context": of("a context column is the page's number of clicks", clicks_of_page, "context of clicks"),
    "engaged visits": of("a context column is whether the page was clicked, a tenth of it wrong", engaged),
    "few users": World("30 users of different depths make all pages; user column", few_users, ("few users",)),
    "grid": plain("two rows of four, read as a list", curve=np.array([0.6, 1.0, 0.9, 0.5, 0.25, 0.45, 0.4, 0.2])),
    "increasing": plain("examination grows with the position", curve=np.arange(1.0, K + 1) / K),
    "fold, few clicks": plain(
        "a fold after position 4, 2,000 pages", pages=2_000, curve=np.array([1, 0.9, 0.85, 0.8, 0.1, 0.08, 0.07, 0.06])
    ),
    "tiny arm": plain("two arms with 99.5 and .5 % of the traffic", rankers=2, share=np.array([0.995, 0.005])),
    "rare clicks": plain("one impression in 600 is clicked", scale=0.01, pages=40_000),
    "sure clicks": plain("nearly all is looked at, and half of it clicked", curve=np.linspace(1, 0.93, K), scale=1.5),
    "unequal lengths": of("queries have three to eight results", unequal_lengths),
    "unique queries": of("every page has a query of its own", unique_queries, "refused"),
    "navigational": of(
        "six in ten queries never move, and are hardly read beyond the top", navigational, "unmoved queries"
    ),
    "chained": of(
        "half of the queries move at the top alone, and are hardly read further; others move below it", chained,
        "links within queries",
    ),
    "top two": of("arms differ in the first two results alone", top_two, "connectivity", pages=TWO),
    "no clicks at 3": of(
        "clicks at position 3 are not logged", lambda p: clicks_at(p, np.arange(1, K + 1) != 3), "connectivity"
    ),
    "clicks at 1 alone": of(
        "clicks are logged at position 1 alone", lambda p: clicks_at(p, np.arange(1, K + 1) == 1), "refused"
    ),
}  # fmt: skip
