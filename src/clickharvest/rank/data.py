"""Ranking data: lists of documents with features, and clicks on some of them with their propensities.

A *list* holds the documents that compete for one query. All impressions of a query may share one list, or each
impression may have its own.

Different rankers show different documents. Where lists are shared, propensities are therefore *policy-aware*: with
E_d = Σ p_k(x) over the pages that showed document d, and n all pages of the query, `read_clicks` takes

    ρ_d = E_d / n      clicks / ρ_d = n · clicks / E_d

Affine clicks (`click_models.affine`) have E[C] = a_k c + b_k with c the click rate at the anchor. With E_d = Σ a_k and
B_d = Σ b_k over the pages that showed the document, C_d − B_d takes the place of C_d: its expectation is E_d c, and
that of (C_d − B_d) / ρ_d is n c. Documents without a click have this *shift* B, too, so that all documents that were
shown are records. Before an order is learned, lists are `grounded`, since the zero of C − B is unknown.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.rank.features import Array, Features, Index
from clickharvest.words import count


@dataclass(frozen=True, eq=False)
class RankingData:
    """Documents in lists and the clicks on them; make it with `ranking_data` or `read_clicks`.

    Attributes:
        features: document features, those of one list together, [n_docs, F].
        starts: where each list starts, and the end of the last, [n_lists + 1].
        clicked: rows of clicked documents, one per record; a row may have several records, [m]. With a shift, rows of
            all documents that were shown.
        propensity: propensity of each record's clicks, relative to the anchor position: ρ where lists are shared, [m].
        clicks: number of clicks of each record, [m].
        query: number of the query of each list; lists of one query are dependent, [n_lists].
        impressions: how often each list's query was shown, [n_lists], or None if unknown.
        exposure: E of every document, 0 where it was never shown, [n_docs], or None if unknown.
        shift: B of each record, which is subtracted from its affine clicks, [m]; None for 0.
        bounds: lower and upper bound of each record's propensity, [m] each; None where propensities are known.

    Example:
        >>> data = ranking_data([[0.0], [1.0], [2.0]], [0, 2, 3], clicked=[1, 1], propensity=[1.0, 0.25])
        >>> print(data)
        RankingData: 2 lists of 2 queries, 3 documents, 1 feature, 2 clicks
        >>> data.weights(clip=0.5).tolist()
        [1.0, 2.0]
    """

    features: Features
    starts: Index
    clicked: Index
    propensity: Array
    clicks: Array
    query: Index
    impressions: Array | None = None
    exposure: Array | None = None
    shift: Array | None = None
    bounds: tuple[Array, Array] | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __str__(self) -> str:
        n_docs, n_features = self.features.shape
        lists = f"{count(len(self), 'list')} of {count(self.n_queries, 'query', 'queries')}"
        docs = f"{count(n_docs, 'document')}, {count(n_features, 'feature')}"
        return f"RankingData: {lists}, {docs}, {count(round(self.clicks.sum()), 'click')}"

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(np.unique(self.query))

    @property
    def clicked_list(self) -> Index:
        """The list of each record, [m]."""
        return np.asarray(np.searchsorted(self.starts, self.clicked, side="right") - 1, np.int64)

    @property
    def clicks_by_document(self) -> Array:
        """Clicks of every document, [n_docs]."""
        return np.asarray(np.bincount(self.clicked, self.clicks, self.features.shape[0]), np.float64)

    @property
    def net_clicks(self) -> Array:
        """C − B of each record: its clicks less their shift, [m]."""
        return self.clicks if self.shift is None else self.clicks - self.shift

    @property
    def fingerprint(self) -> str:
        """SHA-256 of lists, features and clicks: which data a ranker was trained on."""
        digest = hashlib.sha256()
        for panel in self.features.panels():
            for array in (panel,) if isinstance(panel, np.ndarray) else (panel.data, panel.indices, panel.indptr):
                digest.update(np.ascontiguousarray(array).data)
        arrays = (self.starts, self.clicked, self.propensity, self.clicks, self.query)
        for array in arrays if self.shift is None else (*arrays, self.shift):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def weights(self, clip: float = 0.0) -> Array:
        """Return (clicks − shift) / max(propensity, clip) of each record, [m]."""
        return self.net_clicks / np.maximum(self.propensity, clip)


def ranking_data(
    features: Any,
    starts: ArrayLike,
    clicked: ArrayLike,
    propensity: ArrayLike | None = None,
    *,
    clicks: ArrayLike | None = None,
    query: ArrayLike | None = None,
    impressions: ArrayLike | None = None,
    exposure: ArrayLike | None = None,
    shift: ArrayLike | None = None,
) -> RankingData:
    """Make ranking data from arrays, checked.

    Args:
        features: document features, an array or SciPy sparse matrix; documents of one list together, [n_docs, F].
        starts: where each list starts, and the end of the last, [n_lists + 1].
        clicked: rows of clicked documents, [m].
        propensity: propensities of the clicks, 1 by default (which takes clicks at face value), [m].
        clicks: number of clicks of each record, 1 by default, [m].
        query: the query of each list, in any type; by default every list is a query of its own, [n_lists].
        impressions: how often each list's query was shown, [n_lists]; only `off_policy` with IPS needs it.
        exposure: E of every document, 0 where it was never shown, [n_docs]; learners with an offset need it.
        shift: Σ b_k over the displays of each record, which is subtracted from affine clicks, [m]; records are then of
            all documents that were shown, clicked or not.

    Raises:
        InputError: sizes do not fit, rows are out of range, or propensities are not positive numbers.
    """
    x = Features.of(features)
    bounds, rows = _whole(starts, "starts"), _whole(clicked, "clicked")
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != x.shape[0] or np.any(np.diff(bounds) < 0):
        raise InputError(f"starts must rise from 0 to the number of documents, {x.shape[0]:,}: found {_some(bounds)}")
    if rows.size and (rows.min() < 0 or rows.max() >= x.shape[0]):
        raise InputError(f"clicked must be rows from 0 to {x.shape[0] - 1:,}: found {rows.min():,} to {rows.max():,}")
    p = _numbers(np.ones(len(rows)) if propensity is None else propensity, len(rows), "propensity", "clicked")
    counts = _numbers(np.ones(len(rows)) if clicks is None else clicks, len(rows), "clicks", "clicked")
    if np.any(p <= 0):
        raise InputError(
            f"{count((p <= 0).sum(), 'propensity', 'propensities')} not above 0, such as {p[p <= 0][0]:g}: "
            "use propensities relative to the anchor, and drop clicks at positions without an estimate"
        )
    if np.any(counts < 0):
        raise InputError(f"clicks must not be negative: found {counts.min():g}")
    names = np.arange(len(bounds) - 1) if query is None else np.asarray(query)
    if names.shape != (len(bounds) - 1,):
        raise InputError(f"query has shape {names.shape}: expected one for each of the {len(bounds) - 1:,} lists")
    shown = None
    if impressions is not None:
        shown = _numbers(impressions, len(bounds) - 1, "impressions", "lists")
        if np.any(shown < 0):
            raise InputError(f"impressions must not be negative: found {shown.min():g}")
    numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
    seen = _exposures(exposure, x.shape[0], rows, counts)
    taken = None if shift is None else _numbers(shift, len(rows), "shift", "clicked")
    return RankingData(x, bounds, rows, p, counts, numbers, shown, seen, taken)


def grounded(weights: Array, starts: Index) -> Array:
    """Return weights of documents, [n_docs], less the smallest weight of their list.

    Affine clicks do not identify where relevance is 0, and few clicks may have a rate below 0. A constant of a list
    prefers no document to another, but pairwise losses need weights of 0 or more.

    Example:
        >>> grounded(np.array([2.0, -0.5, 1.0, 3.0]), np.array([0, 2, 4])).tolist()
        [2.5, 0.0, 0.0, 2.0]
    """
    sizes = np.diff(starts)
    some = sizes > 0
    least = np.zeros(len(sizes))
    least[some] = np.minimum.reduceat(weights, starts[:-1][some])
    return np.asarray(weights - np.repeat(least, sizes), np.float64)


def shown_documents(data: RankingData) -> RankingData:
    """Return the data without the documents that were never shown.

    Example:
        >>> data = ranking_data([[0.0], [1.0], [2.0]], [0, 2, 3], clicked=[1, 2], exposure=[0.0, 1.0, 0.5])
        >>> part = shown_documents(data)
        >>> part.starts.tolist(), part.clicked.tolist()
        ([0, 1, 2], [0, 1])
    """
    if data.exposure is None or data.exposure.all():
        return data
    shown = data.exposure > 0
    if not shown.any():
        raise InputError(f"all {len(shown):,} documents have exposure 0: give the exposure of those that were shown")
    before = np.concatenate([[0], np.cumsum(shown)])
    features = data.features.take(np.flatnonzero(shown))
    return replace(
        data, features=features, starts=before[data.starts], clicked=before[data.clicked], exposure=data.exposure[shown]
    )


def at_face_value(data: RankingData) -> RankingData:
    """Return the data as naive learners see them: propensities are 1, and every document that was shown was examined.

    Clicks have no shift.
    """
    exposure = data.exposure
    if exposure is not None:
        shown = np.ones(len(data)) if data.impressions is None else data.impressions
        exposure = np.where(exposure > 0, np.repeat(np.maximum(shown, 1.0), np.diff(data.starts)), 0.0)
    return replace(data, propensity=np.ones_like(data.propensity), exposure=exposure, shift=None, bounds=None)


def _exposures(exposure: ArrayLike | None, n_docs: int, clicked: Index, clicks: Array) -> Array | None:
    if exposure is None:
        return None
    array = _numbers(exposure, n_docs, "exposure", "documents")
    if np.any(array < 0):
        raise InputError(f"exposure must not be negative: found {array.min():g}")
    if hidden := int(np.count_nonzero((array[clicked] == 0) & (clicks > 0))):
        raise InputError(f"{count(hidden, 'record')} of clicks on documents with exposure 0: they were shown")
    return array


def _whole(values: ArrayLike, name: str) -> Index:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise InputError(f"{name} has type {array.dtype} and shape {array.shape}: expected a list of whole numbers")
    return array.astype(np.int64)


def _numbers(values: ArrayLike, size: int, name: str, of: str) -> Array:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not made of numbers: {error}") from error
    if array.shape != (size,):
        raise InputError(f"{name} has shape {array.shape}: expected {size:,} numbers, as many as {of}")
    if not np.isfinite(array).all():
        wrong = count((~np.isfinite(array)).sum(), "missing or infinite value")
        raise InputError(f"{name} holds {wrong}: expected finite numbers")
    return array


def _some(values: NDArray[Any]) -> str:
    return ", ".join(str(value) for value in values[:6]) + (" …" if len(values) > 6 else "")
