"""Designs that the log contradicts are named; sound ones are not, whoever keeps a rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.checks.clustered_tests import squares_tail
from clickharvest.checks.design_holds import design_findings, swap_ranks
from clickharvest.checks.diagnosing import diagnose
from clickharvest.checks.finding import Finding
from clickharvest.errors import InputError
from clickharvest.harvesting.designs import Rankings, Swap
from clickharvest.harvesting.placements import LoggedPlacements
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from samples import logs

ENGINE = DuckDBEngine()
K, QUERIES = 4, 5


def swaps(
    seed: int = 0,
    *,
    n: int = 400,
    each: int = 5,
    keep: bool = False,
    swapped: float = 1.0,
    probabilities: tuple[float, ...] = (0.25,) * K,
) -> dict[str, Any]:
    """Return a log of pages of four results, the first of which changed places with one at a random rank."""
    random = np.random.default_rng(seed)
    user = np.arange(n) // each
    drawn = random.choice(K, n, p=probabilities)
    drawn = np.where(random.random(n) < swapped, drawn[user] if keep else drawn, 0)
    position = np.tile(np.arange(K), (n, 1))
    position[:, 0] = drawn
    position[np.arange(n), drawn] = 0
    query, original = random.integers(QUERIES, size=n), np.tile(np.arange(K), n)
    rows: dict[str, Any] = {"page": np.arange(n), "query": query, "user": user}
    rows = {name: np.repeat(column, K) for name, column in rows.items()}
    click = (random.random((n, K)) < 0.5 / (position + 1)).ravel().astype(int)
    doc = rows["query"] * K + original
    return rows | {"doc": doc, "position": position.ravel() + 1, "original": original + 1, "click": click}


def log_of(rows: dict[str, Any], *without: str, **roles: Any) -> ClickLog:
    kept = {name: column for name, column in rows.items() if name not in without}
    return read_log(pa.table(kept), engine=ENGINE, validate=False, **roles)


@logs(daily=3, nightly=30)
def test_swaps_as_the_design_says_are_silent(logs: int) -> None:
    p_values, warned = [], 0
    for seed in range(logs):
        for keep in (False, True):
            (finding,) = swap_ranks(log_of(swaps(seed, keep=keep)), Swap.uniform(K))
            warned += finding.severity == "decisive"
            assert "clustered by user" in finding.details
            p_values.append(finding.p)
    assert warned <= 1  # seed 28 draws one rank on 35 % of its pages
    assert np.mean(np.array(p_values, float) < 0.05) < 0.15


@pytest.mark.parametrize(("swapped", "seen"), [(0.0, "100.0 %"), (0.2, "8")])
@pytest.mark.parametrize("without", [(), ("user",), ("user", "page")])
def test_swaps_that_did_not_take_place_are_named(swapped: float, seen: str, without: tuple[str, ...]) -> None:
    (finding,) = swap_ranks(log_of(swaps(swapped=swapped), *without), Swap.uniform(K))
    assert finding.severity == "decisive"
    assert finding.value is not None
    assert finding.value > 1
    assert f"stands at rank 1 on {seen}" in finding.sentence
    assert "by the design on 25.0 %" in finding.sentence
    assert ("clustered by user" in finding.details) != bool(without)


@logs(daily=3, nightly=20)
def test_without_their_column_users_who_keep_a_rank_look_like_a_broken_design(logs: int) -> None:
    """What the sentence says, pages taken as independent, is why the column should be named."""
    samples = [swaps(seed, each=20, keep=True) for seed in range(logs)]
    alone = [swap_ranks(log_of(rows, "user"), Swap.uniform(K))[0].p for rows in samples]
    named = [swap_ranks(log_of(rows), Swap.uniform(K))[0].p for rows in samples]
    assert np.mean(np.array(alone, float) < 0.05) > 0.5
    assert np.mean(np.array(named, float) < 0.05) < 0.2


def test_a_design_of_unequal_ranks_is_tested_as_such() -> None:
    shares = (0.7, 0.1, 0.1, 0.1)
    log = log_of(swaps(1, n=2_000, probabilities=shares))
    own, uniform = (swap_ranks(log, design)[0] for design in (Swap(dict(enumerate(shares, 1))), Swap.uniform(K)))
    assert (own.severity, uniform.severity) == ("ok", "decisive")


def test_ranks_that_the_log_never_shows_are_left_out() -> None:
    rows = swaps(2, n=1_000)
    seen = rows["position"] <= 3
    cut = log_of({name: column[seen] for name, column in rows.items()})
    assert swap_ranks(cut, Swap.uniform(K))[0].severity == "ok"
    assert swap_ranks(log_of(rows), Swap.uniform(K), max_position=3)[0].severity == "ok"
    seen = (rows["position"] <= 3) | (rows["original"] > 1)  # shown, but never drawn
    missing = log_of({name: column[seen] for name, column in rows.items()})
    assert swap_ranks(missing, Swap.uniform(K))[0].severity == "decisive"


def test_the_statistic_is_that_of_its_formula() -> None:
    rows = swaps(3, n=300, keep=True)
    rows["user"] = np.minimum(rows["user"], 40)  # some users come back more often than others
    first = rows["original"] == 1
    counts = np.zeros((rows["user"].max() + 1, K))
    np.add.at(counts, (rows["user"][first], rows["position"][first] - 1), 1)
    counts = counts[counts.sum(1) > 0] / np.sqrt(counts.sum(1, keepdims=True))
    n, pi = counts.sum(), np.full(K, 1 / K)
    d = (counts - counts.sum(1, keepdims=True) * pi) / np.sqrt(n * pi)
    size = (d**2).sum(1)
    expected = squares_tail((d.sum(0) ** 2).sum(), size.sum(), ((d.T @ d) ** 2).sum(), (size**2).sum(), K - 1)
    (finding,) = swap_ranks(log_of(rows), Swap.uniform(K))
    assert finding.p == pytest.approx(expected, rel=1e-9)


def counted(first: list[int]) -> dict[str, Any]:
    """Return counts of one query's first result at each rank, and of another that was never first."""
    ranks = list(range(1, len(first) + 1))
    shown = {"query": ["q"] * 2 * len(first), "doc": ["a"] * len(first) + ["b"] * len(first), "position": ranks * 2}
    shown |= {"original": [1] * len(first) + [2] * len(first), "impressions": first * 2}
    return shown | {"clicks": [1] * len(first) * 2}


