"""What a log adds to a report: its checks, what was compared, and what weights are worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.checks import TOLERANCE, Checked, check_fit
from clickharvest.errors import InputError
from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Swap
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.reading import read_log
from clickharvest.model.propensities import Propensities
from clickharvest.report.log_summary import summarise_log
from clickharvest.simulate import simulate_ab_log

pytestmark = pytest.mark.usefixtures("one_duckdb")


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return read_log(simulate_ab_log(pages=4_000, seed=2)[0], context=["device"], page="page", ranker="ranker")


@pytest.fixture(scope="module")
def model(log: ClickLog) -> Propensities:
    return CPBM(curve="power", penalty=1.0).fit(harvest(log)).propensities_


def test_the_checks_are_those_of_the_log(log: ClickLog, model: Propensities) -> None:
    found, expected = summarise_log(log, model).checked, check_fit(log, model)
    assert found is not None
    assert found.budget == expected.budget
    assert [own.to_dict() for own in found.findings] == [own.to_dict() for own in expected.findings]
    assert found.budget.tolerance == TOLERANCE


def test_what_is_asked_for_is_what_the_model_was_asked_for(log: ClickLog, model: Propensities) -> None:
    asked = replace(model, info=dict(model.info) | check_fit(log, model, positions=(2, 3), tolerance=0.5).info())
    for options, positions, tolerance in (({}, (2, 3), 0.5), ({"positions": (4,), "tolerance": 0.2}, (4,), 0.2)):
        checked = summarise_log(log, asked, **options).checked
        assert checked is not None
        assert checked.budget.positions == positions
        assert checked.budget.tolerance == tolerance


def test_clicks_and_weights_are_those_of_the_whole_log(log: ClickLog, model: Propensities) -> None:
    table = log.engine.fetch(log.table.select("device", "position", "clicks"), task="").to_pandas()
    clicked = table[table.clicks == 1]
    p = model.predict({"device": ["desktop", "mobile"]}).propensity
    own = p[(clicked.device == "mobile").astype(int), clicked.position - 1]
    found = summarise_log(log, model).clipping
    assert found is not None
    assert (found.clicks, found.left_out) == (len(own), 0)
    assert found.clip == pytest.approx(1 / np.sqrt(len(own)))
    weight = 1 / np.maximum(own, found.clip)
    assert found.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert found.clipped == pytest.approx((own < found.clip).mean())


def test_interventions_leave_most_untested(log: ClickLog, model: Propensities) -> None:
    interventions = harvest(log)
    found = summarise_log(interventions, model)
    assert found.same_data is True
    assert found.checked is not None
    assert {"time", "crowd", "clicks above"} <= found.checked.budget.untested.keys()
    assert found.compared.startswith(f"{interventions.n_units:,} results at two or more of positions 1-10: ")


def test_another_log_is_called_another(model: Propensities) -> None:
    other = read_log(simulate_ab_log(pages=2_000, seed=9)[0], context=["device"])
    assert summarise_log(other, model).same_data is False


def test_a_plan_is_made_where_the_budget_is_not_usable(
    log: ClickLog, model: Propensities, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = summarise_log(log, model, tolerance=0.2)
    assert found.checked is not None
    assert found.checked.budget.word != "usable"
    assert found.plan is not None
    assert found.plan.width == 0.2
    usable = replace(found.checked.budget, up=(0.1,) * 9, down=(0.1,) * 9)
    monkeypatch.setattr(
        "clickharvest.report.log_summary.check_fit", lambda *_, **__: Checked(found.checked.findings, usable)
    )
    assert summarise_log(log, model).plan is None


def test_a_log_read_without_the_models_columns_is_refused(model: Propensities) -> None:
    log = read_log(simulate_ab_log(pages=200)[0])
    with pytest.raises(InputError, match="depends on the context columns device"):
        summarise_log(log, model)


def test_contexts_with_nulls_are_counted(model: Propensities) -> None:
    table, _ = simulate_ab_log(pages=1_500, seed=1)
    device = [None if name == "mobile" else name for name in table["device"].to_pylist()]
    log = read_log(table.set_column(table.column_names.index("device"), "device", pa.array(device)), context=["device"])
    fitted = CPBM(curve="power", penalty=1.0, intervals=None).fit(harvest(log)).propensities_
    found = summarise_log(log, replace(fitted, info={}))
    assert found.clipping is not None
    assert found.clipping.clicks + found.clipping.left_out == sum(table["click"].to_pylist())
    assert found.same_data is None
    assert len(found.x)


def test_what_comes_of_a_click_is_not_checked(log: ClickLog, model: Propensities) -> None:
    assert summarise_log(log, replace(model, info={"outcome": "purchase"})).checked is None


def swapped_pages(share: float, pages: int = 3_000, k: int = 4) -> dict[str, Any]:
    """A share of the pages had rank 1 swapped with one drawn from all."""
    random = np.random.default_rng(0)
    drawn = np.where(random.random(pages) < share, random.integers(k, size=pages), 0)
    original = np.tile(np.arange(k), (pages, 1))
    position = original.copy()
    position[:, 0] = drawn
    position[np.arange(pages), drawn] = 0
    query = random.integers(20, size=pages)
    relevance = random.beta(2, 2, (20, k))[query]
    click = random.random((pages, k)) < relevance / (position + 1)
    rows = {"query": query.repeat(k), "doc": query.repeat(k) * k + original.ravel(), "original": original.ravel() + 1}
    return rows | {"position": position.ravel() + 1, "click": click.ravel().astype(int)}


@pytest.mark.parametrize(("share", "decisive"), [(1.0, False), (0.2, True)])
def test_swaps_that_did_not_take_place_decide_the_word(share: float, decisive: bool) -> None:
    log = read_log(pa.table(swapped_pages(share)), original="original")
    design = Swap.uniform(4)
    model = PBM().fit(harvest(log, design=design)).propensities_
    checked = summarise_log(log, model, design=design).checked
    assert checked is not None
    (found,) = (one for one in checked.findings if one.kind == "swap ranks")
    assert (found.severity == "decisive") is decisive
    assert (checked.budget.reason == found.sentence) is decisive
