"""The experiments on the arXiv-like log: sums that replace queries, parts that stay apart, and checks that can fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from clickharvest.baselines import swap_ratio
from clickharvest.estimation.estimators import CPBM as ContextualModel
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.allpairs import AllPairs
from clickharvest.estimation.sample import make_sample
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.simulate.arxiv import PAPER_SIZES, QUERIES, ArxivSimulation, simulate_arxiv
from experiments import Plan, Result, Results, Run, feature_groups, load_experiments
from experiments.arxiv import FAMILY, SWAP_RATIO, measure
from experiments.arxiv_bands import all_pairs_bands, pooled_pairs, swap_ratio_bands
from experiments.models import CLICKSHARE

POSITIONS = 4
ARXIV = ("table-size", "fig-complex", "fig-complexcpbm", "table-max")


@pytest.fixture(scope="module")
def simulation() -> ArxivSimulation:
    return simulate_arxiv(queries=3000, positions=POSITIONS)


@pytest.fixture(scope="module")
def pages(simulation: ArxivSimulation) -> Interventions:
    return simulation.interventions(features=["complex"])


class TestBands:
    def test_pooled_cells_have_the_same_objective(self, pages: Interventions) -> None:
        encoder = ContextEncoder.fit(pages.contexts)
        cells, parts = pooled_pairs(pages)
        positions = tuple(range(1, POSITIONS + 1))
        values = []
        for interventions in (pages, cells):
            sample = make_sample(interventions, positions, encoder)
            curve = make_curve("mlp", positions, 1, 1, width=0)
            fit = Fit(curve, AllPairs(sample, relevance="mlp", width=0), sample)
            values.append(fit.held_out(fit.starts(2, seed=3), np.ones((2, fit.n_clusters))))
        factor = np.asarray(parts.sum(axis=0)).mean()
        assert_allclose(values[0], values[1] * factor, rtol=1e-9)

    def test_parts_of_queries_sum_to_the_cells(self, pages: Interventions) -> None:
        cells, parts = pooled_pairs(pages)
        total = np.asarray(parts.sum(axis=0))
        seen = cells.impressions > 0
        assert_allclose(total.mean() / cells.exposure[seen], total)

    def test_all_pairs_is_the_cpbm_of_the_whole_log(self, pages: Interventions) -> None:
        found = all_pairs_bands(pages, width=0, replicates=30, seed=0)
        model = ContextualModel(
            curve="mlp", width=0, objective="allpairs", relevance="mlp", penalty=0.0, intervals=None
        ).fit(pages)
        contexts = {"complex": [0, 1]}
        prediction = found.predict(contexts)
        assert_allclose(prediction.propensity, model.predict(contexts).propensity, rtol=0.02)
        assert found.draws is not None
        assert_array_equal(found.draws, all_pairs_bands(pages, width=0, replicates=30, seed=0).draws)
        assert np.all(prediction.lower[:, 1:] < prediction.propensity[:, 1:])
        assert np.all(prediction.upper[:, 1:] > prediction.propensity[:, 1:])

    def test_swap_ratio_is_the_baseline(self, simulation: ArxivSimulation) -> None:
        swaps = simulation.interventions(part="swap")
        found = swap_ratio_bands(swaps, replicates=200, seed=0)
        assert_allclose(found.predict().propensity, swap_ratio(swaps).predict().propensity, rtol=1e-9)

    def test_swap_ratio_draws_spread_like_refits(self, simulation: ArxivSimulation) -> None:
        swaps = simulation.interventions(part="swap").clicked()
        found = swap_ratio_bands(swaps, replicates=400, seed=0)
        queries, query = np.unique(swaps.query, return_inverse=True)
        random = np.random.default_rng(5)
        refits = []
        for _ in range(100):
            weight = random.poisson(1.0, len(queries))[query]
            resampled = replace(swaps, clicks=swaps.clicks * weight, impressions=swaps.impressions * weight)
            refits.append(swap_ratio(resampled).params["b"])
        assert found.draws is not None
        assert_allclose(found.draws.std(axis=0), np.std(refits, axis=0), rtol=0.3)


class TestMeasure:
    @pytest.mark.parametrize(("model", "part"), [(SWAP_RATIO, "swap"), (CLICKSHARE, "ab")])
    def test_same_run_same_numbers(self, model: str, part: str) -> None:
        run = Run(FAMILY, "arxiv", 0, {"queries": 5000}, {"model": model, "part": part, "replicates": 5})
        numbers = measure(run)
        assert numbers == measure(run)
        assert numbers["simple_propensity"][0] == numbers["complex_propensity"][0] == 1
        assert len(numbers["simple_truth"]) == 21

    def test_the_test_part_chooses_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With other clicks on the test pages, everything but the test objective stays the same."""
        options = {"model": CLICKSHARE, "features": "ord_in_session", "tolerance": 1e-5}
        options |= {"curves": [{"name": "power"}], "penalties": [1.0, 100.0]}
        run = Run(feature_groups.FAMILY, "arxiv", 0, {"queries": 3000}, options)
        original = simulate_arxiv(queries=3000)
        altered = original.clicks.copy()
        own = np.flatnonzero(original.pages("ab", "test"))
        altered[own] = np.roll(altered[own], 1, axis=0) & (original.position[own] > 0)
        found = []
        for clicks in (original.clicks, altered):
            monkeypatch.setattr(feature_groups, "arxiv_log", lambda run, c=clicks: replace(original, clicks=c))
            feature_groups._base.cache_clear()
            found.append(feature_groups.measure(run))
        feature_groups._base.cache_clear()
        first, second = found
        assert first["objective"] != second["objective"]
        assert first["penalty"] == second["penalty"]
        assert first["validation"] == pytest.approx(second["validation"], rel=1e-6)


