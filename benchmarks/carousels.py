"""What do checks see of carousels in which clicks are not examination times relevance?

    .venv/bin/python benchmarks/carousels.py [--seeds 3]  # prints the table of benchmarks/README.md, in three minutes

Screens have four rows of ten films, five of them in sight and five behind a swipe; three rankers order the rows of a
screen and the films of a row. Row r is looked at with probability r^−.5, its cell c in sight with c^−.3 of that, and
those behind the swipe if the row is swiped.

| world | what differs |
|---|---|
| sound | nothing: three rows in ten are swiped, whatever they hold; who looks at a film clicks by its relevance |
| eager | the same looks, but those who swiped click half as often again |
| interest | who likes a row (three in ten) swipes it; others do not, and click a third as often |
| taste | the same, and which genres are liked depends on the audience |
| search | a row is swiped if nothing in sight of it was clicked |

Of the places behind the swipe, relative to the first place: by how much the estimate exceeds the share of looks; how
far it is from what these places do to clicks, on average and in the row of one click, as fractions. Beside them the
number of `check_fit` for all places, and in how many of the logs which effects are warned of.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clickharvest import PBM, check_fit, harvest, read_log

Array = NDArray[Any]
WORLDS = ("sound", "eager", "interest", "taste", "search")
PAGES, AUDIENCES, GENRES, FILMS, ROWS, CELLS, SEEN = 20_000, 150, 6, 13, 4, 10, 5
SWIPED, UNMOVED, EAGER = 0.3, 1 / 3, 1.5
"""Share of rows that are swiped; clicks of those who do not like a row; clicks of the eager, both relative."""


@dataclass
class Carousels:
    """A simulated log, and its truth.

    Attributes:
        log: the log.
        clicks: clicks, [pages, rows, cells].
        looks: share of pages on which a place was looked at, [rows, cells].
        first: clicks per relevance of the films of a row, were they at the first place, [pages, rows].
        behind: the same behind the swipe, where they are, [pages, rows].
    """

    log: pa.Table
    clicks: Array
    looks: Array
    first: Array
    behind: Array


def simulate(world: str, seed: int) -> Carousels:
    """Return a log of one of the worlds."""
    random = np.random.default_rng(seed)
    relevance = random.beta(1, 4, (AUDIENCES, GENRES, FILMS))
    liked = np.full((AUDIENCES, GENRES), SWIPED)
    if world == "taste":
        liked = random.beta(SWIPED * 2, (1 - SWIPED) * 2, liked.shape)
    rows = np.argsort(-(liked + random.normal(0, 0.3, (3, AUDIENCES, GENRES))), axis=2)[:, :, :ROWS]
    films = np.argsort(-(relevance + random.normal(0, 0.2, (3, *relevance.shape))), axis=3)[..., :CELLS]
    audience, ranker = random.integers(AUDIENCES, size=PAGES), random.integers(3, size=PAGES)
    genre = rows[ranker, audience]
    film = films[ranker[:, None], audience[:, None], genre]
    wanted = relevance[audience[:, None, None], genre[:, :, None], film]
    row, cell = np.arange(1, ROWS + 1), np.arange(1, CELLS + 1)
    begins, reach = row**-0.5, np.where(cell <= SEEN, cell**-0.3, 1.0)
    chance = liked[audience[:, None], genre]
    likes = random.random(genre.shape) < chance
    unmoved = UNMOVED if world in ("interest", "taste") else 1.0
    click = wanted * np.where(likes, 1.0, unmoved)[:, :, None]
    if world == "eager":
        click[:, :, SEEN:] *= EAGER
    looked = (random.random(genre.shape) < begins)[:, :, None] & (random.random(wanted.shape) < reach)
    clicks = looked & (random.random(wanted.shape) < click)
    swiped = likes
    if world == "search":
        chance = np.prod(1 - reach[:SEEN] * wanted[:, :, :SEEN], axis=2)
        swiped = ~clicks[:, :, :SEEN].any(axis=2)
    looked[:, :, SEEN:] &= swiped[:, :, None]
    clicks &= looked
    page, r, c = np.indices(clicks.shape).reshape(3, -1)
    doc = (audience[:, None, None] * GENRES + genre[:, :, None]) * FILMS + film
    user = random.integers(PAGES // 5, size=PAGES)
    names = {"page": page, "user": user[page], "query": audience[page], "ranker": ranker[page], "doc": doc.ravel()}
    log = pa.table(names | {"row": r + 1, "cell": c + 1, "click": clicks.ravel().astype(np.int8)})
    first = np.ones(genre.shape) if world == "search" else chance + (1 - chance) * unmoved
    behind = begins * chance * (EAGER if world == "eager" else 1.0)
    return Carousels(log, clicks, looked.mean(axis=0), first, behind)


def measure(world: str, seed: int, users: bool) -> dict[str, Any]:
    """Return what one log tells."""
    told = simulate(world, seed)
    log = read_log(told.log, place=("row", "cell"), page="page", ranker="ranker", user="user" if users else "")
    model = PBM(anchor=(1, 1)).fit(harvest(log))
    checked = check_fit(log, model.propensities_)
    estimate = np.log(model.predict().propensity[0].reshape(ROWS, CELLS)[:, SEEN:])
    looks = np.log(told.looks / told.looks[0, 0])[:, SEEN:]
    average = np.log(told.behind.sum(axis=0) / told.first.sum(axis=0))[:, None]
    single = np.abs(estimate - np.log(told.behind / told.first)[:, :, None])
    weight = told.clicks[:, :, SEEN:]
    return {
        "looks": np.exp(np.mean(estimate - looks)),
        "average": np.expm1(np.mean(np.abs(estimate - average))),
        "single": np.expm1(np.sum(weight * single) / weight.sum()),
        "off": checked.budget.off,
        "warned": [finding.kind for finding in checked.findings if finding.severity in ("warning", "decisive")],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--worlds", nargs="*", default=WORLDS, choices=WORLDS)
    parser.add_argument("--no-users", action="store_true", help="read logs as if users were not known")
    options = parser.parse_args()
    print("| world | estimate / looks | error, average | error, row of a click | number | warnings |")
    print("|---|--:|--:|--:|--:|---|")
    for world in options.worlds:
        logs = [measure(world, seed, not options.no_users) for seed in range(options.seeds)]
        sizes = [[log[name] for log in logs] for name in ("looks", "average", "single", "off")]
        cells = [f"{min(size):.2f} to {max(size):.2f}" for size in sizes]
        warned = Counter(kind for log in logs for kind in log["warned"])
        print(
            f"| {world} | {' | '.join(cells)} | {', '.join(f'{k} ({n})' for k, n in warned.items()) or 'none'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
