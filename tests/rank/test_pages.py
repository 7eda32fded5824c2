"""Lists of pages: documents that change from page to page compete on the page that showed them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest import PBM, harvest
from clickharvest.commands.text import verdict
from clickharvest.errors import InputError
from clickharvest.logs.reading import read_log
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.rank.comparison import NAIVE, NEW, best_shown, compare_rankers
from clickharvest.rank.tables import Clicks, read_clicks
from command_line import run
from places import SHARED_DATA

POSITIONS, STOCK = 5, 40
CURVE = 1.0 / np.arange(1, POSITIONS + 1)


@cache
def a_shop(pages: int = 400, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """Every page shows five of its query's forty documents, those in stock, the cheapest first; prices change."""
    random = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("query", "page", "doc", "position", "click", "price")}
    quality = random.normal(size=(20, STOCK))
    for page in range(pages):
        query = page % 20
        docs = random.choice(STOCK, POSITIONS, replace=False)
        price = random.random(POSITIONS)
        order = np.argsort(price)
        liked = 1 / (1 + np.exp(-2 * quality[query, docs[order]] + price[order]))
        clicked = random.random(POSITIONS) < CURVE * liked
        rows["query"] += [f"q{query}"] * POSITIONS
        rows["page"] += [page] * POSITIONS
        rows["doc"] += [f"{query}-{doc}" for doc in docs[order]]
        rows["position"] += range(1, POSITIONS + 1)
        rows["click"] += clicked.astype(int).tolist()
        rows["price"] += price[order].tolist()
    keys = [(query, doc) for query in range(20) for doc in range(STOCK)]
    features = {"doc": [f"{query}-{doc}" for query, doc in keys], "quality": [quality[key] for key in keys]}
    return pa.table(rows), pa.table(features)


def model() -> Propensities:
    positions = tuple(range(1, POSITIONS + 1))
    return Propensities(make_curve("constant", positions, 1, 0), {"b": np.log(CURVE[1:])}, None, shown=positions)


def judged(clicks: Clicks, scores: np.ndarray, naive: np.ndarray | None = None) -> tuple[Any, str]:
    """Return the comparison by dcg@10 of some scores, and the verdict."""
    arms = {f"{name}, as shown": shown for name, shown in clicks.arms.items()}
    rankers = {NEW: scores, NAIVE: scores if naive is None else naive, **arms}
    (row,) = compare_rankers(clicks.data, rankers, metrics=("dcg@10",))
    return row, verdict(best_shown(row, arms), row, clicks)


def test_documents_that_change_from_page_to_page_compete_by_page() -> None:
    log, features = a_shop()
    clicks = read_clicks(read_log(log), features, model())
    clicked = {row["page"] for row in log.to_pylist() if row["click"]}
    assert (clicks.lists, len(clicks.data)) == ("page", len(clicked))
    assert clicks.steady < 0.2
    assert clicks.data.n_queries == 20
    assert np.diff(clicks.data.starts).tolist() == [POSITIONS] * len(clicked)
    (shown,) = clicks.arms.values()
    place = {(row["page"], row["doc"]): row["position"] for row in log.to_pylist()}
    rows = clicks.keys.to_pylist()
    assert [place[rows[row]["page"], rows[row]["doc"]] for row in shown.rows] == shown.position.tolist()
    assert clicks.data.propensity == pytest.approx(CURVE[shown.position.astype(int) - 1][clicks.data.clicked])


def test_the_same_documents_on_all_pages_compete_by_query() -> None:
    log, features = a_shop()
    same = log.set_column(2, "doc", pa.array([f"{row['query'][1:]}-{row['position']}" for row in log.to_pylist()]))
    clicks = read_clicks(read_log(same), features, model())
    assert (clicks.lists, clicks.steady, len(clicks.data)) == ("query", 1.0, 20)
    assert read_clicks(read_log(same), features, model(), lists="page").lists == "page"


def test_features_of_pages_come_by_page() -> None:
    log, _ = a_shop()
    clicks = read_clicks(read_log(log), log.select(["page", "doc", "price"]), model())
    price = {(row["page"], row["doc"]): row["price"] for row in log.to_pylist()}
    assert clicks.lists == "page"
    assert clicks.data.features.matrix[:, 0].tolist() == [
        price[row["page"], row["doc"]] for row in clicks.keys.to_pylist()
    ]


