"""The report's plan: the same as that of `clickharvest plan`, and none where it would mislead."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.baselines import pivot_one
from clickharvest.checks import TOLERANCE
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.reading import read_log
from clickharvest.planning.traffic import MOST_COLUMNS, MOST_SEGMENTS, plan_from_log, plan_traffic
from clickharvest.report.content import make_content
from clickharvest.report.log_summary import summarise_log
from clickharvest.report.sections import traffic_data
from clickharvest.simulate import simulate_ab_log

pytestmark = pytest.mark.usefixtures("one_duckdb")


@cache
def by_kind(kinds: int) -> Interventions:
    """Return a small log whose queries are of so many kinds."""
    table = simulate_ab_log(pages=1_500, queries=60, docs=8, positions=4, seed=4)[0]
    number = [int(name.split()[1]) % kinds for name in table["query"].to_pylist()]
    return harvest(read_log(table.append_column("kind", pa.array([f"k{n}" for n in number])), context=["kind"]))


def test_few_contexts_have_their_own_line_and_many_share_one() -> None:
    own = plan_traffic(by_kind(MOST_SEGMENTS))
    assert own is not None
    assert {line["name"] for line in traffic_data(own)["segments"]} == {f"kind = k{i}" for i in range(MOST_SEGMENTS)}
    many = by_kind(MOST_SEGMENTS + 1)
    together = plan_traffic(many)
    assert together is not None
    assert [line["name"] for line in traffic_data(together)["segments"]] == ["all queries"]
    np.testing.assert_array_equal(together.times, plan_from_log(replace(many, contexts={})).times)
    same = by_kind(2)
    wide = replace(same, contexts={f"kind {i}": same.contexts["kind"] for i in range(MOST_COLUMNS + 1)})
    shared = plan_traffic(wide)
    assert shared is not None
    assert not shared.contexts


def test_no_plan_from_a_part_of_the_log_or_without_links() -> None:
    interventions = by_kind(2)
    assert plan_traffic(interventions) is not None
    assert plan_traffic(replace(interventions, thinned_from=10**6)) is None
    assert plan_traffic(interventions, anchor=9) is None


def test_the_page_tells_days_where_the_log_has_times() -> None:
    table = simulate_ab_log(pages=800, queries=40, docs=8, positions=4, seed=5)[0]
    day = [date(2026, 3, 1) + timedelta(days=i % 10) for i in range(len(table))]
    log = read_log(table.append_column("day", pa.array(day)), time="day")
    model = pivot_one(harvest(log))
    summary = summarise_log(log, model)
    assert summary.plan is not None
    assert summary.plan.days == 10
    view, data = make_content(model, summary, commands={})
    assert view["traffic"]["sentence"] == plan_from_log(harvest(log), days=10, width=TOLERANCE).sentence
    assert view["traffic"]["width"] == "±30 %"
    assert "days" in view["traffic"]["sentence"]
    assert data["traffic"]["days"] == 10
    assert [point["k"] for point in data["traffic"]["segments"][0]["points"]] == [2, 3, 4]
    view, data = make_content(model, replace(summary, plan=None), commands={})
    assert view["traffic"] is None
    assert data["traffic"] is None


def test_what_is_never_enough_is_null() -> None:
    plan = plan_traffic(by_kind(2))
    assert plan is not None
    never = replace(plan, times=np.full_like(plan.times, np.inf))
    assert all(point["times"] is None for line in traffic_data(never)["segments"] for point in line["points"])


def test_the_chart_has_the_plans_range() -> None:
    plan = plan_traffic(by_kind(2))
    assert plan is not None
    points = [
        point for line in traffic_data(plan)["segments"] for point in line["points"] if point["margin"] > plan.width
    ]
    assert points
    assert all(point["least"] < point["times"] for point in points)
    assert all(point["most"] is None or point["times"] < point["most"] for point in points)
