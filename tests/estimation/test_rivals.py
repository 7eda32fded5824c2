"""How far the curves that were not taken are from the one that was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickharvest import CPBM, PBM, load_propensities
from clickharvest.estimation.fitting import with_apart
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.pooling import BOUNDS, Pooled, pool
from clickharvest.estimation.query_effects import clustered_covariance
from clickharvest.estimation.rivals import (
    BESIDE_CONSTANT,
    BESIDE_NEXT,
    DEVIATIONS,
    beyond,
    evidence_of_deviations,
    model_weights,
    rivalry,
    unseen_effects,
)
from clickharvest.estimation.sample import Sample, find_reach, make_samples
from clickharvest.estimation.selection import Candidate, Judged
from clickharvest.harvesting import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant, make_curve
from clickharvest.positions.places import Places


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
    square, weights = rivalry([constant, linear], np.array([[0.0], [1.0]]))
    # Off by (0, .2) in the first fold and by (.1, .5) in the second.
    assert weights == pytest.approx({"constant": 0.5, "linear": 0.5})
    assert square == pytest.approx(np.array([[0, 0], [0, 0.5 * (0 + 0.04 + 0.01 + 0.25) / 4]]))


def test_a_curve_that_is_clearly_better_has_no_rivals(sample: Sample) -> None:
    constant = judged(sample, "constant", [[-0.5]], [-1.0, -1.0], chosen=True)
    worse = judged(sample, "linear", [[3.0, -0.5]], [-60.0, -50.0])
    broken = judged(sample, "power", [[3.0, -0.5]], [-np.inf, -50.0])
    square, weights = rivalry([constant, worse, broken], np.array([[1.0]]))
    assert weights["constant"] == pytest.approx(1.0)
    assert "power" not in weights
    assert square == pytest.approx(np.zeros((2, 2)), abs=1e-9)


def test_of_a_curve_the_chosen_penalty_counts_or_else_the_best(sample: Sample) -> None:
    constant = judged(sample, "constant", [[-0.5]], [-1.0, -1.0])
    chosen = judged(sample, "linear", [[1.0, -0.5]], [-1.0, -1.0], chosen=True)
    others = [judged(sample, "linear", [[9.0, -0.5]], [level, -1.0]) for level in (-0.9, -1.1)]
    square, weights = rivalry([*others, chosen, constant], np.array([[1.0]]))
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


def test_what_lines_leave_unknown_counts_beside_a_power_law() -> None:
    """Few clicks on ten levels: folds take a law, which has no parameter for a single position; its intervals do."""
    random = np.random.default_rng(3)
    units, positions = 800, 6
    level = random.integers(10, size=units)
    pair = np.sort([random.choice(positions, 2, replace=False) + 1 for _ in range(units)], axis=1)
    clicks = random.poisson(6 * pair ** -(0.4 + 0.15 * level[:, None]) * random.beta(1, 2, (units, 1)))
    rows = Interventions(
        unit=np.repeat(np.arange(units), 2),
        query=np.repeat(np.arange(units) // 4, 2),
        position=pair.ravel(),
        exposure=np.full(2 * units, 6.0),
        clicks=clicks.ravel(),
        impressions=np.full(2 * units, 6),
        contexts={"level": np.repeat(np.array([f"level {i}" for i in level], dtype=object), 2)},
    )
    found = CPBM().fit(rows).propensities_
    lines = CPBM(curve="linear").fit(rows).propensities_
    assert found.curve.spec == {"name": "power", "apart": 1}
    assert "curve power, objective" in str(found)
    assert not found.params["d"].any()
    told = found.info["clustered"]
    off = np.square(told.get("misfit", np.zeros(positions))) + np.square(told["rivals"])
    x = np.zeros((1, found.curve.n_features))
    assert found.draws is not None
    of_law = found.draws.copy()
    of_law[:, 1:positions] = 0.0
    law = replace(found, draws=of_law)
    assert np.square(found.log_sd(x)[0]) == pytest.approx(np.square(law.log_sd(x)[0]) + off, rel=1e-3, abs=1e-9)
    many = np.eye(found.curve.n_features)
    mean = [float(np.mean(np.square(one.log_sd(many))[:, 1:])) for one in (found, lines)]
    assert mean[0] > 0.8 * mean[1]
    alone, together = (found.predict({"level": ["level 1"]}, simultaneous=band) for band in (False, True))
    assert (together.upper[0, 1:] > alone.upper[0, 1:] * 1.01).all()


LAW = make_curve("power", tuple(range(1, 7)), 1, 3)


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


def lines_of(log: Interventions) -> tuple[Pooled, Sample]:
    sample, _ = make_samples(log, find_reach(log, 1), ContextEncoder.fit(log.contexts))
    return pool(make_curve("linear", sample.positions, 1, sample.x.shape[1]), sample), sample


def test_what_lines_leave_unknown_counts_unless_clicks_speak_for_the_law() -> None:
    """Of ten logs of a law most speak for it, of ten with deviations none."""
    alone = {}
    for bumps in (0.0, 0.1):
        found = [lines_of(numbers(seed, bumps)) for seed in range(10)]
        evident = [evidence_of_deviations(lines, LAW, clustered_covariance(lines).design_effect) for lines, _ in found]
        off = [beyond(lines, sample, LAW, np.zeros((6, 6)), sample.positions) for lines, sample in found]
        assert [one is None for one in off] == [one < BESIDE_NEXT for one in evident]
        alone[bumps] = sum(one is None for one in off)
    assert alone[0.0] >= 6
    assert alone[0.1] == 0


def test_lines_are_no_rivals_of_what_they_contain() -> None:
    """What they leave unknown counts beside it, or not at all."""
    log = numbers(1, 0.0)
    levels = replace(log, contexts={"x": (log.contexts["x0"] > 0).astype(str)})
    for one in (log, levels):
        found = CPBM().fit(one).propensities_
        assert found.curve.name == "power"
        assert "linear" not in found.info["clustered"]["weights"]
        assert any(each["curve"]["name"] == "linear" for each in found.info["selection"])


def test_a_constant_curve_is_asked_about_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where contexts do nothing lines do not count; if they did, intervals would be wider far from the mean context."""
    log = numbers(1, 0.0, effect=0.0)
    here, far = [], []
    for bound, apart in ((BESIDE_CONSTANT, 0), (0.0, 1)):
        monkeypatch.setattr("clickharvest.estimation.rivals.BESIDE_CONSTANT", bound)
        found = CPBM().fit(log).propensities_
        assert found.curve == Constant(found.curve.positions, 1, 3, apart=apart)
        here.append(found.log_sd(np.zeros((1, 3)))[0, 1:])
        far.append(found.log_sd(np.full((1, 3), 2.0))[0, 1:])
    assert here[1] == pytest.approx(here[0], rel=0.02)
    assert (far[1] > 1.1 * far[0]).all()


