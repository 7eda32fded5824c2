"""Boosting objectives: the loss by its definition, derivatives by finite differences, and what the libraries do."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.rank import pairs
from clickharvest.rank.boosting import ClickObjective, LambdaObjective, PairwiseObjective, doubly_robust_labels
from places import BENCHMARKS

lgb = pytest.importorskip("lightgbm", reason="the boost extra is not installed")
xgb = pytest.importorskip("xgboost", reason="the boost extra is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
OBJECTIVES = [PairwiseObjective(), LambdaObjective(), LambdaObjective(at=2, seed=4)]
Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def demonstration() -> Any:
    """The script behind docs/boosting.md."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("boosting")


def lists(seed: int = 0) -> tuple[Array, Array, Array]:
    """Lists of 5, 1, 3, 5, 2 and 4 documents: none, one, several and all clicked, with unequal weights."""
    random = np.random.default_rng(seed)
    starts = np.array([0, 5, 6, 9, 14, 16, 20])
    y = random.gamma(1.0, 3.0, 20) * (random.random(20) < 0.4)
    y[6:9] = 0
    y[14:16] = [2.5, 0.5]
    return random.normal(size=20), y, starts


def defined_loss(objective: ClickObjective, s: Array, y: Array, starts: Array, ranked_by: Array) -> float:
    """L as the module's docstring writes it; scores differ, so that ranks are plain."""
    total = 0.0
    for begin, end in itertools.pairwise(starts):
        members = range(begin, end)
        rank = {i: 1 + sum(ranked_by[j] > ranked_by[i] for j in members) for i in members}

        def discount(i: int, rank: dict[int, int] = rank) -> float:
            at = getattr(objective, "at", None)
            return 1 / math.log2(1 + rank[i]) if at is None or rank[i] <= at else 0.0

        for i in members:
            for j in members:
                if i != j:
                    delta = 1.0 if isinstance(objective, PairwiseObjective) else abs(discount(i) - discount(j))
                    total += y[i] * delta * math.log(1 + math.exp(-(s[i] - s[j])))
    return total


def difference(function: Callable[[Array], Any], s: Array, step: float = 1e-5) -> Array:
    moves = np.eye(len(s)) * step
    return np.array([(function(s + move) - function(s - move)) / (2 * step) for move in moves])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_loss_is_its_definition_and_gradients_are_its_differences(objective: ClickObjective, seed: int) -> None:
    s, y, starts = lists(seed)
    other = np.random.default_rng(99).normal(size=20)
    for ranked_by in (s, other):
        ours = objective.loss(s, y, starts, ranked_by=ranked_by)
        assert ours == pytest.approx(defined_loss(objective, s, y, starts, ranked_by), rel=1e-12)
    slope, curvature = objective.gradients(s, y, starts)

    def loss(moved: Array) -> float:
        return defined_loss(objective, moved, y, starts, s)

    assert slope == pytest.approx(difference(loss, s), abs=1e-7)
    second = np.array([(loss(s + e) - 2 * loss(s) + loss(s - e)) / 1e-6 for e in np.eye(20) * 1e-3])
    assert curvature == pytest.approx(second, rel=1e-4, abs=1e-6)
    assert (curvature > 0).all()
    assert np.add.reduceat(slope, starts[:-1]) == pytest.approx(np.zeros(6), abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_blocks_do_not_matter(objective: ClickObjective, monkeypatch: pytest.MonkeyPatch) -> None:
    s, y, starts = lists(1)
    whole = objective.gradients(s, y, starts)
    monkeypatch.setattr(pairs, "PAIRS_AT_ONCE", 1)
    parts = objective.gradients(s, y, starts)
    assert (parts[0].tolist(), parts[1].tolist()) == (whole[0].tolist(), whole[1].tolist())


def test_a_repeated_list_may_be_summed_up() -> None:
    s, y, starts = np.array([0.3, -0.2, 0.1]), np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]), [0, 3]
    for objective in OBJECTIVES:
        apart = objective.loss(np.tile(s, 2), y.ravel(), [0, 3, 6])
        assert apart == pytest.approx(objective.loss(s, y.sum(axis=0), starts))


