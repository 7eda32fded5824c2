"""The page of a browsing model: its table, its sentences, and nothing of the user's that is markup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickharvest.checks import Finding
from clickharvest.click_models import BrowsingPropensities, StatePropensities
from clickharvest.click_models.browsing.fitted import state_places
from clickharvest.errors import InputError
from clickharvest.model import make_curve
from clickharvest.report import write_report

NEAR = {"ratio": 2.0, "lower": 1.5, "upper": 2.5}


@pytest.fixture
def model() -> BrowsingPropensities:
    b = np.log([0.5, 0.25])
    states = StatePropensities(
        make_curve("constant", (1, 2, 3), 1, 0), {"b": b}, None, (1, 2, 3), draws=b + np.array([[-0.1], [0.1]]),
        draws_kind="clustered", places=state_places(2), leaning=(3,),
    )  # fmt: skip
    return BrowsingPropensities(states, {"click_above": {"next": NEAR, "further": None}, "clicks": 9})


def test_the_page_has_every_state_and_escapes_what_is_not_ours(model: BrowsingPropensities, tmp_path: Path) -> None:
    finding = Finding("browsing", "warning", "<script>alert(1)</script>")
    model = replace(model, info=dict(model.info) | {"findings": [finding.to_dict()]})
    size = write_report(tmp_path / "r.html", model, title="<b>", name="m", commands={"weigh": "weigh & more"})
    page = (tmp_path / "r.html").read_text()
    assert size == len(page.encode())
    for text in (
        ">1.00<",
        ">0.50<",
        ">0.25*<",
        "2.00 times as often",
        "&lt;script&gt;",
        "weigh &amp; more",
        "no interval",
    ):
        assert text in page
    assert "<script>alert" not in page


def test_a_level_that_is_none_is_refused(model: BrowsingPropensities, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the level of an interval is 2"):
        write_report(tmp_path / "r.html", model, level=2)


def test_intervals_are_promised_where_there_are_some(model: BrowsingPropensities, tmp_path: Path) -> None:
    write_report(tmp_path / "with.html", model)
    assert "Point at a number to see its 95 % interval." in (tmp_path / "with.html").read_text()
    states = replace(model.states, draws=None, draws_kind=None)
    write_report(tmp_path / "without.html", replace(model, states=states))
    text = (tmp_path / "without.html").read_text()
    assert "These numbers have no intervals." in text
    assert "Point at" not in text