@pytest.mark.parametrize("positions", [2, 6])
def test_lines_are_next_to_a_constant_curve_of_two_positions(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A law of two positions is a line; with more it stands between, and lines must be the more evident to count."""
    log = numbers(1, 0.0, effect=0.0)
    lines, sample = lines_of(log.take(log.position <= positions))
    constant = Constant(sample.positions, 1, 3)
    for evidence, counts in ((BESIDE_NEXT / 2, False), (2 * BESIDE_NEXT, positions == 2), (BESIDE_CONSTANT, True)):
        monkeypatch.setattr("clickharvest.estimation.rivals.evidence_of_deviations", lambda *_, b=evidence: b)
        assert (unseen_effects(lines, sample, constant) is not None) == counts


def rare_level(share: float = 0.05) -> Interventions:
    """Queries of two levels that read alike; few have the second."""
    log = numbers(1, 0.0, effect=0.0)
    queries = np.unique(log.query)
    level = np.where(np.isin(log.query, queries[: int(share * len(queries))]), "rare", "common")
    return replace(log, contexts={"level": level.astype(object)})


@pytest.mark.parametrize("places", [None, Places.of(("row", "column"), [(i, j) for i in (1, 2) for j in (1, 2, 3)])])
def test_a_rare_level_is_not_known_as_well_as_all_others(places: Places | None, tmp_path: Path) -> None:
    """Ten queries say nothing of how their level differs, which is not to say that it does not."""
    log = replace(rare_level(), places=places)
    found = CPBM().fit(log).propensities_
    assert found.curve.name == "constant"
    assert found.curve.shape == {}
    assert not found.params["W"].any()
    both = found.predict({"level": ["common", "rare"]})
    np.testing.assert_array_equal(both.propensity[0], both.propensity[1])
    width = np.log(both.upper / both.lower)[:, 1:]
    alone = PBM().fit(log).predict()
    assert width[0] == pytest.approx(np.log(alone.upper / alone.lower)[0, 1:], rel=0.25)
    assert (width[1] > 2 * width[0]).all()
    found.save(tmp_path / "model.safetensors")
    again = load_propensities(tmp_path / "model.safetensors").predict({"level": ["common", "rare"]})
    np.testing.assert_array_equal(again.upper, both.upper)


def test_contexts_inside_units_may_stand_apart_from_a_constant_curve() -> None:
    """There a fit has parameters beside the curve's, how much each level clicks."""
    random = np.random.default_rng(0)
    units, levels = 400, np.array(["often", "seldom"], dtype=object)
    pair = np.sort(random.permuted(np.tile(np.arange(5), (units, 1)), axis=1)[:, :2], axis=1)
    unit, position = np.repeat(np.arange(units), 4), np.repeat(pair.ravel(), 2)
    shown = np.tile([20, 2], 2 * units)
    rate = random.beta(1, 2, units)[unit] * np.exp(-1.0 * (position > 2)) * np.tile([0.6, 0.4], 2 * units)
    log = Interventions(
        unit=unit,
        query=unit // 4,
        position=position + 1,
        exposure=shown.astype(np.float64),
        clicks=random.binomial(shown, rate),
        impressions=shown,
        contexts={"level": np.tile(levels, 2 * units)},
        unit_kind="query",
    )
    found = CPBM().fit(log).propensities_
    assert found.curve.spec == {"name": "constant", "apart": 1}
    both = found.predict({"level": levels})
    width = np.log(both.upper / both.lower)[:, 1:]
    assert np.isfinite(width).all()
    assert (width[1] > 1.3 * width[0]).all()


def test_unseen_effects_by_their_definition() -> None:
    log = rare_level(0.2)
    lines, sample = lines_of(log)
    curve = Constant(sample.positions, 1, sample.x.shape[1])
    whole = unseen_effects(lines, sample, curve)
    assert whole is not None
    covariance = clustered_covariance(lines).covariance
    centre = np.average(sample.x[sample.context], axis=0, weights=sample.clicks)
    others, width = len(sample.positions) - 1, 1 + sample.x.shape[1]
    for x in (np.zeros(width - 1), np.ones(width - 1), centre):
        for k in range(others):
            own = k * width + np.arange(1, width)  # blocks of a position: b, then W
            square = covariance[np.ix_(own, own)] + np.outer(lines.theta[own], lines.theta[own])
            expected = (x - centre) @ square @ (x - centre)
            row = np.concatenate([np.kron(x, np.eye(others)[k]), np.eye(others)[k]])
            assert row @ whole @ row == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "kept"), [("power", 1), ("constant", 0)])
def test_the_evidence_of_deviations_by_its_definition(name: str, kept: int) -> None:
    curve = make_curve(name, LAW.positions, 1, 3)
    lines, _ = lines_of(numbers(1, 0.1))
    assert lines.prior is not None
    h, y = lines.information / 1.5, (lines.information @ lines.theta + lines.score) / 1.5
    values = []
    for size in (BOUNDS[0], *DEVIATIONS):
        spread = np.full(3, size)
        spread[kept] = np.exp(lines.log_spread[kept])
        precision = lines.prior.matrix(spread)
        held = np.linalg.eigvalsh(precision)[1:]
        evidence = y @ np.linalg.solve(h + precision, y) + np.log(held).sum() - np.linalg.slogdet(h + precision)[1]
        values.append(evidence / 2)
    expected = np.mean(np.exp(np.array(values[1:]) - values[0]))
    assert evidence_of_deviations(lines, curve, 1.5) == pytest.approx(expected, rel=1e-4)
