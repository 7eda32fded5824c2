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
from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Pairs = tuple[Integers, Integers, int, int]
"""Both parts of each pair, and their blocks i ≤ j."""

ENTRIES = 50_000
"""Entries whose features are held at once, of whole units; larger samples are gone through part by part."""
KEPT = 4_000_000
"""Entries up to which pairs are kept for the next step of a fit; they take some 30 bytes an entry."""


class LinearShares(Cells):
    """The cells of all clicked units, and the blocks of parameters that each reads.

    Args:
        sample: the sample.
        anchor: the position whose log examination is 0.

    Attributes:
        n_blocks: blocks of parameters: one for every position but the anchor, and the shared one, if any.
        width: parameters of a block, 1 + d.
        size: number of parameters, n_blocks · width.
    """

    def __init__(self, sample: Sample, anchor: int) -> None:
        super().__init__(sample)
        n, d = sample.x.shape
        # The rows (1, x) of all contexts, and below them the rows (0, x) that the shared block reads.
        self.features = np.concatenate([np.repeat([[1.0], [0.0]], n, axis=0), np.tile(sample.x, (2, 1))], axis=1)
        self.anchored, others = sample.positions.index(anchor), self.n_positions - 1
        shared = sample.unit_kind == "query" and d > 0
        self.n_blocks, self.width = others + shared, d + 1
        self.size = self.n_blocks * self.width
        self._shared = shared
        own = np.flatnonzero(self.position != self.anchored)
        every = np.arange(len(self.unit) if shared else 0)
        cell = np.concatenate([own, every])
        block = np.concatenate([self._block_of(own), np.full(len(every), others)])
        row = np.concatenate([self.context[own], self.context[every] + n])
        order = np.lexsort((block, self.unit[cell]))
        # One entry for every cell and each block that it reads, by unit and block.
        self._cell, self._block, self._row = cell[order], block[order], row[order]
        self._begins = np.searchsorted(self.unit[self._cell], np.arange(len(self.clicks_per_unit) + 1))
        # Of a few positions every context's log p is computed once; of many, that of the entries alone.
        rows = 2 * n if shared else n
        self._tabled = rows * self.n_blocks <= len(self._cell) * self.width
        self._table = self.features[:rows] if self._tabled else self.features[:0]
        self._at = self._row * self.n_blocks + self._block if self._tabled else self._row[:0]

    def design(self, cells: Integers) -> csr_array:
        """Return the rows z of some cells, [cells, size]."""
        n = len(self.features) // 2
        own = np.flatnonzero(self.position[cells] != self.anchored)
        every = np.arange(len(cells) if self._shared else 0)
        at = np.concatenate([own, every])
        row = np.concatenate([self.context[cells[own]], self.context[cells[every]] + n])
        block = np.concatenate([self._block_of(cells[own]), np.full(len(every), self.n_blocks - 1)])
        order = np.argsort(at, kind="stable")
        columns = block[order, None] * self.width + np.arange(self.width)
        begins = np.searchsorted(at[order], np.arange(len(cells) + 1)) * self.width
        shape = (len(cells), self.size)
        return csr_array((self.features[row[order]].ravel(), columns.ravel(), begins), shape=shape)

    def gradients(self, contexts: Integers) -> Array:
        """Return the gradients of log p_k(x) / p_anchor(x) of some contexts, [contexts, K, size]."""
        others = np.delete(np.arange(self.n_positions), self.anchored)
        found = np.zeros((len(contexts), self.n_positions, self.n_blocks, self.width))
        found[:, others, np.arange(len(others))] = self.features[contexts][:, None]
        return found.reshape(len(contexts), self.n_positions, self.size)

    def shares(self, theta: Array) -> Shares:
        """Return log likelihood, shares and residuals at θ [size]."""
        by_block = theta.reshape(self.n_blocks, self.width)
        if self._tabled:
            own = (self._table @ by_block.T).ravel().take(self._at)
        else:
            own = np.einsum("ej,ej->e", self.features[self._row], by_block[self._block])
        return self.shares_of(np.bincount(self._cell, own, len(self.unit)).astype(np.float64))

    def score(self, shares: Shares) -> Array:
        """Return the gradient of the log likelihood, [size]."""
        if self._tabled:
            table = np.bincount(self._at, shares.residual.take(self._cell), len(self._table) * self.n_blocks)
            found: Array = table.reshape(-1, self.n_blocks).T @ self._table
            return found.ravel()
        weighted = shares.residual[self._cell, None] * self.features[self._row]
        sums = np.stack([np.bincount(self._block, column, self.n_blocks) for column in weighted.T], axis=1)
        return sums.ravel().astype(np.float64)

    def information(self, shares: Shares) -> Array:
        """Return H, [size, size]."""
        expected = self.clicks - shares.residual
        if self.width == 1:
            return self._information_of_positions(shares.share, expected)
        whole = np.zeros((self.n_blocks, self.width, self.n_blocks, self.width))
        for begin, end, starts, pairs in self._kept_parts if len(self._cell) <= KEPT else self._parts():
            cell = self._cell[begin:end]
            rows, share = self.features.take(self._row[begin:end], axis=0), shares.share[cell]
            if alone := len(starts) == len(cell):  # every part of z̄ is that of one cell: both sums at once
                mean = rows
            else:
                self._add_squares(whole, rows, self._block[begin:end], expected[cell])
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
            own, weighted = rows[some], rows[some] * expected[some, None]
            whole[i, :, i] += weighted.T @ own
            if self._shared and i < self.n_blocks - 1:  # what the cell reads of the shared block: all but the 1
                own[:, 0] = 0.0
                both = weighted.T @ own
                whole[i, :, -1] += both
                whole[-1, :, i] += both.T

    def _information_of_positions(self, share: Array, expected: Array) -> Array:
        """Return H where there are no features, diag(Σ N π) − Σ_u N_u π_u π_uᵀ: however many positions there are."""
        cell, shape = self._cell, (len(self.clicks_per_unit), self.n_blocks)
        roots = csr_array((share[cell] * np.sqrt(self.clicks_of_unit[cell]), self._block, self._begins), shape)
        whole: Array = -(roots.T @ roots).toarray()
        whole[np.diag_indices(self.n_blocks)] += np.bincount(self._block, expected[cell], self.n_blocks)
        return whole

    @cached_property
    def _kept_parts(self) -> list[tuple[int, int, Integers, list[Pairs]]]:
        return list(self._parts())

    def _parts(self) -> Iterator[tuple[int, int, Integers, list[Pairs]]]:
        """Yield where the entries of some whole units begin and end, where each part of z̄ begins, and their pairs."""
        begin = 0
        while begin < len(self._cell):
            last = self.unit[self._cell[min(begin + ENTRIES, len(self._cell)) - 1]]
            end = int(self._begins[last + 1])
            unit, block = self.unit[self._cell[begin:end]], self._block[begin:end]
            starts = np.flatnonzero((np.diff(unit, prepend=-1) > 0) | (np.diff(block, prepend=-1) != 0))
            yield begin, end, starts, list(_pairs(unit[starts], block[starts], self.n_blocks))
            begin = end

    def _block_of(self, cells: Integers) -> Integers:
        """Return the block of each cell's position, none of which is the anchor."""
        return self.position[cells] - (self.position[cells] > self.anchored)


def _pairs(unit: Integers, block: Integers, n_blocks: int) -> Iterator[Pairs]:
    """Yield the pairs of parts of one unit, blocks by blocks.

    Args:
        unit: the unit of each part, ascending.
        block: its block, ascending within a unit.
        n_blocks: number of blocks.

    Example:
        >>> pairs = _pairs(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
        >>> [(one.tolist(), two.tolist(), i, j) for one, two, i, j in pairs]
        [([0], [0], 0, 0), ([0], [1], 0, 1), ([1, 2], [1, 2], 1, 1)]
    """
    partners = np.searchsorted(unit, unit, side="right") - np.arange(len(unit))
    one = np.repeat(np.arange(len(unit)), partners)
    two = one + np.arange(len(one)) - np.repeat(np.cumsum(partners) - partners, partners)
    code = block[one] * n_blocks + block[two]
    order = np.argsort(code, kind="stable")
    codes, starts = np.unique(code[order], return_index=True)
    for code_of, part in zip(codes.tolist(), np.split(order, starts[1:]), strict=True):
        yield one[part], two[part], *divmod(code_of, n_blocks)
