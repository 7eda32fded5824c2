from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Rankings, Swap
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.reading import read_log

pytestmark = pytest.mark.usefixtures("one_duckdb")


def exposures(interventions: Interventions) -> dict[int, dict[int, float]]:
    units: dict[int, dict[int, float]] = {}
    for unit, k, e in zip(interventions.unit, interventions.position, interventions.exposure, strict=True):
        units.setdefault(int(unit), {})[int(k)] = float(e)
    return units


@pytest.fixture
def seen_once(toy_rankings: pa.Table) -> ClickLog:
    """The paper's example, of which only one page was ever shown: that of the first ranker."""
    page = [row | {"click": int(row["doc"] == "d1")} for row in toy_rankings.to_pylist() if row["ranker"] == "f1"]
    return read_log(pa.Table.from_pylist(page))


def test_the_papers_toy_example(seen_once: ClickLog, toy_rankings: pa.Table) -> None:
    interventions = harvest(seen_once, design=Rankings(toy_rankings, traffic={"f1": 1, "f2": 1, "f3": 1}))
    third = 1 / 3
    d1, d2, d3, d4, d5 = exposures(interventions).values()
    assert d1 == pytest.approx({1: third, 2: third, 3: third})
    assert d2 == pytest.approx({1: 2 * third, 2: third})
    assert d3 == pytest.approx({2: third, 3: 2 * third})
    assert d4 == pytest.approx({4: third, 5: 2 * third})
    assert d5 == pytest.approx({4: 2 * third, 5: third})
    assert interventions.exposure_kind == "design"


def test_memberships_of_interventional_sets(seen_once: ClickLog, toy_rankings: pa.Table) -> None:
    units = exposures(harvest(seen_once, design=Rankings(toy_rankings, traffic=dict.fromkeys(("f1", "f2", "f3"), 1))))
    members = {
        (k, other): {f"d{unit + 1}" for unit, e in units.items() if k in e and other in e}
        for k in range(1, 6)
        for other in range(k + 1, 6)
    }
    assert {pair: docs for pair, docs in members.items() if docs} == {
        (1, 2): {"d1", "d2"},
        (1, 3): {"d1"},
        (2, 3): {"d1", "d3"},
        (4, 5): {"d4", "d5"},
    }


def test_clicks_of_the_one_page_stand_where_they_happened(seen_once: ClickLog, toy_rankings: pa.Table) -> None:
    interventions = harvest(seen_once, design=Rankings(toy_rankings, traffic={"f1": 1, "f2": 1, "f3": 1}))
    first = interventions.take(interventions.unit == 0)
    assert first.position.tolist() == [1, 2, 3]
    assert first.clicks.tolist() == [1, 0, 0]
    assert first.impressions.tolist() == [1, 0, 0]


def test_traffic_is_counted_from_the_log(toy_rankings: pa.Table) -> None:
    f1, f2 = (
        [row | {"click": row["position"] % 2} for row in toy_rankings.to_pylist() if row["ranker"] == ranker]
        for ranker in ("f1", "f2")
    )
    log = read_log(pa.Table.from_pylist(f1 * 3 + f2))
    units = exposures(harvest(log, design=Rankings(toy_rankings)))
    assert units[0] == pytest.approx({1: 0.75, 2: 0.25})