def test_a_harmless_imbalance_of_a_huge_log_is_no_alarm() -> None:
    (finding,) = swap_ranks(log_of(counted([260_000, 250_000, 245_000, 245_000])), Swap.uniform(4))
    assert (finding.severity, "too little to matter" in finding.sentence) == ("note", True)
    assert finding.p == pytest.approx(0, abs=1e-9)
    assert finding.value == pytest.approx(0.04, abs=0.005)
    (finding,) = swap_ranks(log_of(counted([300_000, 233_000, 233_000, 234_000])), Swap.uniform(4))
    assert (finding.severity, finding.value) == ("decisive", pytest.approx(0.2, abs=0.01))


def test_rare_ranks_are_told_together_and_too_few_pages_not_at_all() -> None:
    (finding,) = swap_ranks(log_of(counted([40, 3, 30, 27])), Swap({1: 0.92, 2: 0.02, 3: 0.03, 4: 0.03}))
    assert finding.severity == "decisive"
    assert "ranks 2-4 on 60.0 % of the pages, by the design on 8.0 %" in finding.sentence
    for few in ([2, 1, 1, 0], [5], [0, 0]):
        (finding,) = swap_ranks(log_of(counted(few)), Swap.uniform(4))
        assert (finding.severity, finding.p) == ("note", None)