def curves(complex_: float, simple: float, width: float) -> dict[str, Any]:
    """Return numbers of power curves with bands."""
    numbers: dict[str, Any] = {"complex_width": width, "simple_width": width}
    for kind, eta in (("complex", complex_), ("simple", simple)):
        p = np.arange(1, 22.0) ** -eta
        band = np.where(p < 1, width, 0)
        for name, values in {"propensity": p, "truth": p, "lower": p - band, "upper": p + band}.items():
            numbers[f"{kind}_{name}"] = values.tolist()
    return numbers


def results_of(name: str, numbers: dict[str, Any] | list[dict[str, Any]], *, quick: bool = False) -> Results:
    runs = load_experiments([name])[0].runs(Plan(quick=quick, world="arxiv"))
    each = numbers if isinstance(numbers, list) else [numbers] * len(runs)
    return Results(Result(run, found) for run, found in zip(runs, each, strict=True))


def verdicts(name: str, results: Results) -> list[bool]:
    return [check.passed for check in load_experiments([name])[0].checks(results)]


class TestChecks:
    def test_table_size(self) -> None:
        sizes = {}
        for (kind, part), (queries, clicks) in PAPER_SIZES.items():
            sizes |= {f"{kind}_{part}_queries": queries, f"{kind}_{part}_clicks": clicks}
        assert verdicts("table-size", results_of("table-size", sizes)) == [True, True]
        off = sizes | {"simple_ab_queries": 50_442, "complex_ab_clicks": 50_000}
        assert verdicts("table-size", results_of("table-size", off)) == [False, False]

    def test_fig_complex(self) -> None:
        assert all(verdicts("fig-complex", results_of("fig-complex", curves(1.1, 0.6, 0.02))))
        assert not any(verdicts("fig-complex", results_of("fig-complex", curves(0.6, 1.1, 0.02))))
        wide = verdicts("fig-complex", results_of("fig-complex", curves(1.1, 0.6, 0.5)))
        assert wide == [True, False, True, False]

    def test_fig_complexcpbm(self) -> None:
        gold, narrow, off = curves(1.1, 0.6, 0.05), curves(1.12, 0.61, 0.03), curves(0.5, 0.2, 0.06)
        assert all(verdicts("fig-complexcpbm", results_of("fig-complexcpbm", [gold, narrow, narrow])))
        judged = verdicts("fig-complexcpbm", results_of("fig-complexcpbm", [gold, narrow, off]))
        assert judged == [True, True, False, False]

    def test_table_max(self) -> None:
        def results(error: float = 1.0, **gain: float) -> Results:
            found = results_of("table-max", {})
            numbers = [{"objective": -100.0, "gain": gain.get(r.run["features"], 5.0), "gain_se": error} for r in found]
            return Results(Result(r.run, own) for r, own in zip(found, numbers, strict=True))

        assert verdicts("table-max", results(all=9.0)) == [True] * 4
        assert verdicts("table-max", results(all=4.0)) == [True, False] * 2
        assert verdicts("table-max", results(results=-1.0, all=9.0)) == [False, True] * 2
        behind = load_experiments(["table-max"])[0].checks(results(results=-2.0, all=9.0))[0]
        unknown = load_experiments(["table-max"])[0].checks(results(error=3.0, results=-1.0, all=9.0))[0]
        assert not behind.cause
        assert "interval of results contains 0" in unknown.cause

    def test_a_quick_table_max_tells_of_all_groups(self) -> None:
        found = results_of("table-max", {}, quick=True)
        assert found.settings("features") == ["PBM", "all"]
        judged = Results(Result(r.run, {"objective": -9.0, "gain": -1.0, "gain_se": 0.1}) for r in found)
        assert verdicts("table-max", judged) == [False]


class TestTelling:
    @pytest.mark.parametrize("quick", [True, False])
    @pytest.mark.parametrize("name", ARXIV)
    def test_tables_and_charts(self, name: str, quick: bool) -> None:
        numbers = curves(1.1, 0.6, 0.02) | {"objective": -1.0, "gain": 0.5, "gain_se": 0.1}
        for (kind, part), (queries, clicks) in PAPER_SIZES.items():
            numbers |= {f"{kind}_{part}_queries": queries, f"{kind}_{part}_clicks": clicks}
        results = results_of(name, numbers, quick=quick)
        experiment = load_experiments([name])[0]
        rows = experiment.rows(results)
        assert len({tuple(row) for row in rows}) == 1
        assert all(line.runs >= 1 for line in experiment.headlines(results))
        if name != "table-size":
            assert experiment.chart(results).to_dict()["$schema"]

    def test_full_runs_have_the_papers_size(self) -> None:
        for name in ARXIV:
            runs = load_experiments([name])[0].runs(Plan(world="arxiv"))
            assert {run["queries"] for run in runs} == {QUERIES}
            assert {run["replicates"] for run in runs} <= {1_000, None}
        models = {run["model"] for run in load_experiments(["table-max"])[0].runs(Plan(world="arxiv"))}
        assert models == {feature_groups.ALLPAIRS, CLICKSHARE}