def test_extreme_scores_stay_finite() -> None:
    for objective in OBJECTIVES:
        slope, curvature = objective.gradients([-1e4, 1e4, 0.0], [3.0, 0.0, 1.0], [0, 3])
        assert np.isfinite(slope).all()
        assert (curvature > 0).all()
    assert PairwiseObjective().loss([-1e4, 1e4], [3.0, 0.0], [0, 2]) == pytest.approx(6e4)


def test_equal_scores_are_ranked_by_the_seed_not_by_the_rows() -> None:
    y, starts = np.tile([1.0, 0, 0, 0, 0, 0, 0, 0], 40), np.arange(0, 321, 8)
    first, again, other = (LambdaObjective(seed=s).gradients(np.zeros(320), y, starts)[0] for s in (0, 0, 1))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()
    assert len(set(first[::8].round(12))) > 3


@pytest.mark.parametrize("objective", OBJECTIVES[:2], ids=str)
def test_both_libraries_use_these_gradients(objective: ClickObjective, demonstration: Any) -> None:
    y = demonstration.CLICKS * demonstration.WEIGHTS
    exact = objective.gradients(demonstration.SCORES, y, [0, 6])[0]
    assert demonstration.lightgbm_gradients(objective, y, None) == pytest.approx(exact, rel=2e-3, abs=1e-3)
    assert demonstration.xgboost_gradients(objective, y) == pytest.approx(exact, rel=2e-3, abs=1e-3)


def test_lightgbm_multiplies_summed_lambdas_by_the_weight(demonstration: Any) -> None:
    clicks, weights = demonstration.CLICKS, demonstration.WEIGHTS
    plain = demonstration.lightgbm_gradients("lambdarank", clicks, None)
    weighted = demonstration.lightgbm_gradients("lambdarank", clicks, weights)
    assert plain == pytest.approx(demonstration.naive_lambdas(), rel=2e-3)
    assert weighted == pytest.approx(weights * demonstration.naive_lambdas(), rel=2e-3)
    # Adding a constant to all scores of a list changes no ranking, so the slopes of a ranking loss sum to 0.
    assert abs(weighted.sum()) > 1
    assert abs(plain.sum()) < 1e-2


def test_what_lightgbm_follows_is_no_gradient_of_any_loss() -> None:
    """One clicked document of weight 4, one other of weight 1: ∂g_1/∂s_2 is four times ∂g_2/∂s_1."""

    def followed(s: Array) -> Array:
        return PairwiseObjective().gradients(s, [1.0, 0.0], [0, 2])[0] * [4.0, 1.0]

    def counterfactual(s: Array) -> Array:
        return PairwiseObjective().gradients(s, [4.0, 0.0], [0, 2])[0]

    s = np.array([0.2, -0.3])
    jacobian, hessian = difference(followed, s), difference(counterfactual, s)
    assert jacobian[1, 0] / jacobian[0, 1] == pytest.approx(4)
    assert hessian[1, 0] == pytest.approx(hessian[0, 1])


def test_xgboost_has_one_weight_a_list(demonstration: Any) -> None:
    clicks, weights = demonstration.CLICKS, demonstration.WEIGHTS
    data = xgb.DMatrix(np.zeros((6, 1)), clicks, group=[6], weight=weights)
    with pytest.raises(xgb.core.XGBoostError, match="number of query groups"):
        xgb.train({"objective": "rank:pairwise"}, data, 1)
    plain = demonstration.xgboost_gradients("rank:pairwise", clicks)
    weighted = demonstration.xgboost_gradients("rank:pairwise", clicks, np.array([1.0, 3.0]))
    assert weighted / plain == pytest.approx(np.full(6, 1 / np.mean([1, 3])), rel=1e-3)


