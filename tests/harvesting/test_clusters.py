"""Clusters other than queries: clicks are divided among them, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import InputError
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Swap
from clickharvest.harvesting.interventions import COLUMNS, Interventions
from clickharvest.harvesting.reading import read_interventions
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.reading import read_log
from clickharvest.model.provenance import data_fingerprint
from command_line import run

pytestmark = pytest.mark.usefixtures("one_duckdb")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(0)
    n = 4_000
    page = np.arange(n)
    user = [None if p % 10 == 0 else f"user {p // 20}" for p in page]
    columns = {"query": page % 30, "doc": page % 30 * 10 + random.integers(3, size=n), "page": page, "user": user}
    columns |= {"device": np.array(["desk", "phone"])[page // 7 % 2], "position": random.integers(1, 5, n)}
    columns |= {"campaign": page % 30 // 10, "original": columns["position"]}
    return pa.table(columns | {"click": (random.random(n) < 0.5 / columns["position"]).astype(int)})


def opened(table: pa.Table, **roles: Any) -> ClickLog:
    return read_log(table, context=["device"], **roles)


def test_divided_clicks_add_up(table: pa.Table) -> None:
    log = opened(table)
    every, swap = ("user", "doc", "page", "campaign"), Swap.uniform(4)
    for options, clusters in (
        ({}, every), ({"unit": "query"}, ("user",)), ({"max_position": 3}, ("page",)), ({"design": swap}, every)
    ):  # fmt: skip
        plain = harvest(log, **options)  # type: ignore[arg-type]
        for cluster in clusters:
            divided = harvest(log, cluster=cluster, **options)  # type: ignore[arg-type]
            assert divided.cluster_kind == cluster
            assert len(divided) > len(plain)
            assert divided.n_units == plain.n_units
            whole = divided.undivided()
            for name in COLUMNS:
                assert np.array_equal(getattr(whole, name), getattr(plain, name)), (cluster, name)
            assert data_fingerprint(divided) == data_fingerprint(plain)


def test_clusters_are_those_of_the_clicks(table: pa.Table) -> None:
    divided = harvest(opened(table), cluster="campaign")
    assert divided.cluster is not None
    clicked = divided.clicks > 0
    assert np.array_equal(divided.cluster[clicked], divided.query[clicked] // 10)
    assert (divided.cluster[~clicked] == -1).all()


def test_who_is_unknown_is_somebody_else_on_every_page(table: pa.Table) -> None:
    rows = table.to_pylist()
    units = {}
    for row in rows:
        units.setdefault((row["query"], row["device"], row["doc"]), set()).add(row["position"])
    kept = [row for row in rows if row["click"] and len(units[row["query"], row["device"], row["doc"]]) > 1]
    for page, other in (("page", "page"), ("", "query")):
        divided = harvest(opened(table, page=page), cluster="user")
        assert divided.cluster is not None
        who = {row["user"] or f"{other} {row[other]}" for row in kept}
        assert len(np.unique(divided.cluster[divided.cluster >= 0])) == len(who)


def test_a_role_may_have_another_name(table: pa.Table) -> None:
    visitor = table.rename_columns(["visitor" if name == "user" else name for name in table.column_names])
    named, by_role = (harvest(opened(visitor, user="visitor"), cluster=cluster) for cluster in ("visitor", "user"))
    assert np.array_equal(named.cluster, by_role.cluster)  # type: ignore[arg-type]


def test_what_is_not_there_does_not_cluster(table: pa.Table) -> None:
    with pytest.raises(InputError, match=r"--cluster session: no such column, found query"):
        harvest(opened(table), cluster="session")
    with pytest.raises(InputError, match=r"--cluster user: no such column.*name it with --user COLUMN"):
        harvest(opened(table.drop(["user"])), cluster="user")
    one = np.ones(1, int)
    with pytest.raises(InputError, match=r"cluster_kind is 'user', but there are no clusters"):
        Interventions(one, one, one, one * 1.0, one, one, cluster_kind="user")


def test_files_keep_clusters(table: pa.Table, tmp_path: Path) -> None:
    divided = harvest(opened(table), cluster="user")
    divided.write(tmp_path / "i.parquet")
    again = read_interventions(tmp_path / "i.parquet")
    assert np.array_equal(again.cluster, divided.cluster)  # type: ignore[arg-type]
    assert (again.cluster_kind, again.exposure_kind, list(again.contexts)) == ("user", "realised", ["device"])
    bare = pq.read_table(tmp_path / "i.parquet").replace_schema_metadata(None)
    pq.write_table(bare, tmp_path / "bare.parquet")
    told = read_interventions(tmp_path / "bare.parquet")
    assert (told.cluster_kind, told.exposure_kind, list(told.contexts)) == ("user", "realised", ["device"])
    broken = bare.set_column(
        bare.column_names.index("clustered_by_user"), "clustered_by_user", pa.array([-1] * len(bare))
    )
    pq.write_table(broken, tmp_path / "broken.parquet")
    with pytest.raises(InputError, match="rows have clicks of nobody"):
        read_interventions(tmp_path / "broken.parquet")


def test_commands_take_clusters(table: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, interventions, model = (tmp_path / name for name in ("log.parquet", "i.parquet", "m.safetensors"))
    pq.write_table(table, log)
    assert run("harvest", log, "--cluster", "user", "-o", interventions) == 0
    capsys.readouterr()
    assert run("fit", interventions, "--verbose", "-o", model) == 0
    told = capsys.readouterr().out
    assert "30 queries" in " ".join(told.split())
    assert "users." in told.replace("\n", " ")
    assert "clustered, by user," in told
    assert run("fit", interventions, "--cluster", "doc", "-o", model) == 2
    assert "was harvested by user; harvest the log again with --cluster doc" in capsys.readouterr().err
    assert run("fit", log, "--cluster", "user", "--objective", "allpairs", "-o", model) == 2
    assert "cannot divide them by user" in capsys.readouterr().err
    assert run("fit", log, "--cluster", "campaign", "--verbose", "-o", model) == 0
    assert "3 values of campaign" in capsys.readouterr().out
    assert run("compare", model, "--log", log, "--cluster", "user") == 0
    assert "users (as good as" in capsys.readouterr().out
    assert run("check", interventions) == 0


def test_sql_is_that_of_the_harvest(table: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("harvest", "clicks", "--context", "device", "--cluster", "user", "--emit-sql", "duckdb") == 0
    sql = capsys.readouterr().out
    connection = duckdb.connect()
    connection.register("clicks", table.drop(["page"]))
    found = connection.sql(sql).to_arrow_table()
    pq.write_table(found, tmp_path / "i.parquet")
    divided, expected = read_interventions(tmp_path / "i.parquet"), harvest(opened(table, page=""), cluster="user")
    assert divided.cluster_kind == "user"
    for name in ("unit", "position", "exposure", "clicks", "impressions", "cluster"):
        assert np.array_equal(getattr(divided, name), getattr(expected, name)), name
