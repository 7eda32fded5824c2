"""Document features as rankers need them: two products with a matrix, dense or sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from clickharvest.errors import InputError

Array = NDArray[np.float64]
Index = NDArray[np.int64]

PANEL = 1_024
"""Rows of a dense matrix that are summed in its own precision before sums go on in double precision."""


@dataclass(frozen=True)
class Features:
    """Document features, dense (kept in single precision where they come so) or sparse rows.

    Attributes:
        matrix: an array or a sparse CSR array, [n_docs, F].
        complete: whether no value is missing (NaN), as trees allow.

    Example:
        >>> features = Features.of([[1.0, 0.0], [0.0, 2.0]])
        >>> features.times(np.array([3.0, 4.0])).tolist(), features.sums(np.array([1.0, 1.0])).tolist()
        ([3.0, 8.0], [1.0, 2.0])
    """

    matrix: Any
    complete: bool = True

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
        # A sum is finite only if all values are, and is quicker than a mask of them; large values may overflow in it.
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
    def shape(self) -> tuple[int, int]:
        """Documents and features."""
        n_docs, n_features = self.matrix.shape
        return int(n_docs), int(n_features)

    def times(self, w: Array) -> Array:
        """Return X w, [n_docs]."""
        self.require_complete()
        return np.asarray(self.matrix @ w.astype(self.matrix.dtype), np.float64)

    def sums(self, values: Array) -> Array:
        """Return Xᵀ v, [F]."""
        self.require_complete()
        if issparse(self.matrix):
            rows: Any = self.matrix
            return np.asarray(rows.T @ values, np.float64)
        total = np.zeros(self.matrix.shape[1])
        values = values.astype(self.matrix.dtype)
        for begin in range(0, len(values), PANEL):
            total += values[begin : begin + PANEL] @ self.matrix[begin : begin + PANEL]
        return total

    def take(self, rows: Index) -> Features:
        """Return some of the documents."""
        return Features(self.matrix[rows], self.complete)