def test_the_verdict_on_a_better_and_a_worse_ranker() -> None:
    log, features = a_shop(2_000)
    clicks = read_clicks(read_log(log), features, model())
    quality = np.asarray(clicks.data.features.matrix[:, 0])
    assert judged(clicks, quality)[1].startswith("Better: the new ranker beats what was shown (all traffic, as shown)")
    assert judged(clicks, -quality)[1].startswith("Worse: keep what was shown (all traffic, as shown)")


def test_no_verdict_where_documents_of_a_query_never_competed() -> None:
    log, features = a_shop(2_000)
    clicks = read_clicks(read_log(log), features, model(), lists="query")
    told = judged(clicks, np.asarray(clicks.data.features.matrix[:, 0]))[1]
    assert told.startswith("No verdict: a result is on")
    assert "--page" in told


def test_no_verdict_where_most_of_the_ranking_was_never_shown() -> None:
    log, features = a_shop(200)
    query = pa.array([f"q{doc.partition('-')[0]}" for doc in features["doc"].to_pylist()])
    stock = features.append_column("query", query)
    clicks = read_clicks(read_log(log), stock, model(), candidates="all")
    assert (np.diff(clicks.data.starts) == STOCK).all()
    row, told = judged(clicks, np.asarray(clicks.data.features.matrix[:, 0]))
    assert row.estimates[NEW].unseen > 0.5
    assert told.startswith("No verdict: ")
    assert "was never shown" in told
    with pytest.raises(InputError, match="say which documents compete"):
        read_clicks(read_log(log), features, model(), candidates="all")


def test_what_propensities_may_be_off_by_is_in_the_interval() -> None:
    """A ranking that is better only because lower positions weigh more is not called better where they may not."""
    log, features = a_shop(2_000)
    wide = {"positions": [2, 3, 4, 5], "up": [9.0] * 4, "down": [0.9] * 4, "terms": {}, "same_direction": [9.0] * 4}
    kept = wide | {"word": "cannot tell", "off": 9.0, "tolerance": 0.3, "times": 1.0, "untested": {}, "reason": ""}
    unsure = Propensities(
        model().curve, model().params, None, model().shown, info={"budget": kept | {"folds": [], "noun": "position"}}
    )
    known = read_clicks(read_log(log), features, model())
    doubted = read_clicks(read_log(log), features, unsure, trust="all")
    assert known.data.bounds is None
    assert doubted.data.bounds is not None
    least, most = doubted.data.bounds
    assert (least <= doubted.data.propensity).all()
    assert (most >= doubted.data.propensity).all()
    scores = np.asarray(known.data.features.matrix[:, 0])
    gap, wider = (judged(clicks, scores)[0].differences["all traffic, as shown"] for clicks in (known, doubted))
    assert wider.value == pytest.approx(gap.value)
    assert wider.lower < gap.lower < gap.upper <= wider.upper


@pytest.mark.parametrize("lists", ["auto", pytest.param("query", marks=pytest.mark.nightly)])
def test_expedia_keeps_its_order(lists: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ranker by price and promotion, constant per hotel, is worse on the pages that were shown."""
    log = SHARED_DATA / "expedia_pieces.parquet"
    if not log.exists():
        pytest.skip("the real log expedia_pieces.parquet is not on this machine")
    hotels: dict[str, list[float]] = {}
    for row in pq.read_table(log, columns=["doc", "price", "promotion"]).to_pylist():
        hotels.setdefault(row["doc"], []).append(float(row["price"]))
    price = [float(np.mean(own)) for own in hotels.values()]
    pq.write_table(pa.table({"doc": list(hotels), "price": price}), tmp_path / "hotels.parquet")
    model = tmp_path / "model.safetensors"
    PBM().fit(harvest(read_log(log))).propensities_.save(model)
    options = ("--model", model, "--C", 1, "--clip", 0.1, "--lists", lists, "-o", tmp_path / "r.json", "--json")
    assert run("rank", log, tmp_path / "hotels.parquet", *options) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["lists"] == ("page" if lists == "auto" else "query")
    keep = "keep what was shown" if lists == "auto" else "these documents never competed"
    assert keep in answer["verdict"]
    (gap,) = [one for one in answer["differences"] if one["metric"] == "dcg@10" and one["to"] == answer["best_shown"]]
    assert gap["value"] < 0 or lists == "query"
