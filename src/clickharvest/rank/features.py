"""Document features: products with a dense or sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from clickharvest.errors import InputError

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PANEL = 1_024
"""Rows of a dense matrix that are summed in its own precision; sums of panels are in double precision."""

ROUNDING = 1e-7
"""A column that varies by less than this share of its mean is constant up to rounding."""


@dataclass(frozen=True)
class Features:
    """Document features, dense (kept in single precision where they come so) or sparse rows.

    Attributes:
        base: an array or a sparse CSR array, [n, F].
        complete: whether no value is missing (NaN).
        rows: the rows of the documents in it, [n_docs]; None for all.
        scale: divisors of its columns, which are applied in use, without a copy, [F]; of dense features alone.

    Example:
        >>> features = Features.of([[1.0, 0.0], [0.0, 2.0]])
        >>> features.times(np.array([3.0, 4.0])).tolist(), features.sums(np.array([1.0, 1.0])).tolist()
        ([3.0, 8.0], [1.0, 2.0])
    """

    base: Any
    complete: bool = True
    rows: Index | None = None
    scale: Array | None = None

    @classmethod
    def of(cls, matrix: Any) -> Features:
        """Check a matrix of features.

        Raises:
            InputError: it has not two dimensions, or holds values that are infinite or no numbers.
        """
        try:
            if issparse(matrix):
                sparse: Any = matrix
                result: Any = csr_array(sparse, dtype=np.float64)
                values = result.data
            else:
                given = np.asarray(matrix)
                result = np.ascontiguousarray(given, np.float32 if given.dtype == np.float32 else np.float64)
                values = result
        except (TypeError, ValueError) as error:
            raise InputError(f"the features are not numbers ({error}): encode text and categories first") from error
        if result.ndim != 2:
            raise InputError(f"features have {result.ndim} dimensions: expected documents by features")
        # A finite sum has finite terms, and is quicker than a mask; sums of large values may overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = bool(np.isfinite(values.sum()))
        infinite = not finite and bool(np.isinf(values).any())
        if infinite:
            raise InputError("features hold infinite values: replace them first")
        return cls(result, finite or not np.isnan(values).any())

    def require_complete(self) -> None:
        """Raise `InputError` where a value is missing: linear rankers need all."""
        if not self.complete:
            raise InputError(
                "features hold missing values, which only trees take: fill them, or use --learner lightgbm or xgboost"
            )

    @property
    def matrix(self) -> Any:
        """The features, [n_docs, F]; a copy if they are some rows of the base, or scaled."""
        rows = self.base if self.rows is None else self.base[self.rows]
        return rows if self.scale is None else rows / self.scale.astype(rows.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and features."""
        n_docs, n_features = self.base.shape
        return int(n_docs) if self.rows is None else len(self.rows), int(n_features)

    def panels(self) -> Iterator[Any]:
        """Yield the features a few rows at a time, as views or small copies."""
        for panel in self._panels():
            yield panel if self.scale is None else panel / self.scale.astype(panel.dtype)

    def _panels(self) -> Iterator[Any]:
        for begin in range(0, self.shape[0], PANEL):
            part = slice(begin, begin + PANEL)
            yield self.base[part if self.rows is None else self.rows[part]]

    def times(self, w: Array) -> Array:
        """Return X w, [n_docs]."""
        self.require_complete()
        wide = (w if self.scale is None else w / self.scale).astype(self.base.dtype)
        if self.rows is None:
            return np.asarray(self.base @ wide, np.float64)
        return np.concatenate([np.zeros(0), *(panel @ wide for panel in self._panels())])

    def sums(self, values: Array) -> Array:
        """Return Xᵀ v, [F]."""
        self.require_complete()
        if issparse(self.base):
            rows: Any = self.matrix
            return np.asarray(rows.T @ values, np.float64)
        total = np.zeros(self.base.shape[1])
        values = values.astype(self.base.dtype)
        for k, panel in enumerate(self._panels()):
            total += values[k * PANEL : (k + 1) * PANEL] @ panel
        return total if self.scale is None else total / self.scale

    def take(self, rows: Index, *, copy: bool = True) -> Features:
        """Return some of the documents; without a copy, products are slower and need less memory."""
        base_rows = rows if self.rows is None else self.rows[rows]
        return replace(self, base=self.base[base_rows], rows=None) if copy else replace(self, rows=base_rows)

    def scaled(self) -> tuple[Features, Array]:
        """Return dense features divided by their standard deviations, and these; sparse features are not divided."""
        self.require_complete()
        n_docs, n_features = self.shape
        if issparse(self.base):
            return self, np.ones(n_features)
        total, squares = np.zeros(n_features), np.zeros(n_features)
        for panel in self.panels():
            total += panel.sum(axis=0, dtype=np.float64)
        for panel in self.panels():
            squares += np.square(panel - total / n_docs).sum(axis=0, dtype=np.float64)
        spread = np.sqrt(squares / n_docs)
        scale = np.where(spread > ROUNDING * np.abs(total / n_docs), spread, 1.0)
        return replace(self, scale=scale), scale
