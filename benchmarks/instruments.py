"""Do arms tell how examination falls where rankers know their users? `compare_arms` against an ordinary fit.

    .venv/bin/python benchmarks/instruments.py --jobs 2                      # all; writes the table
    .venv/bin/python benchmarks/instruments.py --worlds brands --logs 1

Pages of ten results by two rankers or three, assigned by user; a thousand queries with Zipf traffic. `compare_arms` was
developed on other worlds: tastes that are log-normal, of groups, of users of one kind or of few who love a result, and
those like `OTHERS`. `JUDGED` was written after that. Two things were changed later, neither for a world of `JUDGED`:
arms that have one place for each result have no parameters of tastes, and arms with few viewers tell less of the spread
of positions, so that pages are no arms. The error is log p̂_k less log p_k at the last position, in the worst context;
an interval is that of noise and tastes, without what other checks add. The bars: nine of ten intervals, and of ten
budgets, hold the truth; and no log whose curve is off by more than 30 % is called usable.

Needs NumPy, SciPy and lazy_loader, no engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import budget_worlds
import judged_worlds
import many_logs
import numpy as np
from accuracy import say
from budget_worlds import DOCS, K, Pages, feedback, fold, make, plateau

from clickharvest import CPBM, PBM
from clickharvest.checks import Displays, check_fit
from clickharvest.checks.instrument import compare_arms, summed
from clickharvest.errors import NotIdentifiedError
from clickharvest.harvesting.numbering import distinct
from clickharvest.model.budget import NOISE

LOGS, COVERED, TOLERANCE = 5, 0.9, 0.3
FIRST = 100
"""The first seed: those before it were developed on."""
Tastes = Callable[[np.random.Generator, Any, Any, int], Any]
"""From queries and users of pages, and the number of users, to log tastes by part, [parts, pages, documents]."""


def personal(
    seed: int,
    tastes: Tastes,
    knows: Any,
    pages: int = 100_000,
    *,
    noise: float = 0.25,
    page_noise: Any = 0.1,
    share: Any = None,
    devices: bool = False,
) -> Pages:
    """Return pages of rankers that sort by relevance, noise of their own and what they know of their users.

    Args:
        seed: seed of all randomness.
        tastes: what users like.
        knows: how much each ranker knows of each part of it, [rankers] or [rankers, parts].
        pages: number of pages.
        noise: what rankers think differently.
        page_noise: what every page is ordered by beside it, of all rankers or each.
        share: traffic of the rankers.
        devices: whether half of the users have phones, where examination falls faster, too.
    """
    knows = np.array(knows)
    made = make(seed, pages, rankers=len(knows), share=share, noise=noise)
    random, users = made.random, int(made.user.max()) + 1
    parts = tastes(random, made.query, made.user, users)
    known = np.broadcast_to(knows.reshape(len(knows), -1), (len(knows), len(parts)))[made.ranker]
    relevance, liking = made.relevance[made.query], parts.sum(axis=0)
    score = relevance * (1 + np.einsum("np,pnd->nd", known, parts))
    score += random.normal(0, noise, (len(knows), *made.relevance.shape))[made.ranker, made.query]
    score += random.normal(0, 1, score.shape) * np.broadcast_to(page_noise, len(knows))[made.ranker][:, None]
    shown = np.argsort(-score, axis=1)[:, :K]
    zeal = np.exp(0.5 * random.normal(size=users) - 0.25)[made.user][:, None]
    wanted = 0.9 * relevance * np.exp(liking) / np.exp(liking).mean() * zeal
    made.shown = made.query[:, None] * DOCS + shown
    made.appeal = np.clip(np.take_along_axis(wanted, shown, axis=1), 0, 1)
    made.device *= devices
    made.examined = np.exp(made.truth[made.device])
    return made.draw()


def brands(random: Any, query: Any, user: Any, users: int) -> Any:
    """Every user likes one brand of five, and every document is of one."""
    brand = random.integers(5, size=(int(query.max()) + 1, DOCS))
    return 0.9 * (brand[query] == random.integers(5, size=users)[user][:, None])[None]


def prices(random: Any, query: Any, user: Any, users: int) -> Any:
    """Documents have prices, users more or less money."""
    price = random.gamma(2, 0.5, (int(query.max()) + 1, DOCS))
    return -(random.gamma(1, 0.6, users)[user][:, None] * price[query])[None]


def regions(random: Any, query: Any, user: Any, users: int) -> Any:
    """What is popular depends on which of ten regions users are from, and on which of two sexes they are of."""
    queries = int(query.max()) + 1
    own = [random.normal(0, 0.45, (n, queries, DOCS))[random.integers(n, size=users)[user], query] for n in (10, 2)]
    return np.stack(own)


def heavy_tails(random: Any, query: Any, user: Any, users: int) -> Any:
    """Few users like or dislike a document very much."""
    return np.clip(0.4 * random.standard_t(4, (1, users, DOCS)), -2, 2)[:, user]


def haters(random: Any, query: Any, user: Any, users: int) -> Any:
    """One user of seven cannot stand a document."""
    return -2.0 * (random.random((1, users, DOCS)) < 1 / 7)[:, user]


def errands(random: Any, query: Any, user: Any, users: int) -> Any:
    """Pages are for one of three errands, and documents serve one of them."""
    serves = random.integers(3, size=(int(query.max()) + 1, DOCS))
    return 0.8 * (serves[query] == random.integers(3, size=len(query))[:, None])[None]


def normal(random: Any, query: Any, user: Any, users: int) -> Any:
    """Tastes are log-normal."""
    return random.normal(0, 0.6, (1, users, DOCS))[:, user]


def popular_lately(seed: int) -> Pages:
    """Each of two rankers sorts by the clicks of its own pages of the day before."""
    made, other = feedback(seed, 50_000, 20, forget=True), feedback(seed, 50_000, 20, forget=True)
    other.user += int(made.user.max()) + 1
    made.ranker = np.repeat([0, 1], 50_000)
    for name in ("query", "user", "device", "time", "shown", "clicks", "appeal", "examined"):
        setattr(made, name, np.concatenate([getattr(made, name), getattr(other, name)]))
    return made


JUDGED: dict[str, Callable[[int], Pages]] = {
    "brands": lambda s: personal(s, brands, (0.7, 0.7)),
    "prices, one arm knows users": lambda s: personal(s, prices, (0.5, 0)),
    "regions and sexes, one arm knows each": lambda s: personal(s, regions, ((0.6, 0), (0, 0.6))),
    "heavy tails, one arm of three": lambda s: personal(s, heavy_tails, (0, 0, 0.6), devices=True),
    "haters, both know them": lambda s: personal(s, haters, (0.4, 0.4)),
    "errands, known to both, not alike": lambda s: personal(s, errands, (0.8, 0.4)),
    "the new arm explores": lambda s: personal(s, normal, (0.5, 0.5), page_noise=(0.05, 0.4)),
    "a small arm that knows users": lambda s: personal(s, normal, (0, 0.6), share=[0.9, 0.1], devices=True),
    "arms that hardly differ": lambda s: personal(s, normal, (0.5, 0.5), noise=0.05),
    "brands, 20,000 pages": lambda s: personal(s, brands, (0.7, 0.7), 20_000),
    "popular the day before, by arm": popular_lately,
    "one arm": lambda s: personal(s, normal, (0.5,)),
}
SOUND: dict[str, Callable[[int], Pages]] = {
    "two arms": lambda s: make(s, 100_000, rankers=2).draw(),
    "two arms that explore": lambda s: personal(s, normal, (0, 0), page_noise=0.3),
    "a fold": lambda s: make(s, 100_000, rankers=2, curve=fold(), page_noise=0.1).draw(),
    "a plateau": lambda s: make(s, 100_000, rankers=2, curve=plateau(), page_noise=0.1).draw(),
    "20,000 pages": lambda s: make(s, 20_000, rankers=2, page_noise=0.1).draw(),
    "arms that hardly differ, unknown tastes": lambda s: personal(s, normal, (0, 0), noise=0.05),
}
OTHERS = {
    name: (budget_worlds.BIASED | judged_worlds.BIASED)[name]
    for name in ("rankers that know users", "two rankers that know users a little", "own clicks move results up",
                 "rankers that know users of some queries", "seasons", "feedback")
}  # fmt: skip
WORLDS = JUDGED | SOUND | OTHERS
HEAD = ("world", "logs", "ordinary fit: error", "budget", "holds", "words")
HEAD += ("by arm: error", "interval", "holds", "budget", "holds", "words")


def displays_of(pages: Pages) -> Displays:
    """Return what `read_displays` reads of the log."""
    table = pages.table()
    named = {name: distinct(table[name])[1] for name in ("query", "doc", "ranker", "user", "page", "time", "device")}
    contexts = {"device": table["device"]} if len(np.unique(table["device"])) > 1 else {}
    return Displays(
        unit=distinct(named["query"], *(named["device"],) * bool(contexts), named["doc"])[1],
        position=table["position"],
        shown=np.ones(len(table["query"])),
        clicks=table["click"].astype(np.float64),
        contexts=contexts,
        **{name: code for name, code in named.items() if name != "device"},
    )


def measure(world: str, seed: int) -> dict[str, Any]:
    """Return the error, the interval and the budget of both fits at the last position, in logs."""
    pages = WORLDS[world](FIRST + seed)
    displays, found = displays_of(pages), {}
    for name in ("ordinary", "arms"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                arms = compare_arms(displays) if name == "arms" else None
                seen = displays if arms is None else arms.displays
                rows = summed(displays, displays.shown, "context") if arms is None else arms.interventions
                model = (CPBM() if displays.contexts else PBM()).fit(rows).propensities_
                further = [] if arms is None else [arms.finding(model)]
                budget = check_fit(seen, model, further=further, interventions=rows).budget
        except NotIdentifiedError as refusal:
            found[name] = {"refused": str(refusal)}
            continue
        log_p = np.log(model.predict({"device": ["desktop", "phone"]} if displays.contexts else None).propensity)
        off = log_p[:, -1] - (pages.truth[:, -1] - pages.truth[:, 0])[: len(log_p)]
        terms = np.log1p([budget.terms[term][-1] for term in (NOISE, "instrument") if term in budget.terms])
        found[name] = {
            "error": float(off[np.abs(off).argmax()]),
            "interval": float(np.sqrt((terms**2).sum())),
            "up": float(np.log1p(budget.up[-1])),
            "down": float(-np.log1p(-budget.down[-1])),
            "word": budget.word,
        }
    say(f"{world}, seed {seed}: {found}")
    return found


HOLDS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "intervals": lambda one: abs(one["error"]) <= one["interval"],
    "budgets": lambda one: -one["up"] <= one["error"] <= one["down"],
}


def table(kept: dict[str, list[dict[str, Any]]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar."""
    lines, bars = [f"| {' | '.join(HEAD)} |", "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|---|"], []
    for title, worlds in (("judged", JUDGED), ("sound", SOUND), ("of the budget", OTHERS)):
        told = [log["arms"] for name in worlds for log in kept.get(name, ()) if "error" in log["arms"]]
        for what, holds in HOLDS.items() if told else ():
            share = float(np.mean([holds(one) for one in told]))
            bars.append(f"{'PASS' if share >= COVERED else 'FAIL'}: {title}: {share:.0%} of {len(told)} {what} hold")
        wrong = sum(one["word"] == "usable" and np.expm1(abs(one["error"])) > TOLERANCE for one in told)
        bars.append(f"{'FAIL' if wrong else 'PASS'}: {title}: {wrong} logs usable, although off by more than 30 %")
    for name, logs in kept.items():
        ordinary, arms = (cells([log[kind] for log in logs]) for kind in ("ordinary", "arms"))
        lines.append(f"| {' | '.join([name, str(len(logs)), ordinary[0], *ordinary[3:], *arms])} |")
    return lines, bars


def cells(logs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the median error, interval and budget, how many of these hold, and the words."""
    told = [one for one in logs if "error" in one]
    words = [one.get("word", "refused") for one in logs]
    spelt = ", ".join(f"{word} {words.count(word)}" for word in dict.fromkeys(words))
    if not told:
        return ["", "", "", "", "", spelt]
    error, interval, up, down = (np.median([one[name] for one in told]) for name in ("error", "interval", "up", "down"))
    held = [str(sum(map(holds, told))) for holds in HOLDS.values()]
    budget = f"−{-100 * np.expm1(-down):.0f} to +{100 * np.expm1(up):.0f} %"
    return [f"{100 * np.expm1(error):+.0f} %", f"±{100 * np.expm1(interval):.0f} %", held[0], budget, held[1], spelt]


if __name__ == "__main__":
    many_logs.main("instruments", __doc__, dict.fromkeys(WORLDS, LOGS), measure, table)
