"""The worlds that `budget` is judged on: no check was changed after one of them was looked at.

As in `budget_worlds`, whose worlds the checks were developed on, each has one thing wrong, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from budget_worlds import (
    K,
    Pages,
    cascade,
    clicked_by,
    feedback,
    hidden_device,
    make,
    mean_truth,
    power,
)

LATE = np.arange(K) >= 7


def no_context(pages: Pages) -> Pages:
    """All users have one device, and the log has no context."""
    pages.context, pages.drop, pages.asked, pages.truth = (), ("device",), {}, pages.truth[:1]
    return pages.draw()


def unknown_users(pages: Pages) -> Pages:
    """Half of the pages are those of users who are not known."""
    known = pages.random.random(int(pages.user.max()) + 1) < 0.5
    pages.columns = {"user": np.where(known[pages.user], pages.user.astype(object), None)}
    return pages.draw()


def trusted_top(pages: Pages) -> Pages:
    """Users click results that they do not want at the first three positions."""
    pages.appeal = pages.appeal + (1 - pages.appeal) * 0.2 * (np.arange(K) < 3)
    return pages.draw()


def cascade_on_phones(pages: Pages) -> Pages:
    """Users of phones leave after a click."""
    pages.draw()
    others = pages.clicks.copy()
    left = cascade(pages, 0.9).clicks
    pages.clicks = np.where((pages.device == 1)[:, None], left, others)
    return pages


def first_click(pages: Pages) -> Pages:
    """The log keeps the first click of a page."""
    pages.draw()
    pages.clicks &= np.cumsum(pages.clicks, axis=1) == 1
    return pages


def filtered_arm(pages: Pages) -> Pages:
    """Positions of one ranker were logged before a filter removed results."""
    pages.draw()
    removed = (pages.random.random(pages.shown.shape) < 0.3) & (pages.ranker == 1)[:, None]
    seen = np.maximum(np.cumsum(~removed, axis=1) - 1, 0)
    pages.examined = np.take_along_axis(pages.examined, seen, axis=1)
    pages.clicks = (pages.random.random(removed.shape) < pages.examined * pages.appeal) & ~removed
    pages.kept = ~removed
    return pages


def shuffled_arm(pages: Pages) -> Pages:
    """Half of the pages of one ranker were shuffled after their positions were logged."""
    pages.draw()
    wrong = (pages.random.random(len(pages.query)) < 0.5) & (pages.ranker == 1)
    straight = np.tile(np.arange(1, K + 1), (len(pages.query), 1))
    pages.position = np.where(wrong[:, None], pages.random.permuted(straight, axis=1), straight)
    return pages


def lost_at_the_end(pages: Pages) -> Pages:
    """Seven of ten clicks from position 8 on are lost."""
    pages.draw()
    pages.clicks &= ~LATE | (pages.random.random(pages.clicks.shape) < 0.3)
    return pages


def cut_on_phones(pages: Pages) -> Pages:
    """Phones log only rows that were on the screen."""
    depth = pages.random.geometric(0.2, len(pages.query))
    seen = (np.arange(K) < depth[:, None] + 1) | (pages.device == 0)[:, None]
    pages.examined, pages.kept = pages.examined * seen, seen
    return mean_truth(pages).draw()


def logged_again(pages: Pages) -> Pages:
    """Pages with two clicks or more are logged twice, under two names."""
    pages.draw()
    twice = np.flatnonzero(pages.clicks.sum(axis=1) >= 2)
    for name in ("query", "user", "ranker", "device", "time", "shown", "clicks", "appeal", "examined"):
        own = getattr(pages, name)
        setattr(pages, name, np.concatenate([own, own[twice]]))
    return pages


def covered_arm(pages: Pages) -> Pages:
    """A banner covers the first two results on the pages of one ranker; the truth is the mean."""
    pages.examined = pages.examined * np.where((pages.ranker == 0)[:, None] & (np.arange(K) < 2), 0.4, 1)
    return mean_truth(pages).draw()


def clicked_by_prefetch(pages: Pages) -> Pages:
    """Browsers of four of a hundred users open the first three results in advance."""
    return clicked_by(pages, 0.04, np.where(np.arange(K) < 3, 0.8, 0.0))


def promoted(pages: Pages) -> Pages:
    """The second result has a badge that makes users want it; clicks are taken for those of its position."""
    pages.appeal = np.minimum(pages.appeal * np.where(np.arange(K) == 1, 1.6, 1.0), 1.0)
    return pages.draw()


SOUND: dict[str, Callable[[int], Pages]] = {
    "mild decline": lambda s: make(s, 100_000, curve=power(0.3, 0.5)).draw(),
    "five rankers, steep": lambda s: make(s, 150_000, rankers=5, curve=power(1.2, 1.2)).draw(),
    "even traffic of 3,000 queries": lambda s: make(s, 100_000, queries=3_000, zipf=0.3).draw(),
    "a heavy head": lambda s: make(s, 100_000, zipf=1.3).draw(),
    "rankers that hardly differ": lambda s: make(s, 100_000, noise=0.08).draw(),
    "no context": lambda s: no_context(make(s, 100_000, single=True)),
    "few users make most clicks": lambda s: make(s, 100_000, zeal=1.2).draw(),
    "eight positions, a small arm": lambda s: make(
        s, 100_000, rankers=2, share=np.array([0.85, 0.15]), curve=power(0.7, 1.4, 8), wide=8
    ).draw(),
    "half of the users unknown": lambda s: unknown_users(make(s, 100_000)),
    "a million pages of five": lambda s: make(s, 1_000_000, curve=power(0.9, 1.2, 5), wide=5).draw(),
}
BIASED: dict[str, Callable[[int], Pages]] = {
    "trust at the top": lambda s: trusted_top(make(s, 60_000)),
    "cascade on phones": lambda s: cascade_on_phones(make(s, 60_000)),
    "first click only": lambda s: first_click(make(s, 60_000)),
    "two rankers that know users a little": lambda s: make(s, 80_000, rankers=2, taste=0.6, known=0.3).draw(),
    "slow feedback": lambda s: feedback(s, 80_000, 20),
    "a season that rankers follow": lambda s: make(s, 80_000, change=0.6, follow=True, noise=0.15).draw(),
    "a filter in one arm": lambda s: filtered_arm(make(s, 60_000)),
    "one arm shuffled late": lambda s: shuffled_arm(make(s, 60_000)),
    "clicks lost at the end": lambda s: lost_at_the_end(make(s, 60_000)),
    "phones log what was on the screen": lambda s: cut_on_phones(make(s, 60_000)),
    "busy pages logged again": lambda s: logged_again(make(s, 60_000)),
    "a banner over one arm": lambda s: covered_arm(make(s, 60_000)),
    "prefetched results": lambda s: clicked_by_prefetch(make(s, 60_000)),
    "a badge on the second result": lambda s: promoted(make(s, 60_000)),
    "hidden device, many pages": lambda s: hidden_device(s, 150_000),
}
