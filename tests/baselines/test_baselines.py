"""Baselines: formulas by hand, and known truth on simulated logs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from clickharvest.baselines import (
    adjacent_chain,
    click_rates,
    em,
    generative_cpbm,
    pivot_one,
    regression_em,
    swap_ratio,
)
from clickharvest.baselines.cells import count_cells, read_features
from clickharvest.errors import ConvergenceWarning, InputError, NotIdentifiedError
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Swap
from clickharvest.harvesting.interventions import ExposureKind, Interventions, UnitKind
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities

TRUTH = np.array([1, 2, 3, 4, 5]) ** -0.8


def ratios(result: Propensities) -> dict[int, float]:
    prediction = result.predict()
    return dict(zip(prediction.positions, prediction.propensity[0].tolist(), strict=True))


def errors(result: Propensities) -> NDArray[np.float64]:
    """Return |log(p̂ / p)| of the positions after the first."""
    return np.abs(np.log(result.predict().propensity[0] / TRUTH))[1:]


def counted(rows: list[tuple[Any, ...]], names: str, **roles: Any) -> ClickLog:
    columns = dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True))
    return read_log(pa.table(columns), **roles)


def interventions(
    rows: list[tuple[int, int, float, int]], kind: ExposureKind = "realised", **more: Any
) -> Interventions:
    """Make interventions of rows (unit, position, exposure, clicks)."""
    unit, position, exposure, clicks = (np.array(column) for column in zip(*rows, strict=True))
    shown = exposure.astype(np.int64) if kind == "realised" else clicks
    return Interventions(unit, unit, position, exposure.astype(float), clicks, shown, exposure_kind=kind, **more)


@cache
def shown_log(
    *, queries: int, shown: float, seed: int, focus: float = 0.0, contexts: int = 1
) -> tuple[ClickLog, pa.Table]:
    """Simulate documents shown about `shown` times at each position, rarely far from their rank if `focus` > 0.

    Click ~ Bernoulli(p_k^x σ(z)), x = 1 for the first context and 1.6 for the second; z is the document's feature.
    """
    random = np.random.default_rng(seed)
    z = random.normal(-0.5, 1.2, (queries, 8))
    rank = np.argsort(np.argsort(-z, axis=1), axis=1)
    expected = shown * np.exp(-focus * np.abs(rank[:, :, None] - np.arange(len(TRUTH))))
    impressions = random.poisson(np.broadcast_to(expected, (contexts, *expected.shape)))
    examined = TRUTH ** np.array([1.0, 1.6])[:contexts, None, None, None]
    clicks = random.binomial(impressions, examined * (1 / (1 + np.exp(-z)))[None, :, :, None])
    x, query, doc, k = (axis.ravel() for axis in np.indices(impressions.shape))
    columns = {"query": query, "doc": doc, "position": k + 1, "device": np.array(["desk", "phone"])[x]}
    table = pa.table(columns | {"clicks": clicks.ravel(), "impressions": impressions.ravel()})
    query, doc = (axis.ravel() for axis in np.indices(z.shape))
    features = pa.table({"query": query, "doc": doc, "z": z.ravel()})
    return read_log(table, context=["device"] if contexts > 1 else []), features


def swap_log(pages: int, seed: int) -> ClickLog:
    """Simulate pages whose top result is exchanged with that at a random rank; good documents rank high."""
    random = np.random.default_rng(seed)
    original = np.arange(1, 6)
    drawn = random.integers(1, 6, size=(pages, 1))
    position = np.where(original == 1, drawn, np.where(original == drawn, 1, original))
    query = random.integers(200, size=(pages, 1))
    relevance = np.sort(random.beta(1, 2, (200, 5)))[:, ::-1]
    click = random.random((pages, 5)) < TRUTH[position - 1] * relevance[query[:, 0]]
    doc = original + 10 * query
    columns = {"query": query + 0 * doc, "doc": doc, "position": position, "original": 0 * doc + original}
    return read_log(pa.table({name: column.ravel() for name, column in (columns | {"click": click}).items()}))


# By hand


def test_click_rates_are_pooled_over_documents() -> None:
    rows = [
        ("q", "a", 1, 30, 50),
        ("r", "b", 1, 10, 50),
        ("q", "c", 2, 6, 60),
        ("q", "d", 3, 0, 40),
        ("q", "e", 4, 1, 5),
    ]
    log = counted(rows, "query doc position clicks impressions")
    assert_allclose(list(ratios(click_rates(log)).values()), [1, (6 / 60) / (40 / 100), np.nan, (1 / 5) / (40 / 100)])
    assert click_rates(log).unsupported == (3,)
    assert_allclose(list(ratios(click_rates(count_cells(log))).values()), list(ratios(click_rates(log)).values()))
    assert ratios(click_rates(log, max_position=2)) == pytest.approx({1: 1, 2: (6 / 60) / (40 / 100)})
    assert ratios(click_rates(log, anchor=2, max_position=2)) == pytest.approx({1: (40 / 100) / (6 / 60), 2: 1})
    with pytest.raises(NotIdentifiedError, match="position 3"):
        click_rates(log, anchor=3)


def test_swap_ratio_of_a_log_weights_each_original_rank_by_its_observed_shares() -> None:
    rows = [
        ("a", 1, 1, 40, 80), ("a", 1, 2, 6, 20), ("b", 2, 1, 9, 30), ("b", 2, 2, 14, 70),
        ("c", 3, 3, 50, 99), ("a", 1, 4, 0, 10),
    ]  # fmt: skip
    log = counted([("q", *row) for row in rows], "query doc original position clicks impressions")
    expected = (6 / 0.2 + 14 / 0.7) / (40 / 0.8 + 9 / 0.3)
    assert_allclose(list(ratios(swap_ratio(log)).values()), [1, expected, np.nan, np.nan])


def test_swap_ratio_of_even_swaps_is_the_ratio_of_click_rates() -> None:
    rows = [("a", 1, 1, 40, 80), ("a", 1, 2, 16, 80), ("b", 2, 1, 20, 80), ("b", 2, 2, 11, 80)]
    log = counted([("q", *row) for row in rows], "query doc original position clicks impressions")
    assert ratios(swap_ratio(log)) == pytest.approx({1: 1, 2: 27 / 60})
    assert ratios(click_rates(log)) == pytest.approx({1: 1, 2: 27 / 60})


def test_swap_ratio_of_interventions_weights_clicks_by_inverse_probabilities() -> None:
    designed = interventions([(0, 1, 0.5, 7), (0, 2, 0.5, 2), (1, 1, 0.25, 1), (1, 2, 0.75, 3)], kind="design")
    assert ratios(swap_ratio(designed)) == pytest.approx({1: 1, 2: (2 / 0.5 + 3 / 0.75) / (7 / 0.5 + 1 / 0.25)})


def test_pivot_one_compares_only_units_that_stood_at_the_pivot() -> None:
    harvested = interventions(
        [(0, 1, 10, 5), (0, 2, 20, 4), (0, 4, 5, 0), (1, 1, 4, 1), (1, 2, 2, 1), (2, 2, 9, 9), (2, 3, 9, 9)]
    )
    expected = (4 / 20 + 1 / 2) / (5 / 10 + 1 / 4)
    assert_allclose(list(ratios(pivot_one(harvested)).values()), [1, expected, np.nan, np.nan])
    at_2 = ratios(pivot_one(harvested, anchor=2))
    assert_allclose(list(at_2.values()), [1 / expected, 1, (9 / 9) / (9 / 9), np.nan])


CHAIN = [
    (0, 1, 10, 5),
    (0, 2, 10, 4),
    (1, 2, 8, 4),
    (1, 3, 8, 2),
    (2, 3, 5, 1),
    (2, 5, 5, 1),
    (3, 5, 4, 2),
    (3, 6, 4, 1),
]


def test_adjacent_chain_multiplies_ratios_and_ends_where_it_breaks() -> None:
    found = ratios(adjacent_chain(interventions(CHAIN)))
    assert_allclose(list(found.values()), [1, 4 / 5, 4 / 5 * 2 / 4, np.nan, np.nan])
    assert list(found) == [1, 2, 3, 5, 6]


def test_adjacent_chain_runs_both_ways_from_the_anchor() -> None:
    assert_allclose(list(ratios(adjacent_chain(interventions(CHAIN), anchor=2)).values())[:3], [5 / 4, 1, 2 / 4])
    assert adjacent_chain(interventions(CHAIN), anchor=6).curve.positions == (5, 6)


def test_contexts_inside_a_unit_add_up_if_exposures_are_realised() -> None:
    device = {"device": np.array(["x", "y", "x"])}
    rows = [(0, 1, 10.0, 5), (0, 1, 30.0, 15), (0, 2, 20.0, 4)]
    kind: UnitKind = "query"
    assert ratios(pivot_one(interventions(rows, contexts=device, unit_kind=kind)))[2] == pytest.approx(
        (4 / 20) / (20 / 40)
    )
    with pytest.raises(InputError, match="--unit context"):
        pivot_one(interventions(rows, "design", contexts=device, unit_kind=kind))


@pytest.mark.parametrize("estimate", [pivot_one, adjacent_chain, swap_ratio])
def test_an_anchor_without_common_clicks_is_refused(estimate: Any) -> None:
    harvested = interventions([(0, 1, 10, 0), (0, 2, 10, 4), (1, 2, 8, 4), (1, 3, 8, 2)])
    for anchor in (1, 7):
        with pytest.raises(NotIdentifiedError, match=f"position {anchor}"):
            estimate(harvested, anchor=anchor)


def test_a_swap_needs_the_original_position() -> None:
    with pytest.raises(InputError, match="--original"):
        swap_ratio(counted([("q", "a", 1, 1)], "query doc position click"))


# Known truth


@pytest.mark.parametrize("estimate", [pivot_one, adjacent_chain, em])
def test_errors_fall_with_the_root_of_the_data(estimate: Any) -> None:
    size = {}
    for queries in (50, 1250):
        found = []
        for seed in range(3):
            log, _ = shown_log(queries=queries, shown=12, seed=seed)
            found.append(errors(em(log, tolerance=1e-4) if estimate is em else estimate(harvest(log))))
        size[queries] = np.sqrt(np.mean(np.square(found)))
    assert size[50] < 0.25
    # 25 times the data: a fifth of the error, give or take chance.
    assert 1 / 10 < size[1250] / size[50] < 1 / 2.5


def test_swaps_reveal_the_truth_from_the_log_and_from_its_design() -> None:
    found = {pages: [] for pages in (3_000, 75_000)}
    for pages, sizes in found.items():
        for seed in range(2):
            log = swap_log(pages, seed)
            designed = harvest(log, design=Swap.uniform(5))
            sizes.append([errors(swap_ratio(log)), errors(swap_ratio(designed))])
    size = {pages: np.sqrt(np.mean(np.square(sizes), axis=(0, 2))) for pages, sizes in found.items()}
    assert np.all(size[3_000] < 0.3)
    assert np.all(size[75_000] < size[3_000] / 2)
    assert np.all(size[75_000] < 0.06)
    assert ratios(click_rates(log))[5] < 0.7 * TRUTH[4]


def test_click_rates_are_biased_where_good_documents_stand_on_top() -> None:
    log, _ = shown_log(queries=300, shown=40, seed=0, focus=0.7)
    assert ratios(click_rates(log))[5] < 0.7 * TRUTH[4]
    assert errors(pivot_one(harvest(log))).max() < 0.15
    even, _ = shown_log(queries=300, shown=40, seed=0)
    assert errors(click_rates(even)).max() < 0.05


def test_em_never_lowers_the_likelihood() -> None:
    for shown in (0.3, 10):
        log, _ = shown_log(queries=40, shown=shown, seed=1, focus=0.3)
        values = em(log, tolerance=1e-4).info["trace"]
        assert len(values) > 10
        assert np.diff(values).min() > -1e-9 * abs(values[0])


def test_regression_em_finds_the_truth_from_perfect_features_alone() -> None:
    """No document stands at two positions: what compares positions is the feature."""
    log, features = shown_log(queries=60, shown=60, seed=2, focus=0.7)
    table = log.engine.fetch(log.table, task="").to_pandas()
    once = table.sample(frac=1, random_state=0).drop_duplicates(["query", "doc"])
    alone = read_log(pa.Table.from_pandas(once, preserve_index=False))
    result = regression_em(alone, features, trees=8, rate=0.4, tolerance=5e-3)
    assert errors(result).max() < 0.2
    assert ratios(click_rates(alone))[5] < 0.75 * TRUTH[4]
    trace = np.array(result.info["trace"])
    assert trace[-1] > trace[0]
    assert np.diff(trace).min() > -1e-3 * abs(trace[0])
    with pytest.raises(NotIdentifiedError):
        em(alone)


@pytest.mark.parametrize("relevance", ["linear", "mlp"])
def test_generative_cpbm_finds_examination_by_context_if_relevance_is_right(relevance: Any) -> None:
    log, features = shown_log(queries=150, shown=30, seed=3, focus=0.5, contexts=2)
    # How many steps the network takes depends on the last digits of the processor's products.
    result = generative_cpbm(log, features, relevance=relevance, relevance_width=3, max_iterations=5_000)
    found = result.predict({"device": ["desk", "phone"]}).propensity
    assert_allclose(np.log(found), [np.log(TRUTH), 1.6 * np.log(TRUTH)], atol=0.15)


def test_the_same_seed_gives_the_same_result_and_a_file_keeps_it(tmp_path: Any) -> None:
    log, features = shown_log(queries=20, shown=10, seed=4)
    first, second = (regression_em(log, features, trees=5, tolerance=0.01, seed=7) for _ in range(2))
    assert ratios(first) == ratios(second)
    first.save(tmp_path / "model.safetensors")
    assert ratios(load_propensities(tmp_path / "model.safetensors")) == ratios(first)


# Refusals


def test_positions_that_no_document_links_have_no_em_estimate() -> None:
    rows = [("q", "a", 1, 5, 10), ("q", "a", 2, 3, 10), ("q", "b", 3, 3, 10), ("q", "b", 4, 2, 10)]
    result = em(counted(rows, "query doc position clicks impressions"))
    assert result.curve.positions == (1, 2)
    assert result.unsupported == (3, 4)


def test_em_explains_pairs_that_were_always_clicked() -> None:
    rows = [("q", "a", 1, 10, 10), ("q", "a", 2, 10, 10), ("q", "b", 1, 4, 8), ("q", "b", 2, 2, 8)]
    assert 0 < ratios(em(counted(rows, "query doc position clicks impressions")))[2] <= 1


def test_em_warns_where_it_ran_out_of_iterations() -> None:
    log, _ = shown_log(queries=5, shown=5, seed=0)
    with pytest.warns(ConvergenceWarning, match="em: ran out of iterations"):
        em(log, max_iterations=2)


FEATURES = {("q", "a"): [1.0], ("q", "b"): [0.0]}


@pytest.mark.parametrize("estimate", [regression_em, generative_cpbm])
def test_positions_without_clicks_are_unsupported_and_such_an_anchor_is_refused(estimate: Any) -> None:
    rows = [("q", "a", 1, 6, 10), ("q", "b", 2, 2, 10), ("q", "b", 3, 0, 10)]
    log = counted(rows, "query doc position clicks impressions")
    with pytest.raises(NotIdentifiedError, match="anchor 3"):
        estimate(log, FEATURES, anchor=3)
    assert estimate(log, FEATURES).unsupported == (3,)


def test_features_come_as_a_mapping_or_as_columns_and_must_be_complete(duckdb_engine: DuckDBEngine) -> None:
    shown = pa.table({"query": [1, 1, 2], "doc": ["x", "y", "x"], "position": [1, 2, 9], "click": [1, 0, 1]})
    log = read_log(shown, engine=duckdb_engine)
    columns = {"query": ["2", "1", "1"], "doc": ["x", "y", "x"], "f": [4.0, None, 2.0]}
    assert_allclose(read_features(log, columns), [[-1, 0], [0, 1], [1, 0]])
    mapping = {(1, "x"): [2.0], (1, "y"): [4.0]}
    assert_allclose(read_features(log, mapping, max_position=5), [[-1], [1]])
    assert count_cells(log, max_position=5).shown == (1, 2)
    with pytest.raises(InputError, match="1 of 3 documents of the log have no features, such as 'x' of query 2"):
        read_features(log, mapping)
    with pytest.raises(InputError, match="have features twice, such as 'y'"):
        read_features(log, {name: [*values, values[1]] for name, values in columns.items()})
    with pytest.raises(InputError, match="expected query, doc and features"):
        read_features(log, pa.table({"query": [1], "f": [1.0]}))
    with pytest.raises(InputError, match="without \\(query, doc\\) keys"):
        read_features(log, {"x": [1.0]})


def test_an_unknown_model_of_relevance_is_refused() -> None:
    with pytest.raises(InputError, match="no relevance model 'trees'"):
        generative_cpbm(counted([("q", "a", 1, 1)], "query doc position click"), FEATURES, relevance="trees")
