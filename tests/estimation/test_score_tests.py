from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import beta

from clickharvest.estimation.score_tests import (
    ENOUGH,
    MOST_SHARE,
    RIDGE,
    ShareCells,
    evened,
    fit_shares,
    score_columns,
    score_test,
    smallest_p,
    steadied,
)


def units_of_two(first: list[int], second: list[int], exposure: tuple[float, float] = (1.0, 1.0)) -> ShareCells:
    """Return units of two cells with so many clicks, each a query of its own."""
    clicks = np.stack([first, second], axis=1).ravel().astype(float)
    unit = np.arange(len(clicks)) // 2
    return ShareCells(np.arange(len(clicks)), unit, unit, np.log(np.tile(exposure, len(first))), clicks)


def at_second(cells: ShareCells, values: np.ndarray | float = 1.0) -> csr_array:
    """Return a column with values at the second cell of each unit."""
    column = np.zeros((len(cells.unit), 1))
    column[1::2, 0] = values
    return csr_array(column)


def random_cells(seed: int = 0) -> tuple[ShareCells, csr_array]:
    """Return units of two to four cells with clicks, exposures and three columns."""
    random = np.random.default_rng(seed)
    unit = np.repeat(np.arange(12), random.integers(2, 5, 12))
    n = len(unit)
    cells = ShareCells(np.arange(n), unit, unit // 2, random.normal(size=n), random.integers(0, 6, n) + 0.0)
    return cells, csr_array(random.normal(size=(n, 3)))


def log_likelihood(cells: ShareCells, columns: csr_array, theta: np.ndarray) -> float:
    """Spell Σ C log π out, unit by unit."""
    logits = cells.log_exposure + columns @ theta
    total = 0.0
    for u in np.unique(cells.unit):
        own = cells.unit == u
        total += float(cells.clicks[own] @ (logits[own] - np.log(np.exp(logits[own]).sum())))
    return total


def test_the_fit_is_where_the_penalised_likelihood_is_flat() -> None:
    cells, columns = random_cells()
    fit = fit_shares(cells, columns)
    assert fit.value == pytest.approx(log_likelihood(cells, columns, fit.theta))
    step = 1e-4 * np.eye(3)
    slope = [
        (log_likelihood(cells, columns, fit.theta + h) - log_likelihood(cells, columns, fit.theta - h)) / 2e-4
        for h in step
    ]
    assert slope == pytest.approx(RIDGE * fit.theta, abs=1e-3)
    assert np.add.reduceat(fit.shares, cells.first) == pytest.approx(1.0)


def test_clicks_one_way_only_give_a_finite_ratio() -> None:
    """Clicks at the second cell alone: N (1 − π) = RIDGE θ."""
    cells = units_of_two([0, 0], [3, 2])
    fit = fit_shares(cells, at_second(cells))
    (theta,) = fit.theta
    assert 5 / (1 + np.exp(theta)) == pytest.approx(RIDGE * theta, rel=1e-3)
    assert 4 < theta < 8


def test_exposures_count() -> None:
    """Three times as much exposure at the second cell, three times as many clicks: the ratio is 1."""
    cells = units_of_two([10, 20], [30, 60], exposure=(1.0, 3.0))
    assert fit_shares(cells, at_second(cells)).theta == pytest.approx([0.0], abs=1e-6)


def test_the_information_is_minus_the_second_derivative() -> None:
    cells, columns = random_cells(1)
    theta = np.array([0.3, -0.2, 0.1])
    shares = cells.shares(cells.log_exposure + columns @ theta)
    h = 1e-4 * np.eye(3)

    def value(*steps: np.ndarray) -> float:
        return log_likelihood(cells, columns, theta + sum(steps))

    second = [[(value(a, b) - value(a, -b) - value(-a, b) + value(-a, -b)) / (4 * 1e-8) for b in h] for a in h]
    assert cells.information(columns, shares) == pytest.approx(-np.array(second), abs=1e-3)


def nothing(cells: ShareCells) -> csr_array:
    return csr_array((len(cells.unit), 0))


def test_one_column_by_hand() -> None:
    """Without a null model π = ½: six clicks at the second cell and two at the first are scores of ±½."""
    cells = units_of_two([1, 1] + [0] * 6, [0, 0] + [1] * 6)
    test = score_test(cells, nothing(cells), at_second(cells))
    assert test is not None
    statistic = (0.5 * (6 - 2)) ** 2 / (8 / 4)
    assert (test.statistic, test.freedom) == (pytest.approx(statistic), 1)
    assert test.shift == pytest.approx([0.5 * (6 - 2) / (8 / 4)])
    assert test.z == pytest.approx([np.sqrt(statistic)])
    tails = [beta.sf(statistic / q, 0.5, (q - 1) / 2) for q in (3 * 8 - 2, 8)]
    assert test.p_value == pytest.approx(max(tails))


def test_what_the_null_model_explains_is_not_tested_again() -> None:
    cells = units_of_two([1, 1] + [0] * 6, [0, 0] + [1] * 6)
    again = score_test(cells, at_second(cells), at_second(cells))
    assert again is None
    half = score_test(cells, at_second(cells), at_second(cells, np.tile([0.0, 1.0], 4)))
    assert half is not None
    residual = np.array([-0.75, -0.75] + [0.25] * 6)  # clicks at the second cell less their share of ¾
    own = residual * np.tile([-0.5, 0.5], 4)
    assert half.statistic == pytest.approx(own.sum() ** 2 / (own @ own), rel=1e-3)


@pytest.mark.parametrize(("queries", "enough"), [(3, False), (4, True)])
def test_queries_must_be_enough_for_the_directions(queries: int, enough: bool) -> None:
    """Of Q equal queries 3 Q − 2 are effective for one direction; four are needed for it, and four for one more."""
    assert (3 * queries - 2 >= ENOUGH * 2) == enough
    cells = units_of_two([1] + [0] * (queries - 1), [0] + [1] * (queries - 1))
    assert (score_test(cells, nothing(cells), at_second(cells)) is not None) == enough


@pytest.mark.parametrize(("queries", "freedom"), [(26, 2), (40, 4)])
def test_shrinking_leaves_out_the_half_of_the_columns_with_less_information(queries: int, freedom: int) -> None:
    random = np.random.default_rng(0)
    cells = units_of_two(*random.integers(0, 2, (2, queries)) + np.array([[0], [1]]))
    extra = np.zeros((2 * queries, 8))
    extra[1::2] = random.choice([-1.0, 1.0], (queries, 8)) * 10.0 ** -np.array([3, 0, 5, 1, 6, 4, 2, 7])
    assert score_test(cells, nothing(cells), csr_array(extra)) is None
    test = score_test(cells, nothing(cells), csr_array(extra), shrink=True)
    assert test is not None
    assert test.freedom == freedom
    kept = [1, 3, 6, 0][:freedom]
    alone = score_test(cells, nothing(cells), csr_array(extra[:, kept]))
    assert alone is not None
    assert (test.statistic, test.p_value) == (pytest.approx(alone.statistic), pytest.approx(alone.p_value))
    for found in (test.z, test.shift):
        assert np.flatnonzero(found).tolist() == sorted(kept)


def test_columns_that_say_the_same_are_one_direction() -> None:
    random = np.random.default_rng(3)
    cells = units_of_two(*random.integers(0, 3, (2, 30)) + np.array([[0], [1]]))
    values = random.normal(size=30)
    twice = csr_array(np.hstack([at_second(cells, values).toarray(), at_second(cells, -5 * values).toarray()]))
    one, two = (score_test(cells, nothing(cells), extra) for extra in (at_second(cells, values), twice))
    assert one is not None
    assert two is not None
    assert (two.freedom, two.statistic) == (1, pytest.approx(one.statistic))
    assert two.p_value == pytest.approx(one.p_value)


def of_unequal_queries(random: np.random.Generator) -> ShareCells:
    """Return one query with as many clicks as the 30 others together, half of all clicks at the second cell."""
    totals = np.array([900, *[30] * 30])
    second = random.binomial(totals, 0.5)
    return units_of_two((totals - second).tolist(), second.tolist())


def test_scores_of_a_large_query_are_not_underrated() -> None:
    """By hand: residuals of a query with the share h of the clicks are √(1 − h) too small: the fit follows it."""
    cells = of_unequal_queries(np.random.default_rng(0))
    values = np.where(np.arange(31) % 2 == 0, 1.0, -1.0)
    null = at_second(cells)
    scores = score_columns(cells, null, at_second(cells, values))
    plain = cells.residual(fit_shares(cells, null).shares)[1::2] * (values - values @ cells.totals / cells.totals.sum())
    leverage = cells.totals / cells.totals.sum()
    assert scores.apart[:, 0] == pytest.approx(plain / np.sqrt(1 - leverage), rel=1e-4)
    assert scores.whole[0] == pytest.approx(plain.sum(), rel=1e-4)


def test_no_query_counts_for_more_than_its_share() -> None:
    """Two large queries at the limit, in the proportions of their own clicks; all others as they are."""
    first, second = [600, 250, *[3] * 98], [200, 50, *[2] * 98]
    cells = units_of_two(first, second)
    even = evened(cells)
    shares = even.totals / even.totals.sum()
    assert shares[:2] == pytest.approx(MOST_SHARE)
    assert np.array_equal(even.clicks[4:], cells.clicks[4:])
    assert even.clicks[:2] / even.totals[0] == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("totals", [[5] * 40, [7], [9, 1], [3, 2, 4, 1, 2], []])
def test_queries_alike_or_few_count_in_full(totals: list[int]) -> None:
    """One query in n has twice the average at most where n is small: with two or one that is all of them."""
    cells = units_of_two(totals, [1] * len(totals))
    assert evened(cells) is cells


def test_few_queries_are_evened_to_twice_the_average() -> None:
    even = evened(units_of_two([100, 1, 1, 1, 1], [100, 1, 1, 1, 1]))
    assert even.totals / even.totals.sum() == pytest.approx([0.4, 0.15, 0.15, 0.15, 0.15])


def test_large_queries_count_for_less_where_curves_differ() -> None:
    """Ratios that differ by chance alone leave all clicks; ratios that differ more leave them by the square of size."""
    random, queries = np.random.default_rng(0), 200
    totals = np.where(np.arange(queries) < 20, 400, 20)
    column = csr_array(np.tile([[0.0], [1.0]], (queries, 1)))
    weights = {}
    for spread in (0.0, 1.0):
        ratio = 1 / (1 + np.exp(-spread * random.normal(size=queries)))
        second = random.binomial(totals, ratio)
        cells = units_of_two(list(totals - second), list(second))
        weighted = steadied(cells, column, np.repeat(totals / 2, 2).astype(np.float64))
        weights[spread] = weighted.totals / cells.totals
    assert weights[0.0].min() > 0.7
    # Of var = n / 4 + n² spread² / 16, what the binomial alone would have: 1 / (1 + n / 4).
    assert weights[1.0][0] / weights[1.0][-1] == pytest.approx((1 + 20 / 4) / (1 + 400 / 4), rel=0.5)


def test_a_single_query_counts_in_full() -> None:
    cells = units_of_two([7], [3])
    assert steadied(cells, csr_array([[0.0], [1.0]]), np.array([5.0, 5.0])) is cells


def test_the_smallest_p_value_of_two_questions_has_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickharvest.estimation.score_tests.FLIPS", 499)
    p_values = []
    for seed in range(400):
        scores = np.random.default_rng(seed).standard_t(3, size=(40, 3))
        both, each = smallest_p(scores.sum(axis=0), scores, (np.diag([1.0, 0, 0]), np.diag([1.0, 1.0, 1.0])))
        assert each.min() <= both <= 2 * each.min() + 0.01
        p_values.append(both)
    assert 0.025 < np.mean(np.array(p_values) < 0.05) < 0.08


def test_one_question_asked_twice_costs_nothing() -> None:
    scores = np.random.default_rng(1).normal(size=(30, 2)) + 0.4
    form = np.eye(2)
    once, twice = (smallest_p(scores.sum(axis=0), scores, [form] * n)[0] for n in (1, 2))
    assert once == twice < 0.05