def rankings(rows: dict[str, Any], ranker: str = "f") -> dict[str, Any]:
    docs = np.unique(rows["doc"])
    return {"query": docs // K, "ranker": [ranker] * len(docs), "doc": docs, "position": docs % K + 1}


def test_swaps_of_rankings_are_compared_where_all_rankers_agree_who_is_first() -> None:
    for swapped, status in ((1.0, "ok"), (0.2, "decisive")):
        rows = swaps(4, swapped=swapped)
        table = pa.table(rankings(rows))
        design = Swap.uniform(K, Rankings(table, traffic={"f": 1}))
        assert swap_ranks(log_of(rows, "original"), design)[0].severity == status
        other = rankings(rows, "g") | {"position": np.array(table["position"]) % K + 1}
        both = pa.concat_tables([table, pa.table(other)])
        design = Swap.uniform(K, Rankings(both, traffic={"f": 1, "g": 1}))
        assert swap_ranks(log_of(rows, "original"), design)[0].severity == "note"


def of_design(rows: dict[str, Any], table: dict[str, Any], **roles: Any) -> Finding:
    found = design_findings(log_of(rows, "original", **roles), Rankings(pa.table(table), traffic={"f": 1, "g": 1}))
    assert [finding.kind for finding in found] == ["design"]
    return found[0]


def test_what_stands_where_it_could_not_is_counted() -> None:
    rows = swaps(5, n=500, swapped=0.0)
    table = rankings(rows)
    sound = of_design(rows, table)
    assert (sound.severity, sound.value) == ("ok", 0.0)
    for moved, status in ((0.004, "note"), (0.02, "decisive"), (0.3, "decisive")):
        rows = swaps(5, n=500, swapped=moved * 4)
        elsewhere = float(np.mean(rows["position"] != rows["original"]))
        finding = of_design(rows, table)
        assert (finding.severity, finding.value) == (status, pytest.approx(elsewhere))
        assert f"{round(2_000 * elsewhere):,} of 2,000 impressions" in finding.sentence
        assert ("exposures are wrong" in finding.sentence) == (status == "decisive")


def test_results_that_the_design_does_not_have_are_told_and_no_alarm() -> None:
    rows = swaps(6, n=500, swapped=0.0)
    table = rankings(rows)
    kept = table["query"] < 2
    finding = of_design(rows, {name: np.array(column)[kept] for name, column in table.items()})
    assert (finding.severity, finding.value) == ("ok", 0.0)
    assert (
        f"{4 * int(np.sum(rows['query'][::K] >= 2)):,} impressions are of results that the design" in finding.sentence
    )
    with pytest.raises(InputError, match="no impression of the log"):
        of_design(rows, table | {"query": table["query"] + 100})


def test_results_that_stand_where_another_ranker_has_them_are_counted() -> None:
    """Both rankers' orders are exchanged, so that everything stands where one of them has it."""
    rows = swaps(7, n=400, swapped=0.0)
    arm = np.repeat(np.arange(400) % 2, K)
    rows["position"] = np.where(arm == 1, K + 1 - rows["position"], rows["position"])
    table, other = rankings(rows, "f"), rankings(rows, "g")
    other["position"] = K + 1 - other["position"]
    both = {name: np.concatenate([np.array(table[name]), np.array(other[name])]) for name in table}
    for names, status in (("fg", "ok"), ("gf", "decisive"), ("xy", "ok")):
        rows["ranker"] = np.array(list(names))[arm]
        finding = of_design(rows, both)
        assert finding.severity == status
        assert ("their ranker has them" in finding.sentence) == (names == "gf")
        assert ("its ranker has it" in finding.sentence) == (names == "fg")


def test_realised_exposures_have_no_design_to_hold() -> None:
    log = log_of(swaps(8) | {"propensity_of_placement": np.full(1_600, 0.25)})
    assert design_findings(log, None) == []
    assert design_findings(log, LoggedPlacements()) == []
    assert not {"design", "swap ranks"} & {finding.kind for finding in diagnose(log).findings}


def test_the_diagnosis_tells_of_the_design() -> None:
    for swapped, expected in ((1.0, ["ok", "ok"]), (0.0, ["ok", "decisive"])):
        diagnosis = diagnose(log_of(swaps(9, swapped=swapped)), design=Swap.uniform(K))
        found = {finding.kind: finding.severity for finding in diagnosis.findings}
        assert [found["design"], found["swap ranks"]] == expected
        assert diagnosis.identified
