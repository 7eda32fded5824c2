"""Fingerprints of data: whether a model was fitted on these interventions."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.harvesting.numbering import run_starts

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions

ROWS = 1_000_000
"""Rows that are looked at at once."""


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
    row = np.zeros(len(interventions), dtype=np.uint64)
    for _, column in columns:
        texts: dict[str, int] = {}
        for some in (slice(begin, begin + ROWS) for begin in range(0, len(row), ROWS)):
            row[some] = _mix(row[some] ^ _codes(column[some], texts))
    # Sums do not depend on the order of a unit's rows, nor on that of the units.
    unit = interventions.unit
    if np.any(unit[1:] < unit[:-1]):
        order = np.argsort(unit, kind="stable")
        unit, row = unit[order], row[order]
    sums = np.add.reduceat(row, np.flatnonzero(run_starts([unit], len(unit)))) if len(row) else row
    digest.update(np.array([len(row), _mix(sums).sum(), _mix(~sums).sum()], dtype=np.uint64).tobytes())
    return digest.hexdigest()


def fitted_fingerprints(interventions: Interventions) -> set[str]:
    """Return the fingerprints that a model fitted on the interventions may have: of all units, or of the clicked."""
    return {data_fingerprint(interventions), data_fingerprint(interventions.clicked())}


def _codes(column: NDArray[Any], texts: dict[str, int]) -> NDArray[np.uint64]:
    """Return the bits of numbers, and of anything else those of a hash of its text, which `texts` keeps."""
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    found = [str(value) for value in column.tolist()]
    for text in set(found) - texts.keys():
        texts[text] = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "little")
    return np.array([texts[text] for text in found], dtype=np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers evenly (the finaliser of SplitMix64)."""
    bits = (bits + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
