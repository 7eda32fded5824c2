"""Pairs: clicks at two positions of the same documents, which AllPairs rests on. NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.estimation.pair_names import WEIGHTINGS

if TYPE_CHECKING:
    from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]

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


def pair_entries(sample: Sample, weighting: str) -> dict[str, Any]:
    """Return ĉ (`clicked`) and ¬ĉ (`passed`) of every query, context and ordered pair shown, [entries] each."""
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
    step = np.arange(len(row)) - np.repeat(np.cumsum(partners) - partners, partners)
    other = first[sample.unit[row]] + step
    row, other = row[row != other], other[row != other]
    shown, shown_other = (sample.impressions[i].astype(np.float64) for i in (row, other))
    weight = WEIGHTS[weighting](shown, shown_other) / sample.exposure[row]
    keys = np.stack([sample.cluster[row], sample.context[row], sample.position[row], sample.position[other]])
    distinct, code = np.unique(keys, axis=1, return_inverse=True)
    clicks = sample.clicks[row]
    entries = {
        **dict(zip(("cluster", "context", "position", "other"), distinct, strict=True)),
        "clicked": np.bincount(code, weights=weight * clicks),
        "passed": np.bincount(code, weights=weight * (sample.impressions[row] - clicks)),
    }
    seen = entries["clicked"] + entries["passed"] > 0  # by design a document may stand where it was never shown
    return {name: values[seen] for name, values in entries.items()}


def both_ways(entries: dict[str, Any]) -> dict[str, Any]:
    """Return entries (k, k') and (k', k) as one row: `position`, `clicked` and `passed` at k and at k' > k, [n, 2]."""
    low, high = (choose(entries["position"], entries["other"]) for choose in (np.minimum, np.maximum))
    key = np.zeros(len(low), dtype=np.int64)
    for column in (entries["context"], entries["cluster"], low, high):
        key = key * (column.max(initial=0) + 1) + column
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    end = 2 * row + (entries["position"] > entries["other"])
    return {
        "context": entries["context"][first],
        "cluster": entries["cluster"][first],
        "position": np.stack([low[first], high[first]], axis=1),
        "clicked": np.bincount(end, entries["clicked"], 2 * len(first)).reshape(-1, 2),
        "passed": np.bincount(end, entries["passed"], 2 * len(first)).reshape(-1, 2),
    }
