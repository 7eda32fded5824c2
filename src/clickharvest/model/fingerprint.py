"""Fingerprints of data: whether a model was fitted on these interventions."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions


def data_fingerprint(interventions: Interventions) -> str:
    """Return a SHA-256 of all columns, the same however rows are ordered, units numbered and clicks clustered.

    Example:
        >>> from clickharvest.harvesting.interventions import Interventions
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]),
        ...     exposure=np.ones(2), clicks=np.array([1, 0]), impressions=np.ones(2, dtype=int))
        >>> data_fingerprint(interventions) == data_fingerprint(interventions.take(np.array([1, 0])))
        True
    """
    interventions = interventions.undivided()
    own = {name: getattr(interventions, name) for name in ("query", "position", "exposure", "clicks", "impressions")}
    columns = [*own.items(), *sorted(interventions.contexts.items())]
    digest = hashlib.sha256(json.dumps([name for name, _ in columns]).encode())
    digest.update(f"{interventions.exposure_kind} {interventions.unit_kind}".encode())
    if interventions.places is not None:
        digest.update(json.dumps(interventions.places.to_dict()).encode())
    codes = [_codes(column, digest) for _, column in columns]
    row = np.zeros(len(interventions), dtype=np.uint64)
    for code in codes:
        row = _mix(row ^ code)
    _, number = np.unique(interventions.unit, return_inverse=True)
    unit = np.zeros(number.max(initial=-1) + 1, dtype=np.uint64)
    np.add.at(unit, number, row)  # a sum does not depend on the order of a unit's rows
    order = np.lexsort((row, unit[number]))
    for column in (unit[number], *codes):
        digest.update(column[order].tobytes())
    return digest.hexdigest()


def fitted_fingerprints(interventions: Interventions) -> set[str]:
    """Return the fingerprints that a model fitted on the interventions may have: of all units, or of the clicked."""
    return {data_fingerprint(interventions), data_fingerprint(interventions.clicked())}


def _codes(column: NDArray[Any], digest: Any) -> NDArray[np.uint64]:
    """Return numbers by their bits, anything else by the rank of its text; the texts go into the digest."""
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    texts = [str(value) for value in column.tolist()]
    rank = {text: i for i, text in enumerate(sorted(set(texts)))}
    digest.update(json.dumps(list(rank)).encode())
    return np.array([rank[text] for text in texts], dtype=np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers evenly (the finaliser of SplitMix64)."""
    bits = (bits + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
