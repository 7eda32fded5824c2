"""Pooling: likelihood and evidence against finite differences, hand-made and simulated cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clickharvest.estimation import multinomial_logit
from clickharvest.estimation.cells import cells_of
from clickharvest.estimation.multinomial_logit import MultinomialLogit
from clickharvest.estimation.pooling import BOUNDS, can_pool, curve_order, pool, with_penalty
from clickharvest.estimation.power_law_prior import PowerLawPrior
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import Constant, Linear, make_curve

Array = NDArray[np.float64]


def simulated(
    seed: int, *, queries: int = 40, k: int = 5, features: int = 0, displays: float = 8, log_p: Any = None, **more: Any
) -> Sample:
    """Four units a query, shown at two to four positions; clicks follow log p_k(x) = log_p + x·W, 1/k by default."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(queries, features))
    log_p = -np.log(np.arange(1, k + 1)) if log_p is None else log_p
    rate = np.exp(log_p + x @ more.get("weights", np.zeros((features, k))))
    unit = np.arange(4 * queries)
    order = random.permuted(np.tile(np.arange(k), (len(unit), 1)), axis=1)
    row, slot = np.nonzero(np.arange(k) < (2 + unit % 3)[:, None])
    position = order[row, slot]
    shown = 1 + random.poisson(displays, len(row))
    clicks = random.binomial(
        shown, np.minimum(1, 0.3 * random.uniform(0.2, 1, len(unit))[row] * rate[row // 4, position])
    )
    context = row // 4 if features else np.zeros(len(row), dtype=int)
    x = x if features else np.zeros((1, 0))
    positions = tuple(range(1, k + 1))
    return Sample(positions, x, row, context, position, shown.astype(float), clicks, shown, row // 4, queries)


def varying(sample: Sample) -> Sample:
    """The same cells, contexts now differing inside units."""
    random = np.random.default_rng(0)
    return replace(sample, context=random.integers(len(sample.x), size=len(sample.unit)), unit_kind="query")


def dominated(sample: Sample) -> Sample:
    """The same cells, half of them of one unit."""
    return replace(sample, unit=np.maximum(sample.unit - sample.n_units // 2, 0))


def linear(sample: Sample, anchor: int) -> MultinomialLogit:
    """The shares of a linear curve."""
    return MultinomialLogit(cells_of(sample), sample.x, anchor, varying=sample.unit_kind == "query")


CASES = [simulated(0), simulated(1, features=2), *(varying(simulated(i, features=2)) for i in (2, 3))]
CASES[3] = dominated(CASES[3])


@pytest.mark.parametrize("sample", CASES)
def test_score_and_information_are_the_derivatives(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = linear(sample, 2)
    theta = 0.3 * np.random.default_rng(0).normal(size=shares.size)
    at, step = shares.shares(theta), 1e-5 * np.eye(shares.size)
    slopes = [(shares.shares(theta + e).value - shares.shares(theta - e).value) / 2e-5 for e in step]
    assert shares.score(at) == pytest.approx(np.array(slopes), abs=1e-5)
    bends = [(shares.score(shares.shares(theta - e)) - shares.score(shares.shares(theta + e))) / 2e-5 for e in step]
    assert shares.information(at) == pytest.approx(np.array(bends), abs=1e-5)
    monkeypatch.setattr(multinomial_logit, "ENTRIES", 50)
    assert linear(sample, 2).information(at) == pytest.approx(shares.information(at), abs=1e-9)


def test_design_holds_what_the_score_sums() -> None:
    for sample in CASES:
        shares = linear(sample, 1)
        at = shares.shares(np.zeros(shares.size))
        cells = np.random.default_rng(1).permutation(len(shares.unit))
        assert shares.design(cells).T @ at.residual[cells] == pytest.approx(shares.score(at))


def test_one_unit_at_two_positions_has_the_ratio_of_its_click_rates() -> None:
    # 30 clicks of 100 displays at position 1 and 6 of 40 at position 2: p_2 / p_1 = .15 / .30. H is 36 · 5/6 · 1/6.
    counts = {"exposure": np.array([100.0, 40.0]), "clicks": np.array([30, 6]), "impressions": np.array([100, 40])}
    zero = np.zeros(2, dtype=int)
    sample = Sample((1, 2), np.zeros((1, 0)), zero, zero, np.array([0, 1]), **counts, cluster=zero, n_clusters=1)
    found = pool(Constant((1, 2), 1, 0), sample)
    assert found.theta == pytest.approx(np.log([0.5]), abs=1e-6)
    assert found.information == pytest.approx(np.array([[36 * 5 / 6 / 6]]), rel=1e-6)
    assert found.spread is not None
    assert found.spread["position"] is None


@pytest.mark.parametrize("sample", CASES)
def test_evidence_has_its_gradient_and_the_spread_is_at_its_top(sample: Sample) -> None:
    curve = Linear(sample.positions, 1, sample.x.shape[1]) if sample.x.shape[1] else Constant(sample.positions, 1, 0)
    found = pool(curve, sample)
    prior = PowerLawPrior(curve.log_distance(), 0, found.shares.width, found.shares.size)
    linear = found.information @ found.theta + found.shares.score(found.at)
    at = np.log([0.2, 0.4, 0.1])
    _, gradient = prior.evidence(at, found.information, linear)
    step = 1e-5 * np.eye(3)
    value = [prior.evidence(at + s, found.information, linear)[0] for s in (*step, *-step)]
    assert gradient[prior.learned] == pytest.approx((np.subtract(value[:3], value[3:]) / 2e-5)[prior.learned], abs=1e-4)
    assert found.spread is not None
    tau = list(found.spread.values())
    best = np.log([BOUNDS[0] if t is None else t for t in tau])
    top, _ = prior.evidence(best, found.information, linear)
    for nudge in np.eye(3)[prior.learned]:
        assert max(prior.evidence(best + s * nudge, found.information, linear)[0] for s in (-0.3, 0.3)) < top


def test_precision_is_that_of_the_effects() -> None:
    # Var W_k = τ_ω² (I + 11ᵀ) + τ_u² L Lᵀ for every feature; Var b = τ_δ² (I + 11ᵀ) across L, along it all is possible.
    shares = linear(CASES[1], 1)
    log_distance = np.log(np.arange(2.0, 6.0))
    matrix = (
        PowerLawPrior(log_distance, 0, shares.width, shares.size).matrix(np.array([0.5, 0.3, 0.2])).reshape(4, 3, 4, 3)
    )
    variance = 0.04 * (np.eye(4) + 1) + 0.09 * np.outer(log_distance, log_distance)
    assert np.linalg.inv(matrix[:, 1, :, 1]) == pytest.approx(variance, rel=1e-5)
    assert matrix[:, 0, :, 0] @ log_distance == pytest.approx(0, abs=1e-6)
    across = np.array([log_distance[1], -log_distance[0], 0, 0])
    spread = across @ np.linalg.solve(matrix[:, 0, :, 0], across)
    assert spread == pytest.approx(0.25 * (across @ across + across.sum() ** 2), rel=1e-3)
    assert matrix[:, 0, :, 1] == pytest.approx(0)


def test_order_and_names_of_rows_do_not_matter_and_split_rows_count_together() -> None:
    sample = simulated(3, features=1)
    curve = Linear(sample.positions, 1, 1)
    found = pool(curve, sample)
    random = np.random.default_rng(0)
    order = np.lexsort((random.random(len(sample.unit)), sample.unit))
    names = random.permutation(sample.n_clusters)
    rows = {name: getattr(sample, name)[order] for name in ("unit", "context", "position", "exposure", "clicks")}
    other = pool(
        curve, replace(sample, **rows, impressions=sample.impressions[order], cluster=names[sample.cluster][order])
    )
    assert other.theta == pytest.approx(found.theta, abs=1e-5)
    assert other.information == pytest.approx(found.information, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("displays", [20, 2_000])
def test_a_dense_log_leaves_positions_free_a_sparse_one_pools_them(displays: int) -> None:
    bumps = -np.log(np.arange(1, 9)) + np.array([0, 0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5])
    sample = simulated(5, k=8, displays=displays, log_p=bumps)
    curve = Constant(sample.positions, 1, 0)
    free = with_penalty(curve, sample, 0.0)
    apart = np.abs(pool(curve, sample).theta - free.theta).max()
    se = np.sqrt(np.diag(np.linalg.inv(free.information))).max()
    assert apart < 0.6 * se if displays == 20 else apart < 0.05 * se + 1e-3


@pytest.mark.parametrize("k", [10, 100])
def test_few_clicks_give_a_smooth_curve_many_a_free_one(k: int) -> None:
    steps = -np.log(np.arange(1, k + 1)) - 0.8 * (np.arange(k) % 3 == 1)
    curve = Constant(tuple(range(1, k + 1)), 1, 0)

    def roughness(displays: float, seed: int = 6) -> float:
        sample = simulated(seed, queries=60, k=k, displays=displays, log_p=0.5 * steps)
        return off_line(pool(curve, sample).theta)

    def off_line(log_p: Array) -> float:
        law = np.stack([np.ones(k - 1), curve.log_distance()], axis=1)
        return float(np.std(log_p - law @ np.linalg.lstsq(law, log_p, rcond=None)[0]))

    # A hundred positions have half a click each: on their own they would be off by one and more.
    assert np.mean([roughness(1, seed) for seed in range(6, 10)]) < 0.2
    assert roughness(2_000) > 0.8 * off_line(0.5 * steps[1:])


def test_the_anchor_is_a_position_like_any_other() -> None:
    """Fits with other anchors are the same curve; a law through the anchor would make it another one."""
    sample = simulated(8, k=8, log_p=-np.log(np.arange(1, 9)) - 1.5 * (np.arange(8) == 0))
    first, other = (pool(Constant(sample.positions, anchor, 0), sample).theta for anchor in (1, 5))
    first, other = np.insert(first, 0, 0), np.insert(other, 4, 0)
    assert first - first[4] == pytest.approx(other, abs=0.01)


def test_a_top_that_is_off_the_law_does_not_move_all_others() -> None:
    """Fifty positions, the first an advertisement that few look at: a law through it makes all others a third."""
    log_p = -np.log(np.arange(1, 51)) - np.log(10) * (np.arange(50) == 0)
    errors = []
    for seed in range(6):
        sample = simulated(seed, queries=250, k=50, displays=40, log_p=log_p)
        errors.append((pool(Constant(sample.positions, 1, 0), sample).theta - log_p[1:] + log_p[0]).mean())
    assert abs(np.mean(errors)) < 0.55


def test_a_penalty_gives_the_ridge_that_it_names() -> None:
    sample = simulated(7, features=2)
    curve = Linear(sample.positions, 1, 2)
    found = with_penalty(curve, sample, 3.0)
    slope = found.shares.score(found.at).reshape(4, 3)
    assert slope[:, 0] == pytest.approx(0, abs=1e-4)
    assert slope[:, 1:] == pytest.approx(3 * found.theta.reshape(4, 3)[:, 1:], abs=1e-4)
    params = found.theta[curve_order(curve, found.shares)]
    assert params[:8].reshape(2, 4) == pytest.approx(found.theta.reshape(4, 3)[:, 1:].T)


def test_refitting_without_queries_is_fitting_the_others() -> None:
    sample = simulated(8)
    curve = Constant(sample.positions, 1, 0)
    found = pool(curve, sample)
    kept = (np.arange(sample.n_clusters) % 4 > 0).astype(float)
    rows = kept[sample.cluster] > 0
    names = ("unit", "context", "position", "exposure", "clicks", "impressions", "cluster")
    fewer = replace(sample, **{name: getattr(sample, name)[rows] for name in names})
    again = found.refit(kept)
    slope = linear(fewer, 1).score(linear(fewer, 1).shares(again.theta))
    assert slope == pytest.approx(again.precision @ again.theta, abs=1e-4)
    alone = pool(curve, replace(fewer, unit=np.unique(fewer.unit, return_inverse=True)[1]))
    assert again.log_spread == pytest.approx(alone.log_spread, abs=0.05)


def test_what_is_not_linear_or_too_large_is_not_pooled() -> None:
    sample = simulated(9, features=2)
    assert can_pool(Linear(sample.positions, 1, 2), sample)
    assert can_pool(Constant(sample.positions, 1, 2), sample)
    assert not can_pool(make_curve("power", sample.positions, 1, 2), sample)
    assert not can_pool(Constant(sample.positions, 1, 2), varying(sample))
    assert not can_pool(Linear(tuple(range(1, 1_001)), 1, 2), sample)
