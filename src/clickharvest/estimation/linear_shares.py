"""Click shares of curves that are linear in their parameters: log likelihood, scores and information, in NumPy.

For log p_k(x) = b_k + W_k·x the click shares of a unit are a multinomial logit, π_{u,k} ∝ e_{u,k} exp(z_{u,k}·θ), and
their log likelihood is concave. The row z of a cell is (1, x) in the block of its position, and 0 at the anchor; where
contexts vary inside units (`unit_kind` "query") it is also (0, x) in a block that all positions share: how much a
context clicks in general.

    score        Σ_u Σ_k (C_{u,k} − N_u π_{u,k}) z_{u,k}
    information  H = Σ_u N_u (Σ_k π_{u,k} z_{u,k} z_{u,k}ᵀ − z̄_u z̄_uᵀ),   z̄_u = Σ_k π_{u,k} z_{u,k}

H has a block for every two positions: pairs of cells of one unit are sorted by them, and each block is one product of
two tall matrices. That is ten times faster than sparse rows, and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.estimation.click_cells import ClickCells, Shares
from clickharvest.estimation.sample import Sample

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PAIRS = 4_000_000
"""Pairs of cells that are held at once; larger samples are gone through part by part."""


class LinearShares(ClickCells):
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
        own = np.flatnonzero(self.position != self.anchored)
        every = np.arange(len(self.unit) if shared else 0)
        cell = np.concatenate([own, every])
        block = np.concatenate([self.position[own] - (self.position[own] > self.anchored), np.full(len(every), others)])
        row = np.concatenate([self.context[own], self.context[every] + n])
        order = np.argsort(cell, kind="stable")
        self._cell, self._block, self._row = cell[order], block[order], row[order]
        # Of a few positions every context's log p is computed once; of many, that of the entries alone.
        rows = 2 * n if shared else n
        self._tabled = rows * self.n_blocks <= len(self._cell) * self.width
        self._table = self.features[:rows] if self._tabled else self.features[:0]
        self._at = self._row * self.n_blocks + self._block if self._tabled else self._row[:0]

    def design(self, cells: Integers) -> csr_array:
        """Return the rows z of some cells, [cells, size]."""
        ends = np.searchsorted(self._cell, np.stack([cells, cells + 1]))
        entries = ends[1] - ends[0]
        before = np.cumsum(entries) - entries
        entry = np.arange(entries.sum()) + np.repeat(ends[0] - before, entries)
        columns = self._block[entry, None] * self.width + np.arange(self.width)
        begins = np.append(before, entries.sum()) * self.width
        shape = (len(cells), self.size)
        return csr_array((self.features[self._row[entry]].ravel(), columns.ravel(), begins), shape=shape)

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
        expected = self.clicks_of_unit * shares.share
        if self.width == 1:
            return self._information_of_positions(shares.share, expected)
        whole = np.zeros((self.n_blocks, self.width, self.n_blocks, self.width))
        for one, two, first, second in self._paired_blocks():
            a, b = self._cell[one], self._cell[two]
            weight = expected[a] * ((a == b) - shares.share[b])
            row = self._row[one]
            own = self.features.take(row, axis=0)
            # Contexts of a unit are mostly one: what stands beside is the same.
            beside = own if np.array_equal(row, other := self._row[two]) else self.features.take(other, axis=0)
            product = (own * weight[:, None]).T @ beside
            whole[first, :, second] += product
            if first != second:
                whole[second, :, first] += product.T
        return whole.reshape(self.size, self.size)

    def _information_of_positions(self, share: Array, expected: Array) -> Array:
        """Return H where there are no features, diag(Σ N π) − Σ_u N_u π_u π_uᵀ: however many positions there are."""
        cell, shape = self._cell, (len(self.first), self.n_blocks)
        roots = csr_array((share[cell] * np.sqrt(self.clicks_of_unit[cell]), self._block, self._begins), shape)
        whole: Array = -(roots.T @ roots).toarray()
        whole[np.diag_indices(self.n_blocks)] += np.bincount(self._block, expected[cell], self.n_blocks)
        return whole

    def _paired_blocks(self) -> Iterator[tuple[Integers, Integers, int, int]]:
        """Yield the pairs of entries of one unit that read the blocks i ≤ j, both entries of a pair and i, j."""
        if self._n_pairs <= PAIRS:
            yield from self._all_paired
            return
        units = self.unit[self._cell]
        bounds = np.searchsorted(np.cumsum(self._partners), np.arange(PAIRS, self._n_pairs, PAIRS))
        begins = np.unique(np.searchsorted(units, units[bounds]))  # a unit is not torn apart
        for begin, end in zip([0, *begins], [*begins, len(units)], strict=True):
            yield from self._pair(int(begin), int(end))

    @cached_property
    def _begins(self) -> Integers:
        """Where the entries of each unit begin, and the end of the last, [units + 1]."""
        return np.searchsorted(self.unit[self._cell], np.arange(len(self.first) + 1))

    @cached_property
    def _all_paired(self) -> list[tuple[Integers, Integers, int, int]]:
        return list(self._pair(0, len(self._cell)))

    @cached_property
    def _partners(self) -> Integers:
        """How many entries of its unit stand at or behind each entry."""
        ends = np.searchsorted(self.unit[self._cell], np.arange(len(self.first)), side="right")
        behind: Integers = ends[self.unit[self._cell]] - np.arange(len(self._cell))
        return behind

    @property
    def _n_pairs(self) -> int:
        return int(self._partners.sum())

    def _pair(self, begin: int, end: int) -> Iterator[tuple[Integers, Integers, int, int]]:
        partners = self._partners[begin:end]
        one = np.repeat(np.arange(begin, end), partners)
        two = one + np.arange(len(one)) - np.repeat(np.cumsum(partners) - partners, partners)
        swap = self._block[one] > self._block[two]
        one, two = np.where(swap, two, one), np.where(swap, one, two)
        # Two entries of one block count both ways round: once more, exchanged.
        again = (self._block[one] == self._block[two]) & (one != two)
        one, two = np.concatenate([one, two[again]]), np.concatenate([two, one[again]])
        code = self._block[one] * self.n_blocks + self._block[two]
        order = np.argsort(code, kind="stable")
        codes, starts = np.unique(code[order], return_index=True)
        for code_of, part in zip(codes.tolist(), np.split(order, starts[1:]), strict=True):
            yield one[part], two[part], *divmod(code_of, self.n_blocks)
