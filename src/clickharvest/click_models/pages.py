"""Models of pages from arrays of displays, without an engine: for simulated logs, and where there is nothing but NumPy.

What is made here is what the models make of the rows of a log inside an engine (browsing states, places of readers, the
test of clicks above); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.attraction import GRID, display_terms, learn_weights
from clickharvest.click_models.browsing import Browsing
from clickharvest.click_models.choosing import ModelChoice, by_states, choose_click_model, made_choice
from clickharvest.click_models.reading import SERVED, SKIPPED, Reading, ReadInterventions
from clickharvest.click_models.registry import EXAMINATION
from clickharvest.diagnosis.cascade import tell_clicks_above
from clickharvest.diagnosis.findings import Finding
from clickharvest.errors import InputError
from clickharvest.estimation.browsing import compare_within_ranks
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.reading import COLUMNS
from clickharvest.positions.places import Places
from clickharvest.positions.states import number_of
from clickharvest.weights.scoring import lenders

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pages:
    """All displays of a log, n of K positions.

    Attributes:
        query: number of the query of each, from 0, [n].
        doc: number of the query and document that was shown, from 0, −1 for nothing, [n, K].
        clicked: whether it was clicked, [n, K].
        half: one of two halves that each page is in, at random, [n].
    """

    query: Integers
    doc: Integers
    clicked: Flags
    half: Flags

    @property
    def shown(self) -> Flags:
        """Whether there is a result, [n, K]."""
        found: Flags = self.doc >= 0
        return found

    @property
    def last(self) -> Integers:
        """The position of the last click above, 0 for none, [n, K]."""
        rank = np.arange(1, self.doc.shape[1] + 1)
        upto = np.maximum.accumulate(np.where(self.clicked, rank, 0), axis=1)
        return np.concatenate([np.zeros_like(upto[:, :1]), upto[:, :-1]], axis=1)

    @property
    def state(self) -> Integers:
        """The number of the browsing state, [n, K]."""
        return number_of(np.arange(1, self.doc.shape[1] + 1), self.last)


def page_propensities(pages: Pages, model: str, contexts: Mapping[str, Array] | None = None, *, seed: int = 0) -> Array:
    """Fit a model of pages, and return the propensity of every display as `weigh` would give it to its row, [n, K].

    Args:
        pages: the displays.
        model: `browsing` or `reading`.
        contexts: context columns, by query.
        seed: seed of the fit.

    Example:
        Half of the users look at position 2, whatever they have clicked.

        >>> random = np.random.default_rng(0)
        >>> doc = np.where(random.random((4000, 1)) < 0.5, [[0, 1]], [[1, 0]]) + 2 * np.arange(4000)[:, None] % 100
        >>> clicked = random.random((4000, 2)) < [0.5, 0.25]
        >>> pages = Pages(doc[:, 0] // 2, doc, clicked, random.random(4000) < 0.5)
        >>> page_propensities(pages, "browsing")[:, 1].mean().round(1)
        np.float64(0.5)
    """
    if model not in ("browsing", "reading"):
        raise InputError(f"no model of pages {model!r}: expected browsing or reading")
    known = dict(contexts or {})
    base = Browsing(intervals=None, seed=seed).fit(interventions_at(pages, pages.state, known))
    by_state = base.predict(known or None).propensity
    row = pages.query[:, None] if known else np.zeros((len(pages.query), 1), np.int64)
    found: Array = by_state[row, np.minimum(pages.state, by_state.shape[1]) - 1]
    if model == "browsing":
        return found
    number, places = reading_places(pages, found)
    at = interventions_at(pages, number, known, places)
    told = ReadInterventions(**{one.name: getattr(at, one.name) for one in fields(at)}, base=base)
    fitted = Reading(intervals=None, seed=seed).fit(told).places_model
    by_place = fitted.predict(known or None)
    column = np.searchsorted(by_place.positions, fitted.curve.positions)[lenders(fitted, places)]
    read: Array = by_place.propensity[row, column[number - 1]]
    return read


def choose_for_pages(pages: Pages, interventions: Interventions, *, seed: int = 0) -> ModelChoice:
    """Choose between examination, browsing, reading and affine, as `choose_click_model` does for a log.

    Args:
        pages: the displays.
        interventions: the same by position, units without a click included.
        seed: seed of the folds.
    """
    gain = compare_within_ranks(interventions_at(pages, pages.state, {}), seed=seed)
    chosen, why = by_states(gain, lambda: [clicks_above(pages)])
    if chosen != EXAMINATION:
        return made_choice(chosen, [why])
    other = choose_click_model(interventions, seed=seed)
    return made_choice(other.model, [why, other.why[-1]])


def interventions_at(
    pages: Pages, place: Integers, contexts: Mapping[str, Array], places: Places | None = None
) -> Interventions:
    """Return the clicked units that were met at two places or more, one row per unit and place.

    Args:
        pages: the displays.
        place: number of the place of each result, from 1, [n, K].
        contexts: context columns, by query.
        places: what the numbers stand for, where they are no browsing states.
    """
    shown = pages.shown
    most = int(place.max()) + 1
    key, first, cell = np.unique(pages.doc[shown] * most + place[shown], return_index=True, return_inverse=True)
    clicks = np.bincount(cell, pages.clicked[shown]).astype(np.int64)
    _, unit = np.unique(key // most, return_inverse=True)
    kept = (np.bincount(unit)[unit] >= 2) & (np.bincount(unit, clicks)[unit] > 0)
    query = np.broadcast_to(pages.query[:, None], shown.shape)[shown][first][kept]
    impressions = np.bincount(cell)[kept].astype(np.int64)
    return Interventions(
        unit=np.unique(unit[kept], return_inverse=True)[1].astype(np.int64),
        query=query,
        position=(key % most)[kept],
        exposure=impressions.astype(np.float64),
        clicks=clicks[kept],
        impressions=impressions,
        contexts={name: column[query] for name, column in contexts.items()},
        places=places,
    )


def reading_places(pages: Pages, propensity: Array) -> tuple[Integers, Places]:
    """Return the number of the place of a reader of every result, [n, K], and what the numbers stand for.

    Args:
        pages: the displays.
        propensity: that of the browsing state of each, [n, K].
    """
    shown, positions = pages.shown, pages.doc.shape[1]
    attraction = _attraction(pages, propensity)
    skipped, served = np.empty(pages.doc.shape), np.empty(pages.doc.shape, np.int64)
    passed, attracted = np.ones(len(pages.doc)), np.zeros(len(pages.doc))
    for k in range(positions):
        skipped[:, k] = passed
        served[:, k] = np.where(attracted > 0, 1 + np.searchsorted(SERVED, attracted, side="right"), 0)
        here = pages.clicked[:, k]
        passed = np.where(here, 1.0, passed * (1 - attraction[:, k]))
        attracted = np.where(here, attraction[:, k], attracted)
    rank = np.broadcast_to(np.arange(1, positions + 1), pages.doc.shape)
    distance = np.where(pages.last > 0, rank - pages.last, 0)
    steps = sum((skipped < edge - 1e-9).astype(np.int64) for edge in SKIPPED)
    labels = np.stack([rank[shown], distance[shown], np.asarray(steps)[shown], served[shown]], axis=1)
    distinct, number = np.unique(labels, axis=0, return_inverse=True)
    found = np.ones(pages.doc.shape, np.int64)
    found[shown] = number.ravel() + 1
    return found, Places(COLUMNS, tuple(tuple(int(value) for value in label) for label in distinct))


def clicks_above(pages: Pages) -> Finding:
    """Return the test of `diagnosis.cascade`, from the displays; a query has one context, which changes nothing."""
    shown, positions = pages.shown, pages.doc.shape[1]
    rate = np.broadcast_to(pages.clicked.sum(axis=0) / np.maximum(shown.sum(axis=0), 1), shown.shape)
    clicks, seen = (_by_half(pages, values) for values in (pages.clicked.astype(np.float64), np.array(rate)))
    attraction = ((clicks + 1) / (seen + 1))[1 - pages.half[:, None].astype(int), pages.doc]
    expected = np.where(shown, rate * attraction, 0.0)
    above = (np.cumsum(expected, axis=1) - expected)[shown]
    rank = np.broadcast_to(np.arange(positions), shown.shape)
    half = np.broadcast_to(pages.half[:, None], shown.shape)
    stratum = (pages.doc[shown] * positions + rank[shown]) * 2 + half[shown]
    _, first, cell = np.unique(stratum, return_index=True, return_inverse=True)
    clicked = pages.clicked[shown].astype(np.float64)
    n, s, ss, y, sy = (np.bincount(cell, w) for w in (np.ones_like(above), above, above**2, clicked, above * clicked))
    some = (y > 0) & (y < n)
    query = np.broadcast_to(pages.query[:, None], shown.shape)[shown][first][some]
    n, s, ss, y, sy = (values[some] for values in (n, s, ss, y, sy))
    spread = np.maximum(ss - s * s / n, 0.0)
    parts = (sy - s * y / n, spread * (y - y * y / n) / (n - 1), spread * y / n)
    score, variance, weight = (np.bincount(query, part) for part in parts)
    return tell_clicks_above(
        float(score.sum()), float(variance.sum()), float(weight.sum()), float((score**2).sum()),
        float((score * variance).sum()), float((variance**2).sum()),
    )  # fmt: skip


def _attraction(pages: Pages, propensity: Array) -> Array:
    """Return the attraction of every result, told by the other displays of its document, 0 without a result, [n, K]."""
    shown = pages.shown
    doc, clicked, looked = pages.doc[shown], pages.clicked[shown], propensity[shown]
    docs = int(doc.max()) + 1
    sums = [np.bincount(doc, display_terms(clicked, looked, r), docs) for r in GRID]
    whole = np.stack(sums, axis=1).astype(np.float64)
    whole += np.log(learn_weights(whole[np.bincount(doc, minlength=docs) > 0]))
    whole -= whole.max(axis=1, keepdims=True)
    total, mean = np.zeros(len(doc)), np.zeros(len(doc))
    for i, r in enumerate(GRID):
        others = np.exp(whole[doc, i] - display_terms(clicked, looked, r))
        total += others
        mean += r * others
    found = np.zeros(shown.shape)
    found[shown] = mean / total
    return found


def _by_half(pages: Pages, values: Array) -> Array:
    """Return the sums of values over the displays of every document in each half, [2, n_docs]."""
    shown = pages.shown
    docs = int(pages.doc.max()) + 1
    half = np.broadcast_to(pages.half[:, None], shown.shape)[shown]
    found = np.bincount(pages.doc[shown] + docs * half, values[shown], 2 * docs)
    return np.asarray(found, np.float64).reshape(2, docs)
