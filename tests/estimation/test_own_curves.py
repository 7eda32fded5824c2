"""Curves of single queries: solved against dense matrices, and no cause for alarm about trust."""

from __future__ import annotations

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
    return OwnCurves(cells, group * POSITIONS + position, GROUPS * POSITIONS, POSITIONS)


def informed(own: OwnCurves, shares: Array) -> Array:
    """Return N (diag π − π πᵀ) of all units, [cells, cells]."""
    cells = own.cells
    same = cells.unit[:, None] == cells.unit
    weight = cells.totals[cells.unit] * shares
    return np.asarray(np.diag(weight) - same * weight[:, None] * shares)


def test_what_is_left_is_beyond_every_curve_of_a_query(own: OwnCurves) -> None:
    random = np.random.default_rng(1)
    shares = own.cells.shares(own.cells.log_exposure)
    column = random.normal(size=len(shares))
    left = own.beyond(column, shares)
    indicators, weight = np.eye(own.pairs)[own.at], informed(own, shares)
    assert indicators.T @ weight @ left == pytest.approx(np.zeros(own.pairs), abs=1e-4)
    nearest = np.linalg.lstsq(indicators.T @ weight @ indicators, indicators.T @ weight @ column, rcond=1e-10)[0]
    expected = column - indicators @ nearest
    assert left @ weight @ left == pytest.approx(expected @ weight @ expected, rel=1e-6)
    assert own.beyond(random.normal(size=own.pairs)[own.at], shares) @ weight == pytest.approx(
        np.zeros(len(shares)), abs=1e-3
    )


@pytest.mark.parametrize("spread", [0.2, 2.0])
def test_deviations_are_where_the_posterior_is_largest(own: OwnCurves, spread: float) -> None:
    cells = own.cells

    def loss(d: Array) -> float:
        shares = cells.shares(cells.log_exposure + d[own.at])
        return float(d @ d / (2 * spread**2) - cells.clicks @ np.log(shares))

    expected = minimize(loss, np.zeros(own.pairs), tol=1e-10).x
    assert own.deviations(cells.log_exposure, spread) == pytest.approx(expected, abs=0.01 * spread)


def test_a_pair_without_clicks_stays_where_it_was(own: OwnCurves) -> None:
    wider = OwnCurves(own.cells, own.at, own.pairs + 2, own.positions)
    found = wider.deviations(own.cells.log_exposure, 0.5)
    assert found[-2:].tolist() == [0.0, 0.0]
    assert found[:-2] == pytest.approx(own.deviations(own.cells.log_exposure, 0.5))
