"""How far the curves that were not taken are from the one that was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest import CPBM
from clickharvest.estimation.fitting import with_apart
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.model_uncertainty import curve_disagreement, model_weights
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.sample import Sample
from clickharvest.estimation.selection import Candidate, Judged
from clickharvest.harvesting import Interventions
from clickharvest.model.curves import make_curve


def judged(sample: Sample, name: str, flats: Any, by_query: Any, *, chosen: bool = False) -> Judged:
    fit = Fit(make_curve(name, sample.positions, 1, 1), ClickShare(sample), sample)
    by_query = np.asarray(by_query, dtype=np.float64) / fit.scale
    return Judged(Candidate({"name": name}, None, float(by_query.sum()), 0.0, chosen), by_query, fit, np.array(flats))


@pytest.fixture
def sample() -> Sample:
    """Two units of two queries, at two positions."""
    unit = np.array([0, 0, 1, 1])
    clicks = np.array([5, 2, 4, 3])
    return Sample(
        (1, 2), np.array([[0.0], [1.0]]), unit, unit, np.array([0, 1, 0, 1]), np.full(4, 10.0), clicks,
        np.full(4, 10), unit, 2,
    )  # fmt: skip


def test_the_mean_square_by_hand(sample: Sample) -> None:
    # A constant curve b against b + W x; queries find both alike, so each has half of the weight.
    alike = [-1.0, -1.0]
    constant = judged(sample, "constant", [[-0.5], [-0.7]], alike, chosen=True)
    linear = judged(sample, "linear", [[0.2, -0.5], [0.4, -0.6]], alike)
    square, weights = curve_disagreement([constant, linear], np.array([[0.0], [1.0]]))
    # Off by (0, .2) in the first fold and by (.1, .5) in the second.
    assert weights == pytest.approx({"constant": 0.5, "linear": 0.5})
    assert square == pytest.approx(np.array([[0, 0], [0, 0.5 * (0 + 0.04 + 0.01 + 0.25) / 4]]))


def test_a_curve_that_is_clearly_better_has_no_rivals(sample: Sample) -> None:
    constant = judged(sample, "constant", [[-0.5]], [-1.0, -1.0], chosen=True)
    worse = judged(sample, "linear", [[3.0, -0.5]], [-60.0, -50.0])
    broken = judged(sample, "power", [[3.0, -0.5]], [-np.inf, -50.0])
    square, weights = curve_disagreement([constant, worse, broken], np.array([[1.0]]))
    assert weights["constant"] == pytest.approx(1.0)
    assert "power" not in weights
    assert square == pytest.approx(np.zeros((2, 2)), abs=1e-9)


def test_of_a_curve_the_chosen_penalty_counts_or_else_the_best(sample: Sample) -> None:
    constant = judged(sample, "constant", [[-0.5]], [-1.0, -1.0])
    chosen = judged(sample, "linear", [[1.0, -0.5]], [-1.0, -1.0], chosen=True)
    others = [judged(sample, "linear", [[9.0, -0.5]], [level, -1.0]) for level in (-0.9, -1.1)]
    square, weights = curve_disagreement([*others, chosen, constant], np.array([[1.0]]))
    assert weights == pytest.approx({"linear": 0.5, "constant": 0.5})
    assert square[1, 1] == pytest.approx(0.5)


def test_weights_do_not_depend_on_the_order_and_forget_what_all_have_in_common() -> None:
    scores = np.random.default_rng(0).normal(size=(3, 40))
    weights = model_weights(scores)
    assert weights.sum() == pytest.approx(1.0)
    assert model_weights(scores[::-1])[::-1] == pytest.approx(weights)
    assert model_weights(scores + np.arange(40)) == pytest.approx(weights)


def test_intervals_of_a_chosen_curve_are_wider_than_of_the_same_curve_named() -> None:
    random = np.random.default_rng(1)
    unit, position = np.divmod(np.arange(240), 2)
    query = unit // 2
    x = random.normal(size=60)
    rate = 0.3 * (1 + position) ** -(1 + 0.3 * np.abs(x[query]))
    shown = np.full(240, 40)
    interventions = Interventions(
        unit=unit, query=query, position=position + 1, exposure=shown.astype(float),
        clicks=random.binomial(shown, rate), impressions=shown, contexts={"x": x[query]},
    )  # fmt: skip
    auto = CPBM().fit(interventions).propensities_
    rests_on = auto.info["clustered"]
    assert rests_on["rivals"][1] > 0.01
    assert sum(rests_on["weights"].values()) == pytest.approx(1.0)
    spec = dict(auto.curve.spec)
    penalty = next(one["penalty"] for one in auto.info["selection"] if one["chosen"])
    options = {"curve": spec.pop("name"), "penalty": "auto" if penalty is None else penalty}
    named = CPBM(**options, shape=spec or None).fit(interventions).propensities_
    middle = {"x": [-0.5, 0.0, 0.5]}
    wide, narrow = (np.log(one.upper / one.lower)[:, 1] for one in (auto.predict(middle), named.predict(middle)))
    assert (wide > narrow * 1.001).all()


def test_off_by_of_positions_stands_beside_the_parameters_of_a_law() -> None:
    own, off = np.array([[4.0, 1.0], [1.0, 9.0]]), np.diag([0.3, 0.0, 0.5])
    expected = np.zeros((4, 4))
    expected[np.ix_([0, 3], [0, 3])] = own
    expected[1, 1], expected[2, 2] = 0.3, 0.5
    np.testing.assert_allclose(with_apart(own, off, anchor=1), expected)


def numbers(seed: int, bumps: float, effect: float = 0.2) -> Interventions:
    """Three numbers that change the steepness of a law and, by some size, single positions beyond that."""
    random = np.random.default_rng(seed)
    queries, positions = 200, 6
    x = random.normal(size=(queries, 3))
    log_k = np.log(np.arange(1, positions + 1))
    log_p = x @ random.normal(0, bumps, (3, positions)) - log_k * (1 + effect * x[:, :1])
    pair = np.sort(random.permuted(np.tile(np.arange(positions), (4 * queries, 1)), axis=1)[:, :2], axis=1)
    query = np.arange(4 * queries) // 4
    rate = random.beta(1, 2, (4 * queries, 1)) * np.exp(log_p[query[:, None], pair])
    return Interventions(
        unit=np.repeat(np.arange(4 * queries), 2),
        query=np.repeat(query, 2),
        position=pair.ravel() + 1,
        exposure=np.full(8 * queries, 20.0),
        clicks=random.poisson(20 * rate).ravel(),
        impressions=np.full(8 * queries, 20),
        contexts={f"x{i}": np.repeat(column[query], 2) for i, column in enumerate(x.T)},
    )


def rare_level(share: float = 0.05) -> Interventions:
    """Queries of two levels that read alike; few have the second."""
    log = numbers(1, 0.0, effect=0.0)
    queries = np.unique(log.query)
    level = np.where(np.isin(log.query, queries[: int(share * len(queries))]), "rare", "common")
    return replace(log, contexts={"level": level.astype(object)})


def test_a_rare_level_is_not_known_as_well_as_all_others() -> None:
    """Ten queries say nothing of how their level differs, which is not to say that it does not."""
    both = CPBM().fit(rare_level()).predict({"level": ["common", "rare"]})
    width = np.log(both.upper / both.lower)[:, 1:]
    assert (width[1] > 1.5 * width[0]).all()
