"""Click shares of curves that are linear in their parameters: log likelihood, scores and information, in NumPy.

For log p_k(x) = b_k + W_k·x the click shares of a unit are a multinomial logit, π_{u,k} ∝ e_{u,k} exp(z_{u,k}·θ), and
their log likelihood is concave. The row z of a cell is (1, x) in the block of its position, and 0 at the anchor; where
contexts vary inside units (`unit_kind` "query") it is also (0, x) in a block that all positions share: how much a
context clicks in general.

    score        Σ_u Σ_k (C_{u,k} − N_u π_{u,k}) z_{u,k}
    information  H = Σ_u N_u (Σ_k π_{u,k} z_{u,k} z_{u,k}ᵀ − z̄_u z̄_uᵀ),   z̄_u = Σ_k π_{u,k} z_{u,k}

H has a block for every two positions. The first sum is one product of tall matrices for each position. In the second,
z̄_u has at most one part for each position, however many cells the unit has: pairs of parts are sorted by their
positions, and each block is again one product. That is ten times faster than sparse rows, and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.cells import Cells, Shares

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Pairs = tuple[Integers, Integers, int, int]
"""Both parts of each pair, and their blocks i ≤ j."""

ENTRIES = 50_000
"""Entries whose features are held at once, of whole units; larger samples are gone through part by part."""
KEPT = 4_000_000
"""Entries up to which pairs are kept for the next step of a fit; they take some 30 bytes an entry."""


class MultinomialLogit(Cells):
    """The cells of all clicked units, and the blocks of parameters that each reads.

    Args:
        cells: the cells; their arrays are shared.
        x: the contexts, [m, d].
        anchor: the position whose log examination is 0.
        varying: whether contexts vary inside units.

    Attributes:
        n_blocks: blocks of parameters: one for every position but the anchor, and the shared one, if any.
        width: parameters of a block, 1 + d.
        size: number of parameters, n_blocks · width.
    """

    def __init__(self, cells: Cells, x: Array, anchor: int, *, varying: bool = False) -> None:
        vars(self).update(vars(cells))
        n, d = x.shape
        self.anchored, others = self.positions.index(anchor), self.n_positions - 1
        self._shared = varying and d > 0
        # The rows (1, x) of all contexts, and below them the rows (0, x) that the shared block reads.
        self._rows_of_own, rows = n, n * (1 + self._shared)
        self.features = np.empty((rows, d + 1))
        self.features[:n, 0], self.features[n:, 0] = 1.0, 0.0
        for begin in range(0, rows, n):
            self.features[begin : begin + n, 1:] = x
        self.n_blocks, self.width = others + self._shared, d + 1
        self.size = self.n_blocks * self.width
        # One entry for every cell and each block that it reads, by unit and block.
        cell, at = self._entries(np.arange(len(self.unit)))
        order = np.lexsort((at % self.n_blocks, self.unit[cell]))
        self._cell, self._at = cell[order], at[order]
        self._begins = np.searchsorted(self.unit[self._cell], np.arange(len(self.clicks_per_unit) + 1))
        # Of a few positions every context's log p is computed once; of many, that of the entries alone.
        self._tabled = rows * self.n_blocks <= len(self._cell) * self.width

    def _entries(self, cells: Integers) -> tuple[Integers, Integers]:
        """Return what some cells read: the number of each among them, and row of features · n_blocks + block."""
        position = self.position[cells]
        entries = np.flatnonzero(position != self.anchored)
        at = self.context[cells[entries]] * self.n_blocks + position[entries] - (position[entries] > self.anchored)
        if not self._shared:
            return entries, at
        every = (self.context[cells] + self._rows_of_own) * self.n_blocks + self.n_blocks - 1
        return np.concatenate([entries, np.arange(len(cells))]), np.concatenate([at, every])

    def design(self, cells: Integers) -> csr_array:
        """Return the rows z of some cells, [cells, size]."""
        entry, at = self._entries(cells)
        order = np.argsort(entry, kind="stable")
        row, block = np.divmod(at[order], self.n_blocks)
        columns = block[:, None] * self.width + np.arange(self.width)
        begins = np.searchsorted(entry[order], np.arange(len(cells) + 1)) * self.width
        return csr_array((self.features[row].ravel(), columns.ravel(), begins), shape=(len(cells), self.size))

    def gradients(self, contexts: Integers) -> Array:
        """Return the gradients of log p_k(x) / p_anchor(x) of some contexts, [contexts, K, size]."""
        others = np.delete(np.arange(self.n_positions), self.anchored)
        gradients = np.zeros((len(contexts), self.n_positions, self.n_blocks, self.width))
        gradients[:, others, np.arange(len(others))] = self.features[contexts][:, None]
        return gradients.reshape(len(contexts), self.n_positions, self.size)

    def shares(self, theta: Array) -> Shares:
        """Return log likelihood, shares and residuals at θ [size]."""
        return self.shares_of(self.log_p(theta))

    def log_p(self, theta: Array) -> Array:
        """Return log examination relative to the anchor at θ [size], with what the shared block adds, [cells]."""
        by_block = theta.reshape(self.n_blocks, self.width)
        if self._tabled:
            values = (self.features @ by_block.T).ravel().take(self._at)
        else:
            row, block = np.divmod(self._at, self.n_blocks)
            values = np.einsum("ej,ej->e", self.features[row], by_block[block])
        return np.bincount(self._cell, values, len(self.unit)).astype(np.float64)

    def score(self, shares: Shares) -> Array:
        """Return the gradient of the log likelihood, [size]."""
        if self._tabled:
            size = len(self.features) * self.n_blocks
            table = np.bincount(self._at, shares.residual.take(self._cell), size).astype(np.float64)
            return (table.reshape(-1, self.n_blocks).T @ self.features).ravel()
        row, block = np.divmod(self._at, self.n_blocks)
        weighted = shares.residual[self._cell, None] * self.features[row]
        sums = np.stack([np.bincount(block, column, self.n_blocks) for column in weighted.T], axis=1)
        return sums.ravel().astype(np.float64)

    def information(self, shares: Shares) -> Array:
        """Return H, [size, size]."""
        expected = self.clicks - shares.residual
        if self.width == 1:
            return self._information_of_positions(shares.share, expected)
        whole = np.zeros((self.n_blocks, self.width, self.n_blocks, self.width))
        for begin, end, starts, pairs in self._kept_parts if len(self._cell) <= KEPT else self._parts():
            cell, (row, block) = self._cell[begin:end], np.divmod(self._at[begin:end], self.n_blocks)
            rows, share = self.features.take(row, axis=0), shares.share[cell]
            if alone := len(starts) == len(cell):  # every part of z̄ is that of one cell: both sums at once
                mean = rows
            else:
                self._add_squares(whole, rows, block, expected[cell])
                mean = np.add.reduceat(rows * share[:, None], starts)
            for one, two, first, second in pairs:
                if alone:
                    weight = expected[cell[one]] * ((cell[one] == cell[two]) - share[two])
                else:
                    weight = -self.clicks_of_unit[cell[starts[one]]]
                product = (mean[one] * weight[:, None]).T @ mean[two]
                whole[first, :, second] += product
                if first != second:
                    whole[second, :, first] += product.T
        return whole.reshape(self.size, self.size)

    def _add_squares(self, whole: Array, rows: Array, block: Integers, expected: Array) -> None:
        """Add Σ N π z zᵀ of some entries to H, [blocks, width, blocks, width]."""
        for i in range(self.n_blocks):
            some = np.flatnonzero(block == i)
            z, weighted = rows[some], rows[some] * expected[some, None]
            whole[i, :, i] += weighted.T @ z
            if self._shared and i < self.n_blocks - 1:  # what the cell reads of the shared block: all but the 1
                z[:, 0] = 0.0
                both = weighted.T @ z
                whole[i, :, -1] += both
                whole[-1, :, i] += both.T

    def _information_of_positions(self, share: Array, expected: Array) -> Array:
        """Return H where there are no features, diag(Σ N π) − Σ_u N_u π_u π_uᵀ: however many positions there are."""
        cell, shape = self._cell, (len(self.clicks_per_unit), self.n_blocks)
        block = self._at % self.n_blocks
        roots = csr_array((share[cell] * np.sqrt(self.clicks_of_unit[cell]), block, self._begins), shape)
        diagonal = np.bincount(block, expected[cell], self.n_blocks).astype(np.float64)
        return np.diag(diagonal) - np.asarray((roots.T @ roots).toarray())

    @cached_property
    def _kept_parts(self) -> list[tuple[int, int, Integers, list[Pairs]]]:
        return list(self._parts())

    def _parts(self) -> Iterator[tuple[int, int, Integers, list[Pairs]]]:
        """Yield where the entries of some whole units begin and end, where each part of z̄ begins, and their pairs."""
        begin = 0
        while begin < len(self._cell):
            last = self.unit[self._cell[min(begin + ENTRIES, len(self._cell)) - 1]]
            end = int(self._begins[last + 1])
            unit, block = self.unit[self._cell[begin:end]], self._at[begin:end] % self.n_blocks
            starts = np.flatnonzero((np.diff(unit, prepend=-1) > 0) | (np.diff(block, prepend=-1) != 0))
            yield begin, end, starts, list(_pairs(unit[starts], block[starts], self.n_blocks))
            begin = end


def _pairs(unit: Integers, block: Integers, n_blocks: int) -> Iterator[Pairs]:
    """Yield the pairs of parts of one unit, blocks by blocks: units and, within one, blocks of parts ascend.

    Of parts of units 0, 0, 1 in blocks 0, 1, 1 these are (0, 0), (0, 1), and (1, 1) with (2, 2).
    """
    partners = np.searchsorted(unit, unit, side="right") - np.arange(len(unit))
    one = np.repeat(np.arange(len(unit)), partners)
    two = one + np.arange(len(one)) - np.repeat(np.cumsum(partners) - partners, partners)
    code = block[one] * n_blocks + block[two]
    order = np.argsort(code, kind="stable")
    codes, starts = np.unique(code[order], return_index=True)
    for code_of, part in zip(codes.tolist(), np.split(order, starts[1:]), strict=True):
        yield one[part], two[part], *divmod(code_of, n_blocks)
