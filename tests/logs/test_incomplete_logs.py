"""Logs whose every row is possible, and which are nevertheless unlike a log of all that was shown."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clickharvest import CPBM, PBM, Rankings, harvest, read_interventions, read_log
from clickharvest.baselines import adjacent_chain, click_rates, em, pivot_one
from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.harvesting import harvest_to_parquet
from clickharvest.logs.click_log import lack_unclicked
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.incomplete_logs import doubts
from clickharvest.simulate import simulate_ab_log
from places import SHARED_DATA

pytestmark = pytest.mark.usefixtures("one_duckdb")

ENGINE = DuckDBEngine()


def simulated() -> pa.Table:
    return simulate_ab_log(pages=3_000, seed=1)[0]


def clicked_pages(table: pa.Table) -> pa.Table:
    clicked = table.filter(pc.equal(table["click"], 1))["page"]
    return table.filter(pc.is_in(table["page"], clicked))


def names(source: Any, **options: Any) -> list[str]:
    wanted = ("clicked rows", "shared positions", "clicked pages", "one click a page", "single clicks")
    return [found.name for found in doubts(read_log(source, **options)) if found.name in wanted]


def of_pages(table: pa.Table, **options: Any) -> list[str]:
    return [found.name for found in doubts(read_log(table, engine=ENGINE, **options))]


def replaced(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        table = table.drop_columns([name]) if name in table.column_names else table
        table = table.append_column(name, pa.array(values))
    return table


def test_an_ordinary_log_is_not_doubted() -> None:
    assert names(simulated()) == []
    assert names(simulated(), page="") == []


@pytest.mark.parametrize("seed", range(3))
def test_clicks_alone_are_refused(seed: int) -> None:
    table = simulate_ab_log(pages=500, seed=seed)[0]
    log = read_log(table.filter(pc.equal(table["click"], 1)))
    for answer in (harvest, diagnose, click_rates, em, lambda log: harvest_to_parquet(log, "out.parquet")):
        with pytest.raises(InputError, match=r"impressions are clicked.*log what was shown, not only what was clicked"):
            answer(log)


def test_one_row_that_is_clicked_is_no_log_of_clicks() -> None:
    diagnose(read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]})))


@pytest.mark.parametrize(("unclicked", "doubted"), [(50, True), (51, False)])
def test_nearly_all_clicked_is_doubted(unclicked: int, doubted: bool) -> None:
    clicks = [0] * unclicked + [1] * (1_000 - unclicked)
    shown = {"query": ["q"] * 1_000, "doc": ["a"] * 1_000, "position": [1, 2] * 500, "click": clicks}
    assert names(pa.table(shown)) == (["clicked rows"] if doubted else [])
    log = read_log(pa.table(shown))
    if doubted:
        with pytest.warns(HarvestWarning, match="950 of 1,000 impressions are clicked"):
            harvest(log)
    else:
        harvest(log)


def test_missing_pages_are_found() -> None:
    table = clicked_pages(simulated())
    assert names(table) == ["clicked pages"]
    (doubt,) = doubts(read_log(table))
    assert "ClickShare, the default, becomes a little too flat" in doubt.sentence
    assert "click rates and AllPairs are wrong" in doubt.sentence


ESTIMATORS: dict[str, Callable[[Any], Any]] = {
    "allpairs": lambda log: PBM(objective="allpairs", intervals=None).fit(harvest(log)),
    "allpairs with context": lambda log: CPBM(curve="linear", objective="allpairs", penalty=1.0, intervals=None).fit(
        harvest(log)
    ),
    "click rates": click_rates,
    "em": lambda log: em(log, max_iterations=3),
    "pivot one": lambda log: pivot_one(harvest(log)),
    "adjacent chain": lambda log: adjacent_chain(harvest(log)),
}


@pytest.mark.filterwarnings("ignore::clickharvest.errors.ConvergenceWarning")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_compares_clicks_with_displays_warns(estimator: str) -> None:
    with pytest.warns(HarvestWarning, match="pages without a click seem to be left out"):
        ESTIMATORS[estimator](read_log(clicked_pages(simulated()), context=["device"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", HarvestWarning)
        ESTIMATORS[estimator](read_log(simulated(), context=["device"]))


def test_click_shares_do_not_warn_and_files_remember(tmp_path: Path) -> None:
    log = read_log(clicked_pages(simulated()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PBM(intervals=None).fit(harvest(log))
    harvest_to_parquet(log, tmp_path / "i.parquet")
    again = read_interventions(tmp_path / "i.parquet")
    assert again.only_clicked_pages
    again.write(tmp_path / "j.parquet")
    assert read_interventions(tmp_path / "j.parquet").only_clicked_pages


def two_rankers(pages: int, queries: int = 60, docs: int = 6, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """A log with few clicks, p_k = 1/k, and the rankings that it comes from."""
    random = np.random.default_rng(seed)
    relevance = random.beta(0.5, 2, size=(queries, docs))
    noisy = relevance[:, None] + random.normal(0, 0.3, size=(queries, 2, docs))
    place = noisy.argsort(axis=-1).argsort(axis=-1) + 1
    query, ranker = random.integers(queries, size=pages), random.integers(2, size=pages)
    position = place[query, ranker]
    clicks = random.random((pages, docs)) < 0.3 * relevance[query] / position
    columns = {"query": query, "ranker": ranker, "page": np.arange(pages)}
    log = {name: np.repeat(values, docs) for name, values in columns.items()}
    log |= {"doc": np.tile(np.arange(docs), pages), "position": position.ravel(), "click": clicks.ravel().astype(int)}
    at = np.indices(place.shape).reshape(3, -1)
    ranked = {"query": at[0], "ranker": at[1].astype(str), "doc": at[2], "position": place.ravel()}
    return pa.table(log), pa.table(ranked)


def test_click_shares_bear_missing_pages_better_than_rates() -> None:
    """What the finding says, against the truth: shares suffer less than AllPairs, and nothing with known rankings."""
    table, ranked = two_rankers(40_000)
    whole, cut = read_log(table), read_log(clicked_pages(table))
    design = Rankings(ranked, traffic={"0": 1, "1": 1})

    def error(objective: str, interventions: Any) -> float:
        found = PBM(objective=objective, intervals=None).fit(interventions).propensities_
        p = np.exp(found.curve.relative(found.params, np.zeros((1, 0))))[0]
        return float(np.abs(np.log(p * np.array(found.curve.positions))).mean())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HarvestWarning)
        shares, pairs = (error(objective, harvest(cut)) for objective in ("clickshare", "allpairs"))
    assert error("clickshare", harvest(whole)) < shares < pairs
    assert error("clickshare", harvest(cut, design=design)) == pytest.approx(
        error("clickshare", harvest(whole, design=design)), abs=1e-6
    )


def test_shared_positions_are_counted_and_shown() -> None:
    table = simulated()
    screens = replaced(table, position=[(k - 1) % 5 + 1 for k in table["position"].to_pylist()])
    log = read_log(screens)
    assert log.facts is not None
    assert log.facts.shared_pages == log.facts.pages == 3_000
    (doubt,) = doubts(log)
    assert "at position 1)" in doubt.sentence
    assert "--page-number COLUMN --page-size N" in doubt.sentence
    assert "--block COLUMN=VALUE" in doubt.sentence
    with pytest.warns(HarvestWarning, match="several documents at one position"):
        harvest(log)


def test_a_page_that_is_a_session_is_named_with_what_makes_a_page() -> None:
    """Three pages each have one name; with the same result on several of them, or with none."""
    table = simulated()
    visit = [page // 3 for page in table["page"].to_pylist()]
    sessions = table.append_column("visit", [visit]).append_column("at", table["page"]).drop(["page"])
    told = "pages have several queries: the column 'visit' seems to name a session.*--page visit,query.*--user visit"
    with pytest.raises(InputError, match=told):
        read_log(sessions, page="visit")
    renamed = replaced(sessions, doc=[f"{doc} {i}" for i, doc in enumerate(sessions["doc"].to_pylist())])
    (doubt,) = doubts(read_log(renamed, page="visit"))
    assert "--page visit,query" in doubt.sentence
    log = read_log(sessions, page="visit, at", user="visit")
    assert log.facts is not None
    assert (log.facts.pages, log.facts.session_pages, log.facts.shared_pages) == (3_000, 0, 0)
    with pytest.raises(InputError, match="--page visit,when: no column 'when'"):
        read_log(sessions, page="visit,when")


@pytest.mark.parametrize(
    ("pages", "clicked", "clicks", "missing"),
    [(0, 0, 0, False), (10, 10, 10, False), (100, 100, 110, True), (100, 90, 100, False), (1000, 1000, 6000, False)],
)
def test_when_pages_are_missing(pages: int, clicked: int, clicks: int, missing: bool) -> None:
    assert lack_unclicked(pages, clicked, clicks) is missing


def test_the_log_of_hotels_goes_through_with_its_finding() -> None:
    path = SHARED_DATA / "trivago_clickouts.parquet"
    if not path.exists():
        pytest.skip("the real log trivago_clickouts.parquet is not on this machine")
    assert names(path) == ["clicked pages", "one click a page"]


def shown_pages(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the clicks of a simulated log by page and position, and the order of its rows that makes them."""
    order = np.lexsort((table["position"].to_numpy(), table["page"].to_numpy()))
    return table["click"].to_numpy()[order].reshape(-1, 10), order


