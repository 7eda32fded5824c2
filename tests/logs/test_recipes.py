"""Recipes in SQL of `docs/exports.md` for public datasets, on files made by hand in the layouts of their owners."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest import read_log
from places import ROOT

pytestmark = pytest.mark.usefixtures("one_duckdb")

RECIPES = dict(
    re.findall(r'^```sql title="(\w+)\.sql"\n(.*?)^```$', (ROOT / "docs/exports.md").read_text(), re.M | re.S)
)


@pytest.fixture(autouse=True)
def new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def cook(recipe):
    with duckdb.connect() as connection:
        connection.execute(RECIPES[recipe])


def table(file):
    with Path(file).open() as lines:
        return list(csv.DictReader(lines))


def write(file, header, rows):
    Path(file).parent.mkdir(exist_ok=True)
    with Path(file).open("w", newline="") as lines:
        csv.writer(lines).writerows([header, *rows])


def seznam_line(page, query, filled, hour=0):
    """Return a line: `filled` has click, propensity, vertical and domain of each position; 14 have fields."""
    fields = [page, query, "2", "1", f"2018-08-20-{hour:02}-30-00-CEST", "3 7", "phone"]
    fields += [field for place in filled for field in place] + [""] * 4 * (14 - len(filled))
    assert len(fields) == 63
    return "\t".join(map(str, fields)) + "\n"


def test_seznam_has_whole_pages():
    first = [(0, 0.5, 0, "a"), (1, 0.2, 3, ""), (0, 1.0, 0, "a"), (2, 1.0, 0, "b"), (0, 1.0, 0, "c"), (0, 0.1, 7, "")]
    second = [(0, 0.0, 7, ""), (0, 1.0, 0, 'a"')]
    Path("part0.tsv").write_text(seznam_line("p1", "q", first))
    Path("part1.tsv").write_text(seznam_line("p2", "q", second, hour=9))
    cook("seznam")
    rows = sorted(pq.read_table("seznam.parquet").to_pylist(), key=lambda row: (row["page"], row["position"]))
    docs = ["a 1", "vertical 3", "a 2", "b 1", "c 1", "vertical 7", "vertical 7", 'a" 1']
    assert [row["doc"] for row in rows] == docs
    assert [row["click"] for row in rows] == [0, 1, 0, 1, 0, 0, 0, 0]
    assert (rows[0]["query"], rows[0]["device"], rows[0]["above"], rows[-1]["time"].hour) == ("q", "phone", 1, 9)


def test_seznams_probabilities_find_examination_where_the_policy_knows_what_is_wanted():
    """At night maps are wanted more, and stand first more often. A second vertical says nothing."""
    random, examined, rates = np.random.default_rng(0), (1.0, 0.6, 0.4), []
    with Path("part0.tsv").open("w") as lines:
        for page in range(40_000):
            night = page % 2
            chance = [0.6, 0.5, 1.0] if night else [0.2, 0.3, 1.0]
            place = next(k for k in range(3) if random.random() < chance[k])
            click = int(random.random() < examined[place] * (0.8 if night else 0.2))
            organic = [(0, 1 - chance[k], 0, f"d{k}") for k in range(place)]
            lines.write(seznam_line(page, "q", [*organic, (click, chance[place], 3, ""), (1, 0.001, 7, "")]))
            rates.append((place, click))
    cook("seznam")
    found = [float(row["propensity"]) for row in table("drawn.csv")]
    naive = [np.mean([click for at, click in rates if at == place]) for place in range(3)]
    assert found == pytest.approx(examined, rel=0.05)
    assert naive[2] / naive[0] < 0.3


def test_recgaze_has_looks_beside_clicks():
    aoi = "AOI_type", "AOI_MovieID", "AOI_Carousel_position"
    names = ["UserID", "TaskID", *(f"{event}_{column}" for event in ("Fixation", "Click") for column in aoi)]
    nothing = ["NA"] * 3
    looked = [("u1", 1, 10, 1), ("u1", 1, 10, 1), ("u1", 1, 30, 2), ("u2", 1, 20, 1)]
    looks = [(user, task, "Movie", *film) for user, task, *film in looked] + [("u1", 1, "Genre", "NA", 1)]
    write(
        "summary_feedback.csv", names, [[*look, *nothing] for look in looks] + [["u3", 1, *nothing, "Forward", "NA", 1]]
    )
    write(
        "click_feedback.csv", ["UserID", "TaskID", *(f"Click_{column}" for column in aoi)], [("u1", 1, "Movie", 30, 2)]
    )
    items = ["TMDB_title", "TaskID", "Carousel_position", "MovieID", "Movie_position_in_carousel"]
    shown = [("A", 1, 1, 10, 1), ("B", 1, 1, 20, 2), ("C", 1, 2, 30, 1), ("not shown", "NA", "NA", 40, "NA")]
    write("item_features.csv", items, shown)
    cook("recgaze")
    assert read_log("recgaze.parquet", place=("shelf", "cell"), page="page").places.columns == ("shelf", "cell")
    rows = pq.read_table("recgaze.parquet").to_pylist()
    assert len(rows) == 9
    assert {(row["page"], row["doc"]) for row in rows if row["looked"]} == {("u1 1", 10), ("u1 1", 30), ("u2 1", 20)}
    assert {(row["page"], row["doc"]) for row in rows if row["click"]} == {("u1 1", 30)}
    assert [(row["position"], float(row["propensity"])) for row in table("shelves.csv")] == [("1", 1.0), ("2", 0.5)]
    assert [row["clicks_by_look"] for row in table("cells.csv")] == ["0.0", "0.0", "1.0"]


def test_adserp_has_the_share_of_pages_on_which_ads_were_looked_at():
    box = [{"location": {"x": 162, "y": y}, "size": {"height": 69, "width": 540}} for y in (600, 160, 2000)]
    Path("ad-boundary-data").mkdir()
    for trial, ads in {"p1-b1-t1": box, "p1-b1-t2": box[:1], "p2-b1-t1": []}.items():
        boxes = {"native_ad": ads, "dd_top": [], "dd_right": []}
        Path(f"ad-boundary-data/{trial}.json").write_text(json.dumps(boxes))
        looked = [(1671196645197, 200, 200, 294), (1671196645405, 800, 620, 201)]
        write(
            f"fixation-data/{trial}.csv",
            ["timestamp", "FPOGX", "FPOGY", "FPOGD"],
            looked + [(1, 300, 610, 9)] * (ads == box[:1]),
        )
    cook("adserp")
    assert [(row["position"], float(row["propensity"]), row["pages"]) for row in table("ads.csv")] == [
        ("1", 1.0, "2"),
        ("2", 0.0, "1"),
    ]