def test_rankings_may_depend_on_the_context() -> None:
    shown = {"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "click": [1, 0], "device": ["desk", "phone"]}
    log = read_log(pa.table(shown), context=["device"])
    ranked = {
        "query": ["q"] * 4,
        "ranker": ["f", "g"] * 2,
        "doc": ["a"] * 4,
        "position": [1, 2, 2, 5],
        "device": ["desk"] * 2 + ["phone"] * 2,
    }
    interventions = harvest(log, design=Rankings(pa.table(ranked), traffic={"f": 1, "g": 1}))
    assert exposures(interventions) == {0: {1: 0.5, 2: 0.5}, 1: {2: 0.5, 5: 0.5}}
    assert interventions.contexts["device"].tolist() == ["desk", "desk", "phone", "phone"]


def test_queries_are_matched_across_types() -> None:
    log = read_log(pa.table({"query": [1], "doc": [5], "position": [1], "click": [1]}))
    ranked = pa.table({"query": ["1", "1"], "ranker": ["f", "g"], "doc": ["5", "5"], "position": ["1", "2"]})
    assert len(harvest(log, design=Rankings(ranked, traffic={"f": 1, "g": 1}))) == 2


def swap_by_hand(original: int, ranks: int) -> dict[int, Fraction]:
    places: dict[int, Fraction] = {}
    for drawn in range(1, ranks + 1):
        place = drawn if original == 1 else 1 if original == drawn else original
        places[place] = places.get(place, Fraction(0)) + Fraction(1, ranks)
    return places


def test_swap_from_the_original_column() -> None:
    rows = [
        {"query": "q", "doc": doc, "original": original, "position": shown, "click": shown % 2}
        for doc, original, shown in [("a", 1, 3), ("b", 2, 2), ("c", 3, 1), ("a", 1, 1), ("b", 2, 2), ("c", 3, 3)]
    ]
    interventions = harvest(read_log(pa.Table.from_pylist(rows)), design=Swap.uniform(3))
    for unit, original in enumerate((1, 2, 3)):
        assert exposures(interventions)[unit] == pytest.approx(swap_by_hand(original, 3))


def test_swap_on_top_of_rankings(toy_rankings: pa.Table, seen_once: ClickLog) -> None:
    rankings = Rankings(toy_rankings, traffic={"f1": 1, "f2": 1, "f3": 1})
    units = exposures(harvest(seen_once, design=Swap.uniform(5, rankings)))
    d4 = {place: (swap_by_hand(4, 5).get(place, 0) + 2 * swap_by_hand(5, 5).get(place, 0)) / 3 for place in (1, 4, 5)}
    assert units[3] == pytest.approx(d4)


def test_swap_exposures_are_what_a_simulation_shows() -> None:
    random = np.random.default_rng(3)
    pages, ranks = 30_000, 4
    shown = np.tile(np.arange(1, ranks + 1), (pages, 1))
    drawn = random.integers(ranks, size=pages)
    shown[:, 0], shown[np.arange(pages), drawn] = drawn + 1, 1
    rows = pa.table(
        {
            "query": ["q"] * (pages * ranks),
            "doc": np.tile(np.arange(ranks), pages),
            "original": np.tile(np.arange(1, ranks + 1), pages),
            "position": shown.ravel(),
            "click": shown.ravel() % 2,
        }
    )
    interventions = harvest(read_log(rows), design=Swap.uniform(ranks))
    assert interventions.exposure == pytest.approx(interventions.impressions / pages, abs=4 / np.sqrt(pages))


def test_impressions_the_design_cannot_explain_are_left_out_and_told(
    toy_rankings: pa.Table, seen_once: ClickLog
) -> None:
    design = Rankings(toy_rankings.filter(pa.compute.not_equal(toy_rankings["ranker"], "f1")), {"f2": 1, "f3": 1})
    with pytest.warns(HarvestWarning, match="4 of 5 impressions"):
        interventions = harvest(seen_once, design=design)
    assert interventions.impressions.sum() == 1


def test_rankings_of_other_queries_are_refused(toy_rankings: pa.Table, seen_once: ClickLog) -> None:
    other = toy_rankings.set_column(0, "query", pa.array(["y"] * len(toy_rankings)))
    with pytest.raises(InputError, match="no impression of the log"):
        harvest(seen_once, design=Rankings(other, traffic={"f1": 1}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Swap.uniform(1),
        lambda: Swap({1: 0.5, 2: 0.6}),
        lambda: Swap({1: 1.5, 2: -0.5}),
        lambda: Swap({0: 1.0}),
        lambda: Swap({}),
    ],
)
def test_impossible_swaps_are_refused(make: Any) -> None:
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("traffic", [{}, {"f1": 0}, {"f1": -1, "f2": 2}])
def test_impossible_traffic_is_refused(seen_once: ClickLog, toy_rankings: pa.Table, traffic: dict[str, float]) -> None:
    with pytest.raises(InputError, match="traffic"):
        harvest(seen_once, design=Rankings(toy_rankings, traffic=traffic))
