"""What no user does is found, and what users do is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.diagnosis.findings import Finding
from clickharvest.diagnosis.suspects import suspects
from clickharvest.harvesting.collecting import harvest_table
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log

ENGINE = DuckDBEngine()


def rows(pages: int = 600, *, users: int = 200, seed: int = 0) -> dict[str, Any]:
    """Return a log of pages of four results of ten queries; users come back, and like some results."""
    random = np.random.default_rng(seed)
    query, user = random.integers(10, size=pages), random.integers(users, size=pages)
    doc = random.permuted(np.tile(np.arange(4), (pages, 1)), axis=1) + 4 * query[:, None]
    liked = random.random((users, 40)) < 0.4
    click = random.random((pages, 4)) < liked[user[:, None], doc] / np.arange(1, 5)
    columns = {"page": np.arange(pages), "user": user.astype(str), "query": query}
    told = {name: np.repeat(column, 4) for name, column in columns.items()}
    return told | {"doc": doc.ravel(), "position": np.tile([1, 2, 3, 4], pages), "click": click.ravel().astype(int)}


def found(log: dict[str, Any], **options: Any) -> list[Finding]:
    read = read_log(pa.table(log), engine=ENGINE, **({"user": "user"} | options))
    return suspects(read, ENGINE.materialise(harvest_table(read), task="Harvesting"))


def names(log: dict[str, Any], **options: Any) -> list[str]:
    return [finding.name for finding in found(log, **options)]


def test_users_that_come_back_are_no_suspects() -> None:
    assert names(rows()) == []
    assert names(rows(), user="") == []
    few = {name: column[:40] for name, column in rows().items()}
    assert names(few, user="") == []


def test_few_users_are_told() -> None:
    assert names(rows(users=30)) == ["few users"]
    log = rows(users=30)
    log["user"] = np.where(np.arange(2_400) < 1_200, log["user"].astype(object), None)
    assert names(log) == [], "most clicks may be those of anybody"


@pytest.mark.parametrize(("share", "told"), [(0.5, ["one user"]), (0.01, [])])
def test_a_user_with_a_tenth_of_all_clicks_is_named(share: float, told: list[str]) -> None:
    log = rows()
    pages = np.random.default_rng(1).random(600) < share
    log["user"] = np.where(np.repeat(pages, 4), "-1", log["user"])
    assert names(log) == told
    if told:
        (suspect,) = found(log)
        assert suspect.sentence.startswith("User -1 makes ")
    # Visitors without a name are nobody.
    log["user"] = np.where(np.repeat(pages, 4), None, log["user"].astype(object))
    assert names(log) == []


@pytest.mark.parametrize("known", [True, False])
def test_clicks_that_count_for_every_display_are_found(known: bool) -> None:
    log = rows(users=120)
    log["doc"] = log["doc"] * 5 + np.arange(2_400) // 4 % (1 if known else 5)  # enough that some are clicked
    _, key = np.unique(log["doc"] + 1_000 * log["user"].astype(int) * known, return_inverse=True)
    log["click"] = (np.random.default_rng(2).random(key.max() + 1) < 0.4)[key].astype(int)
    assert names(log, user="user" if known else "") == ["repeated clicks"]


def test_contexts_made_of_clicks_are_found() -> None:
    log = rows(pages=1_500)
    clicks = log["click"].reshape(-1, 4).sum(axis=1)
    log["clicks_of_page"] = np.repeat(np.minimum(clicks, 2).astype(str), 4)
    log["stay"] = np.repeat(np.where(clicks > 0, 1.5 + clicks % 2, np.nan), 4)
    log["device"] = np.repeat(np.random.default_rng(3).choice(["phone", "desk"], 1_500), 4)
    log["kind"] = np.where(log["query"] < 5, "dull", "other")
    log["click"] = np.where(log["kind"] == "dull", 0, log["click"])  # no click, but the queries have none otherwise
    told = found(log, context=["clicks_of_page", "stay", "device", "kind"])
    assert [finding.name for finding in told] == ["context of clicks"] * 2
    assert [finding.sentence.split(" is ")[0] for finding in told] == ["clicks_of_page = 0", "stay = (empty)"]