def simulated(seed: int) -> tuple[Array, Array, list[int]]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(800, 4))
    y = (random.random(800) < 1 / (1 + np.exp(2 - 2 * x[:, 0]))) * random.choice([1.0, 5.0], 800)
    return x, y, [8] * 100


@pytest.mark.parametrize("objective", OBJECTIVES[:2], ids=str)
def test_lightgbm_trains_and_stops_early(objective: ClickObjective) -> None:
    (x, y, sizes), (z, v, test_sizes) = simulated(0), simulated(1)
    settings = {"objective": objective, "metric": "None", "verbose": -1, "num_threads": 1, "learning_rate": 0.3}
    train = lgb.Dataset(x, y, group=sizes)
    test = lgb.Dataset(z, v, group=test_sizes, reference=train)
    history: dict[str, Any] = {}
    stops = [lgb.early_stopping(5, verbose=False), lgb.record_evaluation(history)]
    model = lgb.train(settings, train, 60, [test], feval=objective.metric, callbacks=stops)
    curve = history["valid_0"][objective.name]
    assert 0 < model.best_iteration < 60
    bounds = np.arange(0, 801, 8)
    found = objective.loss(model.predict(z), v, bounds) / v.sum()
    assert found == pytest.approx(curve[model.best_iteration - 1], rel=1e-5)
    assert found < objective.loss(np.zeros(800), v, bounds) / v.sum()


@pytest.mark.parametrize("objective", OBJECTIVES[:2], ids=str)
def test_xgboost_trains_by_group_or_qid(objective: ClickObjective) -> None:
    (x, y, sizes), (z, v, test_sizes) = simulated(0), simulated(1)
    settings = {"nthread": 1, "eta": 0.3, "disable_default_eval_metric": True, "base_score": 0.0, "max_depth": 3}
    test = xgb.DMatrix(z, v, group=test_sizes)
    predictions = []
    for data in (xgb.DMatrix(x, y, group=sizes), xgb.DMatrix(x, y, qid=np.repeat(np.arange(100), 8))):
        history: dict[str, Any] = {}
        model = xgb.train(
            settings, data, 60, evals=[(test, "test")], obj=objective, custom_metric=objective.metric,
            early_stopping_rounds=5, evals_result=history, verbose_eval=False,
        )  # fmt: skip
        assert 0 < model.best_iteration < 59
        curve = history["test"][objective.name]
        assert curve[model.best_iteration] < objective.loss(np.zeros(800), v, np.arange(0, 801, 8)) / v.sum()
        predictions.append(model.predict(test).tolist())
    assert predictions[0] == predictions[1]


def test_lightgbm_ranker_trains_like_train() -> None:
    x, y, sizes = simulated(0)
    objective = PairwiseObjective()
    ranker = lgb.LGBMRanker(objective=objective.ranker, n_estimators=5, verbose=-1, n_jobs=1)
    ranker.fit(x, y, group=sizes)
    settings = {"objective": objective, "verbose": -1, "num_threads": 1}
    model = lgb.train(settings, lgb.Dataset(x, y, group=sizes), 5)
    assert ranker.predict(x) == pytest.approx(model.predict(x))


def test_weights_of_a_data_set_multiply_the_labels() -> None:
    x, y, sizes = simulated(2)
    objective = PairwiseObjective()
    s = x[:, 1]
    click, weight = (y > 0).astype(float), np.where(y > 0, y, 1.0)
    expected = objective.gradients(s, y, np.arange(0, 801, 8))[0]
    data = lgb.Dataset(x, click, weight=weight, group=sizes).construct()
    assert objective(s, data)[0] == pytest.approx(expected, rel=1e-6)
    per_list = np.linspace(1, 2, 100)
    data = xgb.DMatrix(x, y, weight=per_list, group=sizes)
    assert objective(s, data)[0] == pytest.approx(expected * np.repeat(per_list, 8), rel=1e-5, abs=1e-6)


