"""What comes of a click, by position: the curve and the test against simulated truths, with and without dependence."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from clickharvest import PBM, Interventions, harvest, read_log
from clickharvest.errors import NotIdentifiedError
from clickharvest.estimation.outcome_checks import check_outcome, position_matters
from clickharvest.logs import after_click
from clickharvest.simulate import add_purchases, simulate_ab_log


def purchases(steepness: float, seed: int = 0, pages: int = 8_000) -> Interventions:
    log = add_purchases(simulate_ab_log(pages=pages, seed=seed)[0], steepness=steepness, seed=seed)
    return harvest(after_click(read_log(log), "purchase").log)


@pytest.mark.parametrize("steepness", [0.0, 0.5])
def test_the_curve_of_buying_after_a_click_is_found(steepness: float) -> None:
    truth = np.arange(1.0, 11) ** -steepness
    found = PBM().fit(purchases(steepness)).propensities_.predict()
    margin = np.log(found.upper / found.propensity)[0, 1:] / 1.96
    z = np.log(found.propensity[0, 1:] / truth[1:]) / margin
    assert np.abs(z).max() < 3.5
    assert np.abs(np.log(found.propensity[0] / truth)).max() < 0.25


def test_dependence_is_seen_and_named() -> None:
    falls, rises = (position_matters(purchases(own), outcome="purchase") for own in (0.5, -0.2))
    assert (falls.status, rises.status) == ("note", "note")
    assert falls.p_value == pytest.approx(0, abs=0.001)
    assert falls.value == pytest.approx(-0.5, abs=0.2)
    assert "purchase after a click is rarer further down" in falls.sentence
    assert rises.value == pytest.approx(0.2, abs=0.1)
    assert "more frequent" in rises.sentence


def bought(rate: NDArray[np.float64], seed: int, units: int = 300) -> Interventions:
    """Units of queries, nine each, each clicked 20 times at every position; queries buy unlike each other."""
    random = np.random.default_rng(seed)
    unit, position = np.repeat(np.arange(units), len(rate)), np.tile(np.arange(len(rate)) + 1, units)
    own = random.beta(2, 4, units // 9 + 1)[unit // 9]
    return Interventions(
        unit=unit, query=unit // 9, position=position, exposure=np.full(len(unit), 20.0),
        clicks=random.binomial(20, own * rate[position - 1]), impressions=np.full(len(unit), 20),
    )  # fmt: skip


def test_without_dependence_p_values_are_even() -> None:
    """Of 30 logs without dependence, more than 6 below .05 have a probability of .1 %; `levels` runs 500 of a kind."""
    values = np.array([position_matters(bought(np.ones(3), seed)).p_value for seed in range(30)], dtype=float)
    assert np.count_nonzero(values < 0.05) <= 6
    assert 0.25 < np.median(values) < 0.75


def test_a_single_position_that_differs_is_seen() -> None:
    """A power of k would hardly see the middle: it is the second of both ways."""
    seen = [position_matters(bought(np.array([0.9, 0.7, 0.9]), seed)).p_value for seed in range(3)]
    assert np.array(seen, dtype=float).max() < 0.001


def test_few_queries_cannot_tell_and_nothing_linked_is_no_answer() -> None:
    one = Interventions(
        unit=np.repeat([0, 1], 2), query=np.zeros(4, int), position=np.array([1, 2, 1, 2]), exposure=np.full(4, 9.0),
        clicks=np.array([3, 1, 2, 2]), impressions=np.full(4, 9),
    )  # fmt: skip
    assert position_matters(one, outcome="purchase").sentence.startswith("Too few queries to test whether purchase")
    with pytest.raises(NotIdentifiedError):
        check_outcome(Interventions(**(vars(one) | {"clicks": np.array([3, 0, 2, 0])})))
