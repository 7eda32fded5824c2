"""Pairs: clicks at two positions of the same documents, which AllPairs rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.estimation.pair_names import WEIGHTINGS

if TYPE_CHECKING:
    from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

WEIGHTS: dict[str, Callable[[Array, Array], Array]] = dict(
    zip(
        WEIGHTINGS,
        (
            lambda shown, other: np.ones(len(shown)),
            np.minimum,
            lambda shown, other: shown * other / np.maximum(shown + other, 1),
        ),
        strict=True,
    )
)
"""ω of a unit and pair, from the impressions N and N' at k and k', by name."""


def one_of(names: Iterable[str]) -> str:
    """Return names as a choice.

    Example:
        >>> one_of(["a", "b", "c"])
        'a, b or c'
    """
    *others, last = names
    return f"{', '.join(others)} or {last}"


@dataclass(frozen=True, eq=False)
class PairRows:
    """Clicks of every query, context and pair of positions {k, k'} shown, k < k', by context; n rows.

    Attributes:
        context: the context, [n].
        cluster: the query, [n].
        position: numbers of k and k', [2, n].
        pair: a number of the pair, [n].
        clicked: ĉ at k and at k', [2, n].
        passed: ¬ĉ at both, [2, n].
    """

    context: Integers
    cluster: Integers
    position: Integers
    pair: Integers
    clicked: Array
    passed: Array

    def take(self, rows: Any) -> PairRows:
        """Return some rows, by a mask, numbers or a slice."""
        return PairRows(**{name: np.ascontiguousarray(values[..., rows]) for name, values in vars(self).items()})


def pair_rows(sample: Sample, weighting: str) -> PairRows:
    """Return the clicks at pairs of positions of a sample, weighted by ω / q, see `AllPairs`."""
    if sample.unit_kind == "query" and sample.x.shape[1]:
        raise InputError("AllPairs needs one context per unit: harvest with --unit context, or use clickshare")
    if sample.division is not None:
        raise InputError(
            f"AllPairs adds up the clicks of a query and cannot divide them by {sample.clustered_by}: harvest with "
            "--cluster query, or use clickshare"
        )
    if weighting not in WEIGHTINGS:
        raise InputError(f"no weighting {weighting!r}: expected {one_of(WEIGHTINGS)}")
    _, first, counts = np.unique(sample.unit, return_index=True, return_counts=True)
    partners = counts[sample.unit]
    row = np.repeat(np.arange(len(sample.unit)), partners)
    other = first[sample.unit[row]] + np.arange(len(row)) - np.repeat(np.cumsum(partners) - partners, partners)
    row, other = row[row != other], other[row != other]
    shown, shown_other = (sample.impressions[i].astype(np.float64) for i in (row, other))
    weight = WEIGHTS[weighting](shown, shown_other) / sample.exposure[row]
    here, there, clicks = sample.position[row], sample.position[other], sample.clicks[row]
    low, high = np.minimum(here, there), np.maximum(here, there)
    key = np.zeros(len(row), dtype=np.int64)
    for column in (sample.context[row], sample.cluster[row], low, high):
        key = key * (column.max(initial=0) + 1) + column
    _, first, code = np.unique(key, return_index=True, return_inverse=True)
    end, n = code + len(first) * (here > there), len(first)
    clicked, passed = (
        np.asarray(np.bincount(end, weight * values, 2 * n), np.float64).reshape(2, n)
        for values in (clicks, sample.impressions[row] - clicks)
    )
    rows = PairRows(
        context=sample.context[row[first]],
        cluster=sample.cluster[row[first]],
        position=np.stack([low[first], high[first]]),
        pair=low[first] * len(sample.positions) + high[first],
        clicked=clicked,
        passed=passed,
    )
    return rows.take((clicked + passed > 0).any(axis=0))  # by design a document may stand where it was never shown