def test_lists_may_be_empty() -> None:
    objective = PairwiseObjective()
    full, with_empty = (objective.gradients([0, 1, 2, 3], [1, 0, 0, 2], starts) for starts in ([0, 2, 4], [0, 2, 2, 4]))
    assert np.array_equal(full, with_empty)


def test_what_is_refused() -> None:
    objective = PairwiseObjective()
    with pytest.raises(InputError, match="no lists"):
        objective(np.zeros(2), lgb.Dataset(np.zeros((2, 1)), [0, 1]).construct())
    with pytest.raises(InputError, match="no lists"):
        objective(np.zeros(2), xgb.DMatrix(np.zeros((2, 1)), [0, 1]))
    with pytest.raises(InputError, match="finite and 0 or more"):
        objective.gradients([0, 0], [1, -1], [0, 2])
    with pytest.raises(InputError, match="finite and 0 or more"):
        objective.gradients([0, 0], [1, math.nan], [0, 2])
    with pytest.raises(InputError, match="one of each for all 2 documents"):
        objective.gradients([0, 0, 0], [1, 0, 0], [0, 2])
    with pytest.raises(InputError, match="rise from 0"):
        objective.loss([0, 0], [1, 0], [0, 2, 1])
    with pytest.raises(InputError, match="rise from 0"):
        objective.loss([0], [1], [1, 2])
    with pytest.raises(InputError, match="rise from 0"):
        objective.loss([], [], [0])
    with pytest.raises(InputError, match="1 or more"):
        LambdaObjective(at=0)


def test_doubly_robust_labels_are_right_where_either_part_is() -> None:
    """Over many draws: with the true relevance everywhere, with a wrong one where nothing is clipped."""
    random = np.random.default_rng(0)
    p, r = np.array([1.0, 0.5, 0.1, 0.02, 0.0]), np.array([0.3, 0.8, 0.5, 0.9, 0.4])
    n = 200_000
    clicks = random.binomial(n, p * r).astype(float)
    shown = np.full(5, n)
    right = doubly_robust_labels(clicks, p, r, clip=0.2, impressions=shown) / n
    wrong = doubly_robust_labels(clicks, p, r / 2, clip=0.2, impressions=shown) / n
    error = np.sqrt(p * r * (1 - p * r) / n) / np.maximum(p, 0.2)
    assert (np.abs(right - r) <= 5 * error + 1e-12).all()
    assert (np.abs(wrong - r)[:2] <= 5 * error[:2]).all()
    assert (wrong[2:] < r[2:]).all()
    plain = doubly_robust_labels(clicks, p, 0 * r, clip=0.2)
    assert plain == pytest.approx(clicks / np.maximum(p, 0.2))


def test_doubly_robust_labels_refuse_what_they_cannot_use() -> None:
    with pytest.raises(InputError, match="clip is 0"):
        doubly_robust_labels([1], [0.5], [0.5], clip=0)
    with pytest.raises(InputError, match="0 or more everywhere"):
        doubly_robust_labels([1], [0.5], [-0.5], clip=0.1)
    with pytest.raises(InputError, match="one of each"):
        doubly_robust_labels([1], [0.5, 0.2], [0.5], clip=0.1)


def test_scikit_learns_wrappers_are_told_what_to_pass() -> None:
    """`LGBMRanker` gives an objective labels and scores, without lists: its `ranker` is what takes them."""
    lightgbm = pytest.importorskip("lightgbm", reason="the boost extra is not installed")
    x, y, sizes = np.arange(40.0).reshape(-1, 1), np.tile([0.0, 1.0], 20), [4] * 10
    settings = {"metric": "None", "min_child_samples": 1, "n_estimators": 3, "verbosity": -1}
    with pytest.raises(InputError, match=r"for LGBMRanker pass objective=….ranker"):
        lightgbm.LGBMRanker(objective=PairwiseObjective(), **settings).fit(x, y, group=sizes)
    ranker = lightgbm.LGBMRanker(objective=PairwiseObjective().ranker, **settings)
    ranker.fit(x, y, group=sizes)
    assert np.ptp(ranker.predict(x)) > 0
