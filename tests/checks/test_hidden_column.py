"""Columns that were not named are tried: those that change the curve are told, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from checks.worlds import LOG_K, World, answer, evidence_of, quietly, world
from clickharvest import read_log


def with_columns(seed: int = 0, steep: float = 0.0) -> World:
    """Return pages with phones, whose curve is steeper, and columns that must not be named."""
    pages = world(seed)
    n = len(pages.doc)
    phone = pages.random.random(n) < 0.5
    pages.examined = np.exp(-LOG_K * (1 + steep * np.where(phone, 1, -1))[:, None])
    pages.columns["device"] = np.where(phone, "phone", "desktop")
    pages.columns["one"] = np.zeros(n, dtype=np.int64)
    pages.columns["group"] = pages.columns["ranker"]  # the ranker under another name
    pages.columns["half"] = (np.arange(n) * 2) // n  # the first or second half of the time
    for i in range(4):
        pages.columns[f"random_{i}"] = pages.random.integers(2 + i, size=n)
    pages.draw()
    clicked = pages.clicks.any(axis=1)
    pages.columns["converted"] = clicked & (pages.random.random(n) < 0.3)
    pages.columns["clicks_of_page"] = pages.clicks.sum(axis=1)
    return pages


@pytest.mark.parametrize("without", [(), ("page",), ("user", "ranker", "time")], ids=str)
def test_a_column_that_changes_the_curve_is_told_and_no_other(without: tuple[str, ...]) -> None:
    left_out = ("group", "half", "clicks_of_page", "converted") if without else ()  # what only pages and time tell
    found = answer("hidden column", evidence_of(with_columns(steep=0.3).log(*without, *left_out)))
    assert found.severity == "warning"
    assert found.sentence.startswith("device matters: at position 6, examination is 0.2")
    assert "where device = desktop" in found.sentence
    assert found.advice == "name it: --context device"
    assert found.effect is None  # the curve is right in the mean: the budget does not count it


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_columns_that_change_nothing_are_not_told(seed: int) -> None:
    assert answer("hidden column", evidence_of(with_columns(seed).log())).severity == "ok"


def test_a_named_column_is_not_told_again() -> None:
    pages = with_columns(steep=0.3)
    found = answer("hidden column", evidence_of(pages.log(context=("device",))))
    assert found.severity == "ok"
    assert "as strong as device" in found.sentence


def test_what_follows_from_the_click_is_never_proposed() -> None:
    """Pages whose top was clicked have a curve of their own, and so have rows that were bought."""
    pages = with_columns()
    pages.columns["top"] = pages.clicks[:, 0]
    assert answer("hidden column", evidence_of(pages.log())).severity == "ok"
    bought = pages.clicks.ravel() & (pages.random.random(pages.clicks.size) < 0.5)
    with quietly():
        log = read_log(
            pages.table("page", "half", "top", "converted", "clicks_of_page").append_column("bought", [bought])
        )
    assert answer("hidden column", evidence_of(log)).severity == "ok"
