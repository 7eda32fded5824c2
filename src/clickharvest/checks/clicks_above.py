"""Do clicks above change clicks below?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.base import Check
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL, Finding

Array = NDArray[np.float64]
ROUGH, FARTHEST = 2.0, 3.0
"""Standard error of log ρ beyond which the effect is unknown, and the largest |log ρ| believed without users."""
LEAST_RELIABLE = 0.1
"""Reliability of s below which the effect is unknown."""
UNKNOWN = 0.1
"""Standard error of the share of users that are left beyond which, without users, only a clear effect is reported."""
LEAST_LEFT = 0.02
"""Share of users that are thought to be left at the end of a page at the least."""


class ClicksAbove(Check):
    """The same result at the same place, below a click and below none.

    Users who click above click more anywhere; a click above on the *next* page of the same user shows how much. So the
    effect of a click above is log ρ, that of this page less that of the next. If each click above ends the page with
    the chance 1 − ρ, the share of users that are left at k is 1 − (1 − ρ) E[clicks above k], the mean being over pages
    weighted by the clicks of their users' next page, as those who click much are those who leave. Where ρ > 1, no
    effect is counted: unequal intent of pages looks like that, too. Without users, ρ comes from how many clicks the
    results above attract on other pages.
    """

    kind = "clicks above"
    question = "Do users stop once they have clicked?"
    assumption = "clicks above do not change clicks below"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        d = evidence.displays
        if d.page is None or d.counted:
            return self.untested("page")
        above, n_pages = _above(evidence, d.clicks), int(d.page.max(initial=-1)) + 1
        weight, other = np.ones(len(d)), np.full(len(d), -1)
        if d.user is not None:
            other = _other_page(evidence, n_pages)[d.page]
            weight = np.where(other >= 0, np.bincount(d.page, d.clicks, n_pages)[other], 0.0)
        code = evidence.kind * len(evidence.positions) + evidence.place
        shape = (int(evidence.kind.max(initial=0)) + 1, len(evidence.positions))
        sums = [np.bincount(code, column, shape[0] * shape[1]).reshape(shape) for column in (weight * above, weight)]
        mean = np.divide(sums[0], sums[1], out=np.zeros(shape), where=sums[1] > 0)
        if d.user is None:
            slope, error = attraction_above(evidence)
            if slope > -NORMAL * error and not error * mean.max() < UNKNOWN:
                return self.untested("user")
            left = max(1 + slope, np.exp(-FARTHEST))
            log_ratio, error = float(np.log(left)), error / left
        else:
            log_ratio, error = _from_clicks(evidence, above > 0, other)
            if not weight.sum() or not error < ROUGH:
                return self.unanswered("hardly a click is below another one")

        def lost(log_ratio: float) -> Array:
            left = 1 - mean * -np.expm1(min(log_ratio, 0.0))
            whole = -np.log(np.maximum(left, LEAST_LEFT))
            return np.asarray(whole - whole[:, [evidence.anchor]])

        effect = lost(log_ratio)
        return self.found(
            effect,
            np.abs(lost(log_ratio - NORMAL * error) - effect) / NORMAL,
            "Clicks above do not change clicks below.",
            "A click above makes a click below less likely, and the curve too steep by up to {size}.",
            "users stop once served: compare with --model browsing",
        )


def _from_clicks(evidence: Evidence, below_click: NDArray[np.bool_], other: NDArray[np.int64]) -> tuple[float, float]:
    """Return log ρ and its standard error, from clicks above on a page and on the same user's next page, [n]."""
    d = evidence.displays
    assert d.page is not None
    first = np.full(int(d.page.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    clicked = d.clicks > 0
    np.minimum.at(first, d.page[clicked], d.position[clicked])
    rows = np.flatnonzero(other >= 0)
    below_next = (other >= 0) & (d.position > first[other])
    x = np.stack([below_click, below_next], axis=1).astype(np.float64)
    fit = evidence.stays(below_click + 2 * below_next, x, rows)
    sides = np.array([1.0, -1.0])
    return float(sides @ fit.theta), float(np.sqrt(sides @ fit.covariance @ sides))


def attraction_above(evidence: Evidence) -> tuple[float, float]:
    """Return −(1 − ρ) and its standard error, from how many clicks the results above attract on other pages.

    Pages are dealt into thirds. Two of them tell how often a result is clicked where it is examined, and so what is
    expected above a row of the third, s. Clicks below fall as 1 − (1 − ρ) s, for any user. The correlation of
    both thirds' s is its reliability, by which the slope is too flat.
    """
    d = evidence.displays
    assert d.page is not None
    part = evidence.random(ClicksAbove.kind).integers(3, size=int(d.page.max(initial=0)) + 1)[d.page]
    n_units, examined = int(d.unit.max(initial=-1)) + 1, np.exp(evidence.log_p)
    code = d.unit * 3 + part
    clicks, seen = (np.bincount(code, column, 3 * n_units) for column in (d.clicks, d.shown * examined))
    rate = (clicks + 1) / (seen + max(seen.sum(), 1.0) / max(clicks.sum(), 1.0))
    stratum = evidence.same_place * 3 + part
    others = [_above(evidence, examined * rate[d.unit * 3 + (part + 1 + i) % 3]) for i in range(2)]
    expected = (others[0] + others[1]) / 2
    apart = [column - _means(stratum, column)[stratum] for column in (*others, expected)]
    reliability = float(apart[0] @ apart[1]) / max(float(apart[2] @ apart[2]), 1e-12)
    if reliability < LEAST_RELIABLE:
        return 0.0, np.inf
    rows = np.arange(len(d))
    fit = evidence.fit(rows, stratum, rows, expected[:, None], beside_model=False)
    return float(fit.theta[0]) / reliability, float(np.sqrt(fit.covariance[0, 0])) / reliability


def _means(group: NDArray[np.int64], values: Array) -> Array:
    return np.bincount(group, values) / np.maximum(np.bincount(group), 1)


def _above(evidence: Evidence, values: Array) -> Array:
    """Return the sum of values above each row on its page, [n]."""
    d = evidence.displays
    assert d.page is not None
    order = np.lexsort((d.position, d.page))
    page, own = d.page[order], values[order]
    before = np.cumsum(own) - own
    starts = np.flatnonzero(np.append(True, page[1:] != page[:-1]))
    found = np.empty(len(order))
    found[order] = before - np.repeat(before[starts], np.diff(starts, append=len(order)))
    return found


def _other_page(evidence: Evidence, n_pages: int) -> NDArray[np.int64]:
    """Return the next page of the same user, of the last page the one before, −1 of single ones, [pages]."""
    d = evidence.displays
    assert d.user is not None
    assert d.page is not None
    user, when = np.full(n_pages, -1, dtype=np.int64), np.arange(n_pages)
    user[d.page] = d.user
    if d.time is not None:
        when[d.page] = d.time
    order = np.lexsort((when, user))
    of = user[order]
    next_one, last_one = np.roll(order, -1), np.roll(order, 1)
    follows = np.append(of[1:] == of[:-1], False)
    found = np.full(n_pages, -1, dtype=np.int64)
    found[order] = np.where(follows, next_one, np.where(np.roll(follows, 1), last_one, -1))
    found[user < 0] = -1
    return found
