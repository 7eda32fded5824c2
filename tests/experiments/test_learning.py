"""fig-learn: the family on small logs, and the judgement of what comes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.model.curves import Constant
from clickharvest.model.propensities import Propensities
from clickharvest.simulate import Simulation
from experiments import Plan, Result, Results, Run, learning
from experiments.learning import LIGHTGBM, NAIVE, SVM, TRUE, click_data, make_runs, simulate_run, spread
from experiments.measuring import measure
from experiments.models import CLICKSHARE, CPBM, PBM

LOG = {"training_queries": 1_200, "eta": 10.0, "zeta": 1.0, "flat_from": 21, "queries": 300, "test_queries": 100}
FAST = {"costs": [1.0], "clips": [0.1], "folds": 2, "search_queries": 100, "tol": 1e-2}


def small_run(model: str, learner: str = SVM, **fit: Any) -> Run:
    settings = make_runs(Plan(), [model], learner, seeds=1, sweeps=1, eta=10.0)[0].fit
    return Run(learning.FAMILY, "synthetic", 0, LOG, {**settings, **(FAST if learner == SVM else {}), **fit})


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate_run(small_run(TRUE).unfitted)


def made(
    sizes: dict[str, list[float]], *, learner: str = SVM, training_queries: int = 57_365, true: float = 60.0
) -> list[Result]:
    """Results with given differences to the AvgRank with true propensities."""
    log = {"training_queries": training_queries}
    return [
        Result(Run("learning", "w", seed, log, {"model": model, "learner": learner}), {"avg_rank": true + gap})
        for model, gaps in ({TRUE: [0.0] * 6} | sizes).items()
        for seed, gap in enumerate(gaps)
    ]


GOOD = {
    NAIVE: [0.5] * 6,
    PBM: [1.0, 1.2, 0.9, 1.1, 1.0, 1.0],
    CPBM: [0.2, -0.3, 0.1, 0.2, 0.3, 0.2],
    CLICKSHARE: [0.1] * 6,
}


class TestPlan:
    def test_full_plan(self) -> None:
        runs = learning.runs(Plan())
        svm = [run for run in runs if run["learner"] == SVM]
        assert len(svm) == 6 * 3 * 5
        assert sorted({run["training_queries"] for run in svm}) == [11_473, 22_946, 57_365]
        assert {run["eta"] for run in runs} == {10.0}
        assert {run["model"] for run in svm} == {NAIVE, PBM, CPBM, CLICKSHARE, TRUE}
        assert svm[0]["clips"] == [0.01, 0.03, 0.1, 0.3]
        assert (min(svm[0]["costs"]), max(svm[0]["costs"])) == (0.1, 100.0)

    def test_lightgbm_is_left_out_where_it_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(learning, "find_spec", lambda name: None)
        assert {run["learner"] for run in learning.runs(Plan())} == {SVM}
        monkeypatch.setattr(learning, "find_spec", lambda name: name)
        assert {run["learner"] for run in learning.runs(Plan())} == {SVM, LIGHTGBM}
        assert {run["learner"] for run in learning.runs(Plan(quick=True))} == {SVM}


class TestFamily:
    def test_all_documents_are_shown_and_examination_is_flat_from_21(self, simulation: Simulation) -> None:
        shown = (simulation.shown >= 0).sum(axis=2)
        assert (shown == simulation.train.sizes).all()
        p = simulation.train_examination
        assert p.shape[1] == simulation.train.sizes.max() > 21
        assert np.array_equal(p[:, 20:], np.repeat(p[:, 20:21], p.shape[1] - 20, axis=1))

    def test_click_data_has_every_click_with_its_propensity(self, simulation: Simulation) -> None:
        data = click_data(simulation, simulation.train_examination)
        assert data.clicks.sum() == simulation.clicks.sum()
        assert len(data) == len(simulation.train)
        ranker, query, place = (axis[0] for axis in np.nonzero(simulation.clicks))
        assert data.clicked[0] == simulation.shown[ranker, query, place]
        assert data.propensity[0] == simulation.train_examination[query, place]
        part = click_data(simulation, simulation.train_examination, 100)
        assert len(part) == 100
        assert part.clicks.sum() == simulation.clicks[:, :100].sum()

    def test_positions_without_an_estimate_use_the_last_above(self, simulation: Simulation) -> None:
        curve = Constant((1, 2, 4, 21), 1, 0)
        found = Propensities(curve, {"b": np.log([0.5, 0.25, 0.1])}, None, shown=tuple(range(1, 22)))
        p = spread(found, simulation)
        assert p.shape == simulation.train_examination.shape
        assert p[0, :6] == pytest.approx([1, 0.5, 0.5, 0.25, 0.25, 0.25])
        assert p[:, 19] == pytest.approx(0.25)
        assert p[:, 20:] == pytest.approx(0.1)

    def test_estimates_read_no_click_beyond_21(self, simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []

        def fit(settings: Any, interventions: Any, seed: int) -> Propensities:
            seen.append(int(interventions.position.max()))
            return Propensities(Constant((1, 2), 1, 0), {"b": np.log([0.5])}, None, shown=(1, 2))

        monkeypatch.setattr(learning, "fit_interventions", fit)
        learning.propensities.cache_clear()
        assert measure(small_run(PBM))["avg_rank"] > 0
        learning.propensities.cache_clear()
        assert seen == [21]

    def test_avg_rank_is_the_sum_of_the_ranks_of_relevant_documents(self, simulation: Simulation) -> None:
        numbers = measure(small_run(TRUE))
        ranker = learning._svm(simulation, simulation.train_examination, small_run(TRUE).fit, 0)[0]
        total, test = 0, simulation.test
        for start, end in zip(test.starts[:-1], test.starts[1:], strict=True):
            order = np.argsort(-ranker[start:end])
            total += int((np.flatnonzero(test.relevant[start:end][order]) + 1).sum())
        assert numbers["avg_rank"] == pytest.approx(total / len(test))
        assert numbers["chosen"] == {"C": 1.0, "clip": 0.1}

    def test_naive_clicks_ignore_propensities(self, simulation: Simulation) -> None:
        ones = np.ones(simulation.train_examination.shape)
        scores, _ = learning._svm(simulation, ones, small_run(TRUE).fit, 0)
        naive = measure(small_run(NAIVE))["avg_rank"]
        assert naive != measure(small_run(TRUE))["avg_rank"]
        found = learning.ranking_metrics(
            scores, simulation.test.grades, simulation.test.starts, ("avg_rank",), threshold=3
        )
        assert naive == pytest.approx(found["avg_rank"].mean())

    def test_lightgbm(self) -> None:
        pytest.importorskip("lightgbm", reason="the boost extra is not installed")
        numbers = measure(small_run(TRUE, LIGHTGBM, rounds=5))
        assert numbers["avg_rank"] > 0
        assert numbers["chosen"].keys() == {"clip", "trees"}

    def test_a_letor_world_needs_its_file(self) -> None:
        run = replace(small_run(TRUE), world="mq2007_part")
        with pytest.raises(InputError, match="--corpus"):
            learning.measure(run)


class TestJudgement:
    def test_differences_are_paired_by_learner_size_and_seed(self) -> None:
        results = Results(
            made(GOOD) + made(GOOD, training_queries=11_473, true=70.0) + made({PBM: [9.0]}, learner=LIGHTGBM)
        )
        found = learning.differences(results)
        assert found.where(model=PBM, training_queries=11_473, learner=SVM, seed=1).values(
            "difference"
        ) == pytest.approx([1.2])
        assert found.where(model=CPBM, training_queries=57_365, seed=1).values("size") == pytest.approx([0.3])
        assert found.where(model=PBM, learner=LIGHTGBM).values("difference") == pytest.approx([9.0])
        assert set(found.where(model=TRUE).values("difference")) == {0.0}

    def test_checks_pass_and_tell_means_and_test(self) -> None:
        judged = learning.checks(Results(made(GOOD)))
        assert [check.passed for check in judged] == [True] * 4
        assert "CPBM AllPairs 0.217 (difference +0.117), PBM 1.033" in judged[0].sentence
        assert "6 runs" in judged[0].sentence
        assert "p = " in judged[0].sentence

    @pytest.mark.parametrize(
        ("change", "failed"),
        [
            ({CPBM: [-1.5] * 6}, [0]),
            ({CLICKSHARE: [0.4] * 6}, [2]),
            ({CLICKSHARE: [1.5, -1.5] * 3}, [1, 2, 3]),
            ({NAIVE: [0.0] * 6}, [3]),
        ],
    )
    def test_checks_can_fail(self, change: dict[str, list[float]], failed: list[int]) -> None:
        judged = learning.checks(Results(made(GOOD | change)))
        assert [i for i, check in enumerate(judged) if not check.passed] == failed

    def test_only_the_largest_size_is_judged(self) -> None:
        bad = made(GOOD | {PBM: [0.0] * 6}, training_queries=11_473)
        assert all(check.passed for check in learning.checks(Results(bad + made(GOOD))))

    def test_refused_runs_do_not_pass(self) -> None:
        results = [r for r in made(GOOD) if r.run["model"] != CPBM]
        results += [
            Result(
                Run("learning", "w", 0, {"training_queries": 57_365}, {"model": CPBM, "learner": SVM}),
                {"refused": "no"},
            )
        ]
        judged = learning.checks(Results(results))
        assert [check.passed for check in judged] == [False, True, False, True]

    def test_paired_test_is_scipys(self) -> None:
        from scipy.stats import ttest_rel

        found = learning.differences(Results(made(GOOD)))
        p = learning.paired_test(found.where(model=CPBM), found.where(model=PBM))
        assert p == pytest.approx(ttest_rel(np.abs(GOOD[CPBM]), GOOD[PBM]).pvalue)

    def test_table_headline_and_chart(self) -> None:
        results = Results(made(GOOD) + made(GOOD, learner=LIGHTGBM))
        rows = learning.rows(results)
        assert len(rows) == 10
        row = next(r for r in rows if r["propensities"] == PBM and r["learner"] == "SVM-Rank")
        assert row["difference"] == pytest.approx(np.mean(GOOD[PBM]))
        assert row["sd"] == pytest.approx(np.std(GOOD[PBM], ddof=1))
        assert row["p against PBM"] is None
        lines = learning.headlines(results)
        assert [line.ours for line in lines] == pytest.approx([np.mean(GOOD[CPBM])] * 2)
        assert len(learning.chart(results).to_dict()["vconcat"]) == 2