def with_clicks(table: pa.Table, clicks: np.ndarray, order: np.ndarray) -> pa.Table:
    return replaced(table.take(order), click=clicks.ravel().astype(int))


def test_logs_that_keep_one_click_of_a_page_are_doubted() -> None:
    table = simulated()
    clicks, order = shown_pages(table)
    first = clicks & (np.cumsum(clicks, axis=1) == 1)
    last = clicks & (np.cumsum(clicks[:, ::-1], axis=1)[:, ::-1] == 1)
    for kept in (first, last):
        assert of_pages(with_clicks(table, kept, order)) == ["single clicks"]
    with pytest.warns(HarvestWarning, match="the log keeps one click of a page"):
        harvest(read_log(with_clicks(table, first, order)))
    # Where pages without a click are missing too, users may click once a page; where clicks are rare, they do.
    assert of_pages(clicked_pages(with_clicks(table, first, order))) == ["clicked pages", "one click a page"]
    rare = clicks & (np.arange(len(clicks)) % 20 == 0)[:, None]
    assert of_pages(with_clicks(table, rare & (np.cumsum(rare, axis=1) == 1), order)) == []
    # A page of one row has no second click to lose.
    alone = replaced(with_clicks(table, clicks, order), page=np.arange(table.num_rows))
    assert of_pages(alone) == []


def test_robots_that_click_everything_are_found_and_eager_users_are_not() -> None:
    table = simulated()
    clicks, order = shown_pages(table)
    for every, found in ((20, ["clicked through"]), (1_000, []), (1, [])):
        eager = np.random.default_rng(1).random(clicks.shape) < 0.9 if every == 1 else clicks
        by_robots = (np.arange(len(clicks)) % every == 0)[:, None] & (every > 1)
        assert of_pages(with_clicks(table, np.where(by_robots, 1, eager), order)) == found


def test_rows_that_are_missing_are_found_and_short_lists_are_not() -> None:
    table = simulated()
    clicks, order = shown_pages(table)
    table, random = table.take(order), np.random.default_rng(0)
    thinned = table.filter(clicks.ravel().astype(bool) | (random.random(clicks.size) < 0.4))
    assert of_pages(thinned) == ["missing rows"]
    query = table["query"].to_numpy()
    _, number = np.unique(query, return_inverse=True)
    short = table["position"].to_numpy() <= 3 + number % 8  # every query has as many results as there are
    assert of_pages(table.filter(short)) == []
