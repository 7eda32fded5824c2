"""Curves of single queries: solved against dense matrices, and no cause for alarm about trust."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from clickharvest.estimation.own_curves import OwnCurves
from clickharvest.estimation.score_tests import ShareCells

Array = NDArray[np.float64]
GROUPS, DOCS, POSITIONS = 3, 5, 4


@pytest.fixture
def own() -> OwnCurves:
    """Three queries of five documents, each at two to four positions, in a chain at least."""
    random = np.random.default_rng(0)
    shown = random.random((GROUPS, DOCS, POSITIONS)) < 0.6
    shown[:, np.arange(DOCS), np.arange(DOCS) % POSITIONS] = True
    shown[:, np.arange(DOCS), (np.arange(DOCS) + 1) % POSITIONS] = True
    group, doc, position = np.nonzero(shown)
    _, unit = np.unique(group * DOCS + doc, return_inverse=True)
    log_exposure, clicks = random.normal(size=len(unit)), random.poisson(3.0, len(unit)) + 1.0
    cells = ShareCells(np.arange(len(unit)), unit, group, log_exposure, clicks)
    return OwnCurves(cells, group, group * POSITIONS + position, GROUPS * POSITIONS, POSITIONS, 0.5)


def informed(own: OwnCurves, shares: Array) -> Array:
    """Return N (diag π − π πᵀ) of all units, [cells, cells]."""
    cells = own.cells
    same = cells.unit[:, None] == cells.unit
    weight = cells.totals[cells.unit] * shares
    return np.asarray(np.diag(weight) - same * weight[:, None] * shares)


@pytest.mark.parametrize("spread", [0.3, 30.0])
def test_what_is_left_is_beyond_the_curves_of_queries(own: OwnCurves, spread: float) -> None:
    own = replace(own, spread=spread)
    random = np.random.default_rng(1)
    shares = own.cells.shares(own.cells.log_exposure)
    column, steepness = random.normal(size=len(shares)), np.log1p(own.at % POSITIONS)
    left, weight = own.beyond(column, steepness, shares), informed(own, shares)
    by_group = steepness[:, None] * (own.group[:, None] == np.arange(GROUPS))
    assert by_group.T @ weight @ left == pytest.approx(np.zeros(GROUPS), abs=1e-9)
    indicators = np.eye(own.pairs)[own.at]

    def less(column: Array) -> Array:
        return column - by_group @ np.linalg.solve(by_group.T @ weight @ by_group, by_group.T @ weight @ column)

    held = indicators.T @ weight @ indicators + np.eye(own.pairs) / spread**2
    first = less(column)
    expected = less(first - indicators @ np.linalg.solve(held, indicators.T @ weight @ first))
    assert weight @ left == pytest.approx(weight @ expected, abs=1e-3)
    if spread == 30.0:  # nothing but what sets documents apart is left
        assert indicators.T @ weight @ left == pytest.approx(np.zeros(own.pairs), abs=0.01)


@pytest.mark.parametrize("spread", [0.2, 2.0])
def test_deviations_are_where_the_posterior_is_largest(own: OwnCurves, spread: float) -> None:
    own = replace(own, spread=spread)
    cells = own.cells

    def loss(d: Array) -> float:
        shares = cells.shares(cells.log_exposure + d[own.at])
        return float(d @ d / (2 * spread**2) - cells.clicks @ np.log(shares))

    expected = minimize(loss, np.zeros(own.pairs), tol=1e-10).x
    assert own.deviations(cells.log_exposure) == pytest.approx(expected, abs=0.01 * spread)


def test_a_pair_without_clicks_stays_where_it_was(own: OwnCurves) -> None:
    found = replace(own, pairs=own.pairs + 2).deviations(own.cells.log_exposure)
    assert found[-2:].tolist() == [0.0, 0.0]
    assert found[:-2] == pytest.approx(own.deviations(own.cells.log_exposure))
