"""Do clicks above change clicks below?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL, Check, Finding
from clickharvest.checks.log_rows import Displays
from clickharvest.harvesting.numbering import distinct
from clickharvest.logs.log_facts import PagesOfSize, selected_pages

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
ROUGH, FARTHEST = 2.0, 3.0
"""Standard error of log ρ beyond which the effect is unknown, and the largest |log ρ| accepted without users."""
LEAST_RELIABLE = 0.1
"""Reliability of s below which the effect is unknown."""
UNKNOWN = 0.1
"""Standard error of the share of users left beyond which, without a user column, only a clear effect is reported."""
LEAST_LEFT = 0.02
"""Smallest share of users left at the end of a page; smaller, and the effect of few clicks grows without bound."""
LEAST_GAIN, STOPPED = 0.01, 0.9
"""Gain per held-out click from which on, and ratio of clicks below a click up to which, a click model is advised."""
ROWS_HELD_OUT = 200_000
"""Rows, about, of the held-out comparison; more take longer and see smaller gains."""
BROWSING = "clicks above change clicks below: clickharvest fit LOG --model browsing -o model.safetensors"


class ClicksAbove(Check):
    """The same result at the same place, below a click and below none.

    Users who click above click more anywhere; the effect of a click above on the *next* page of the same user shows how
    much. So log ρ is the effect of a click above on this page less that on the next. If each click above ends the page
    with probability 1 − ρ, the share of users left at k is 1 − (1 − ρ) E[clicks above k], the mean being over pages
    weighted by the clicks of their users' next page, as those who click much are those who leave. Where ρ > 1, no
    effect is counted: unequal intent of pages looks like that, too. Without users, ρ is that of this page where
    held-out clicks say that users stop (unequal zeal hides some of that), and else comes from how many clicks the
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
        if selected := selected_displays(d):
            return self.unanswered(f"{selected}, as where others are missing", "pages without a click")
        above, weight, other = _sum_above(evidence, d.clicks), np.ones(len(d)), np.full(len(d), -1)
        if d.user is not None:
            other = _other_page(evidence)[d.page]
            weight = np.where(other >= 0, np.bincount(d.page, d.clicks)[other], 0.0)
        code = evidence.kind * len(evidence.positions) + evidence.place
        shape = (int(evidence.kind.max(initial=0)) + 1, len(evidence.positions))
        total, weights = (
            np.bincount(code, own, shape[0] * shape[1]).reshape(shape) for own in (weight * above, weight)
        )
        mean = np.divide(total, weights, out=np.zeros(shape), where=weights > 0)
        gain = held_out_gain(evidence)
        stops = gain is not None and gain.is_clear and gain.times < STOPPED
        if d.user is None and gain is not None and stops:
            log_ratio, error = max(float(np.log(gain.times)), -FARTHEST), gain.error
        elif d.user is None:
            slope, error = attraction_above(evidence)
            if slope > -NORMAL * error and not error * mean.max() < UNKNOWN:
                return self.untested("user")
            left = max(1 + slope, np.exp(-FARTHEST))
            log_ratio, error = float(np.log(left)), error / left
        else:
            log_ratio, error = _ratio_to_other_page(evidence, above > 0, other)
            if not weight.sum() or not error < ROUGH:
                return self.unanswered("hardly a click is below another one")

        def lost(log_ratio: float) -> Array:
            left = 1 - mean * -np.expm1(min(log_ratio, 0.0))
            log_lost = -np.log(np.maximum(left, LEAST_LEFT))
            return np.asarray(log_lost - log_lost[:, [evidence.anchor]])

        effect = lost(log_ratio)
        finding = self.found(
            effect,
            np.abs(lost(log_ratio - NORMAL * error) - effect) / NORMAL,
            "Clicks above do not change clicks below.",
            "A click above makes a click below less likely, and the curve too steep by up to {size}.",
            BROWSING,
        )
        if finding.severity == "warning" or gain is None or not stops:
            return finding
        sentence = f"Below a click, a result gets {gain.times:.2f} times the clicks that it gets below none."
        return replace(finding, severity="warning", sentence=sentence, advice=BROWSING, details=gain.sentence)


def ratio_to_next_page(evidence: Evidence) -> tuple[float, float] | None:
    """Return log ρ and its standard error by the same users' next pages; None where these say nothing."""
    d = evidence.displays
    if d.user is None or d.page is None or d.counted:
        return None
    other = _other_page(evidence)[d.page]
    log_ratio, error = _ratio_to_other_page(evidence, _sum_above(evidence, d.clicks) > 0, other)
    return (log_ratio, error) if error < ROUGH else None


def _ratio_to_other_page(evidence: Evidence, below_click: NDArray[np.bool_], other: Integers) -> tuple[float, float]:
    """Return log ρ and its standard error, from clicks above on a page and on another one of its user, [n]."""
    d = evidence.displays
    assert d.page is not None
    first = np.full(int(d.page.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    clicked = d.clicks > 0
    np.minimum.at(first, d.page[clicked], d.position[clicked])
    rows = np.flatnonzero(other >= 0)
    below_other = (other >= 0) & (d.position > first[other])
    x = np.stack([below_click, below_other], axis=1).astype(np.float64)
    fit = evidence.stays(below_click + 2 * below_other, x, rows)
    sides = np.array([1.0, -1.0])
    return float(sides @ fit.theta), float(np.sqrt(sides @ fit.covariance @ sides))


def attraction_above(evidence: Evidence) -> tuple[float, float]:
    """Return −(1 − ρ) and its standard error, from how many clicks the results above attract on other pages.

    Pages are dealt into thirds. Two of them give the rate at which an examined result is clicked, and so the clicks
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
    others = [_sum_above(evidence, examined * rate[d.unit * 3 + (part + 1 + i) % 3]) for i in range(2)]
    expected = (others[0] + others[1]) / 2
    rows_of_stratum = np.maximum(np.bincount(stratum), 1)
    one, two, both = (own - (np.bincount(stratum, own) / rows_of_stratum)[stratum] for own in (*others, expected))
    reliability = float(one @ two) / max(float(both @ both), 1e-12)
    if reliability < LEAST_RELIABLE:
        return 0.0, np.inf
    rows = np.arange(len(d))
    fit = evidence.fit(rows, stratum, rows, expected[:, None], beside_model=False)
    return float(fit.theta[0]) / reliability, float(np.sqrt(fit.covariance[0, 0])) / reliability


def selected_displays(displays: Displays) -> str | None:
    """Return in words that the log seems to have only pages with a click; None where it has others."""
    assert displays.page is not None
    rows, clicks = (np.bincount(displays.page, column) for column in (displays.shown, displays.clicks))
    size = np.log2(np.maximum(rows, 1)).astype(np.int64)
    sums = [np.bincount(size, column) for column in (rows > 0, clicks > 0, clicks)]
    counts = enumerate(zip(*sums, strict=True))
    return selected_pages([PagesOfSize(i, *map(int, pages)) for i, pages in counts if pages[0]])


@dataclass(frozen=True)
class HeldOutGain:
    """How much better the last click above explains held-out clicks on a result at one position than displays alone.

    Attributes:
        gain: log likelihood per click, less that where clicks above say nothing.
        standard_error: of the gain, clustered by query.
        times: the click rate of a result below a click, relative to that at the same position below none.
        error: standard error of log `times`.
        clicks: held-out clicks on results that were seen below different clicks.
    """

    gain: float
    standard_error: float
    times: float
    error: float
    clicks: int

    @property
    def explains(self) -> bool:
        """Whether the gain is beyond its error."""
        return self.gain > NORMAL * self.standard_error

    @property
    def is_clear(self) -> bool:
        """Whether the gain is beyond its error, and large enough to matter."""
        return self.explains and self.gain > LEAST_GAIN

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        margin = NORMAL * self.standard_error
        size = f"{self.gain:.4f} per click ({self.gain - margin:.4f} to {self.gain + margin:.4f})"
        clearly = "explain" if self.explains else "do not clearly explain"
        return (
            f"Held-out queries: clicks above {clearly} clicks better than positions alone, by {size}; below a click, "
            f"a result gets {self.times:.2f} times the clicks."
        )


def held_out_gain(evidence: Evidence) -> HeldOutGain | None:
    """Return how much better the last click above explains held-out clicks; None where none can tell.

    Clicks of a result at one position and in one context fall as displays times exp(c + t log d), d positions below the
    last click, and as displays alone below none: c and t from one half of the queries explain the other. Queries that
    are read to different depths have more or fewer clicks above, and change nothing. Users who click much have clicked
    above, too: they look like users who read on (`times` > 1), and hide some of those who stop.
    """
    d = evidence.displays
    if d.page is None or d.counted or evidence.model.places is not None:
        return None
    last = _last_click(evidence)
    stratum, query = distinct(evidence.same_place, evidence.context)[1], evidence.query
    random = evidence.random("held-out clicks")
    n_queries = int(query.max(initial=-1)) + 1
    drawn = random.random(n_queries) < ROWS_HELD_OUT / max(len(d), 1)
    some = np.arange(len(d)) if len(d) <= ROWS_HELD_OUT else np.flatnonzero(drawn[query])
    distance = np.where(last[some] > 0, d.position[some] - last[some], 0)
    _, stratum = distinct(stratum[some])
    n_strata = int(stratum.max(initial=-1)) + 1
    closest, farthest = np.full(n_strata, np.iinfo(np.int64).max), np.zeros(n_strata, dtype=np.int64)
    np.minimum.at(closest, stratum, distance)
    np.maximum.at(farthest, stratum, distance)
    use = ((closest < farthest) & (np.bincount(stratum, d.clicks[some], n_strata) > 0))[stratum]
    some, stratum, distance = some[use], stratum[use], distance[use]
    clicks, shown, half = d.clicks[some], d.shown[some], random.integers(2, size=n_queries)[query[some]]
    below = distance > 0
    if not min(clicks[below & (half == i)].sum() for i in range(2)):
        return None
    x = np.stack([below, np.log(np.maximum(distance, 1))], axis=1).astype(np.float64)
    cell, gain_of_query = distinct(stratum, distance)[1], np.zeros(n_queries)
    average = (x * (shown * below)[:, None]).sum(axis=0) / shown[below].sum()
    logs, variances = [], []
    for i in range(2):
        train, test = np.flatnonzero(half != i), np.flatnonzero(half == i)
        fit = evidence.fit(some[train], stratum[train], cell[train], x[train], beside_model=False)
        logit = x[test] @ fit.theta
        weighted, plain = (
            np.bincount(stratum[test], column, n_strata) for column in (shown[test] * np.exp(logit), shown[test])
        )
        mean = np.log(weighted / np.maximum(plain, 1e-12), where=plain > 0, out=np.zeros(n_strata))
        gain_of_query += np.bincount(query[some[test]], clicks[test] * (logit - mean[stratum[test]]), n_queries)
        logs.append(float(average @ fit.theta))
        variances.append(float(average @ fit.covariance @ average))
    clicks_of_query = np.bincount(query[some], clicks, n_queries)
    n_clicks = clicks_of_query.sum()
    gain = float(gain_of_query.sum() / n_clicks)
    error = float(np.sqrt(((gain_of_query - gain * clicks_of_query) ** 2).sum()) / n_clicks)
    return HeldOutGain(gain, error, float(np.exp(np.mean(logs))), float(np.sqrt(np.sum(variances)) / 2), int(n_clicks))


def _sum_above(evidence: Evidence, values: Array) -> Array:
    """Return the sum of values above each row on its page, [n]."""
    order, starts = evidence.down_the_pages
    before = np.cumsum(values[order]) - values[order]
    above = np.empty(len(order))
    above[order] = before - before[starts]
    return above


def _last_click(evidence: Evidence) -> Integers:
    """Return the position of the last click above each row on its page, 0 where there is none, [n]."""
    d, (order, starts) = evidence.displays, evidence.down_the_pages
    clicked = np.where(d.clicks[order] > 0, np.arange(len(order)), -1)
    latest = np.append(-1, np.maximum.accumulate(clicked)[:-1])
    above = np.empty(len(order), dtype=np.int64)
    above[order] = np.where(latest >= starts, d.position[order][latest], 0)
    return above


def _other_page(evidence: Evidence) -> Integers:
    """Return the next page of the same user, of the last page the one before, −1 of single ones, [pages]."""
    d = evidence.displays
    assert d.user is not None
    assert d.page is not None
    n_pages = int(d.page.max(initial=-1)) + 1
    user, when = np.full(n_pages, -1, dtype=np.int64), np.arange(n_pages)
    user[d.page] = d.user
    if d.time is not None:
        when[d.page] = d.time
    order = np.lexsort((when, user))
    has_next = np.append(user[order][1:] == user[order][:-1], False)
    previous = np.where(np.roll(has_next, 1), np.roll(order, 1), -1)
    other = np.empty(n_pages, dtype=np.int64)
    other[order] = np.where(has_next, np.roll(order, -1), previous)
    other[user < 0] = -1
    return other
