"""Planning: against formulas by hand, against fits of what was planned, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation import CPBM, PBM
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.reading import read_log
from clickharvest.model.support import rests_on_few
from clickharvest.planning import (
    choose_swaps,
    outline_from_rankings,
    plan_from_design,
    plan_from_log,
    ranked_outline,
)
from clickharvest.planning.designing import _variance, candidates
from clickharvest.planning.forecast import forecast
from clickharvest.planning.query_variances import counts, unseen
from command_line import run
from samples import simulated_interventions


def widths(interventions: Interventions) -> np.ndarray:
    told = PBM().fit(interventions).predict()
    return (np.log(told.upper / told.lower) / 2)[0, 1:]


def two_positions(clicks: int, queries: int = 400) -> Interventions:
    """Return units shown equally at 1 and 2, clicked equally: so many clicks in all."""
    unit = np.repeat(np.arange(queries), 2)
    each = np.full(2 * queries, clicks // (2 * queries))
    return Interventions(
        unit=unit, query=unit, position=np.tile([1, 2], queries), exposure=10.0 * each, clicks=each,
        impressions=10 * each,
    )  # fmt: skip


def test_two_positions_need_what_the_formula_says() -> None:
    """The standard error of log p_2 / p_1 is 2 / √clicks: ±10 % takes 4 (1.96 / log 1.1)² clicks."""
    found = plan_from_log(two_positions(8_000), width=0.1)
    assert found.margin[0, 0] == pytest.approx(np.expm1(1.96 * 2 / np.sqrt(8_000)), rel=0.02)
    assert found.times[0, 0] == pytest.approx(4 * (1.96 / np.log(1.1)) ** 2 / 8_000, rel=0.03)


def test_positions_that_wait_for_clicks_are_not_beyond_any_traffic() -> None:
    """What stood at 1 and 3 was clicked at 1 alone, what stood at 3 and 4 not at all; 5 and 6 are apart."""
    told = two_positions(800, queries=20)
    more = {"unit": [90, 90, 91, 91, 92, 92], "query": [0] * 6, "position": [1, 3, 3, 4, 5, 6]}
    more |= {"exposure": [9.0] * 6, "clicks": [3, 0, 0, 0, 1, 1], "impressions": [9] * 6}
    columns = {name: np.concatenate([getattr(told, name), np.array(own)]) for name, own in more.items()}
    found = plan_from_log(Interventions(**columns))
    assert (found.positions, found.unlinked, found.awaited) == ((2,), (3, 4, 5, 6), (3, 4))
    assert "at every linked position" in found.sentence
    assert "Not linked yet, for want of clicks: 3-4." in str(found)
    assert "Not linked, whatever the traffic: 5-6." in str(found)
    assert found.to_dict()["awaited"] == [3, 4]


def test_the_present_width_is_that_of_the_fit() -> None:
    interventions = simulated_interventions(150, seed=3, steepness={"desk": 1.0})
    without = replace(interventions, contexts={})
    np.testing.assert_allclose(np.log1p(plan_from_log(without).margin[0]), widths(without), rtol=1e-4)


@pytest.mark.parametrize("new_queries", [False, True])
def test_every_position_may_have_traffic_of_its_own(new_queries: bool) -> None:
    """Against the covariance J⁻¹ (…) J⁻¹ written out, scale by scale."""
    told = forecast(simulated_interventions(80, seed=4, steepness={"desk": 1.0, "phone": 0.5}))
    scales = np.random.default_rng(0).choice([0.01, 0.5, 3.0, 1e4], told.log_p.shape)
    found = told.log_sd(scales, new_queries=new_queries)
    for s in np.unique(scales):
        inverse = np.linalg.inv(s * told.information + told.precision)
        apart = s * told.apart if new_queries else s**2 * (told.apart - told.single) + s * told.single
        score = told.overdispersion * s * told.information + apart + told.precision
        covariance = inverse @ score @ inverse + told.missed / s
        expected = np.sqrt(np.einsum("cki,ij,ckj->ck", told.gradients, covariance, told.gradients))
        np.testing.assert_allclose(found[scales == s], expected[scales == s], rtol=1e-7, atol=1e-12)


def test_contexts_have_their_own_widths() -> None:
    interventions = simulated_interventions(200, seed=4, steepness={"desk": 1.0, "phone": 0.5})
    found = plan_from_log(interventions)
    told = CPBM(curve="linear").fit(interventions).predict({"device": found.contexts["device"]})
    np.testing.assert_allclose(np.log1p(found.margin), np.log(told.upper / told.lower)[:, 1:] / 2, rtol=1e-3)
    assert found.segments == [f"device = {device}" for device in found.contexts["device"]]


def test_more_traffic_of_the_same_queries_is_forecast() -> None:
    outline = ranked_outline(5, queries=300, swaps={(1, k): 0.15 for k in range(2, 6)}, spread=0.3)
    seen = np.mean([np.log(widths(outline.simulate(80_000, seed))) for seed in range(4)], axis=0)
    planned = [plan_from_log(outline.simulate(20_000, seed)).margins_after(4)[1, 0] for seed in range(10, 16)]
    assert np.exp(np.mean(np.log(np.log1p(planned))) - np.mean(seen)) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("realised", [False, True])
def test_draws_begin_with_the_fit(realised: bool) -> None:
    outline = ranked_outline(
        6, queries=100, swaps={(k, k + 1): 0.2 for k in range(1, 6)}, spread=0.4, realised=realised
    )
    told = forecast(outline.simulate(20_000, 2))
    drawn = told.outlook().log_sd(1.0)
    np.testing.assert_allclose(drawn, np.tile(told.log_sd_now, (len(drawn), 1)), rtol=0.02, atol=1e-12)


def test_draws_begin_with_a_fit_that_goes_to_and_fro() -> None:
    """With a few queries far off, steps between variances and weights end nowhere: the last of them is what counts."""
    weight = np.random.default_rng(0).lognormal(0, 1.2, 300)
    outline = ranked_outline(4, queries=300, swaps={(1, k): 0.1 for k in range(2, 5)}, spread=0.4)
    for seed in (34, 41, 53):
        told = forecast(replace(outline, pages=weight / weight.sum()).simulate(5_000, seed))
        drawn = told.outlook().log_sd(1.0)
        np.testing.assert_allclose(drawn, np.tile(told.log_sd_now, (len(drawn), 1)), rtol=0.02, atol=1e-12)


def test_information_goes_with_the_shares() -> None:
    """Its slopes in θ are its differences."""
    told = forecast(simulated_interventions(80, seed=4, steepness={"desk": 1.0, "phone": 0.5}))
    fit, gradients = told.fit, told.gradients.reshape(-1, told.gradients.shape[-1])[1:4]
    _, slopes = counts(fit, gradients)
    x = np.linalg.solve(fit.information + fit.precision, gradients.T)
    total = np.einsum("ie,ij,je->e", x, fit.information + fit.precision, x)
    for i, step in enumerate(1e-5 * np.eye(fit.shares.size)[:4]):
        ends = [fit.shares.information(fit.shares.shares(fit.theta + sign * step)) for sign in (1, -1)]
        difference = np.einsum("ie,ij,je->e", x, (ends[0] - ends[1]) / 2e-5, x) / total
        np.testing.assert_allclose(slopes[:, i], difference, rtol=1e-4, atol=1e-8)


def test_the_range_holds_what_the_log_grows_to() -> None:
    """A log goes on to four times its pages, twelve times over: its widths are within, and the range says something."""
    outline = ranked_outline(5, queries=200, swaps={(k, k + 1): 0.2 for k in range(1, 5)})
    log = outline.simulate(6_000, 0)
    low, expected, high = np.log1p(plan_from_log(log).margins_after(4)[:, 0])
    further = [outline.simulate(18_000, seed) for seed in range(1, 13)]
    seen = np.array([
        widths(replace(log, clicks=log.clicks + more.clicks, impressions=log.impressions + more.impressions))
        for more in further
    ])  # fmt: skip
    assert np.mean((seen >= low) & (seen <= high)) > 0.85
    assert np.all((low < expected) & (expected < high))
    assert np.all(high / low < 2)


def test_sparse_logs_of_displays_gain_units() -> None:
    """With a page or two a query most documents are seen at one rank alone: information outgrows the pages."""
    outline = ranked_outline(4, queries=1_000, swaps={(k, k + 1): 0.2 for k in range(1, 4)}, realised=True)
    few, many = (forecast(outline.simulate(pages, 1)) for pages in (3_000, 24_000))
    told = unseen(few.interventions, few.fit)
    expected, drawn = told.scales(8, np.random.default_rng(0).normal(size=1_000))
    assert told.gain > 1.25
    grown = np.trace(many.information) / np.trace(few.information)
    assert grown == pytest.approx(expected, rel=0.25)
    assert np.quantile(drawn, 0.01) < grown < np.quantile(drawn, 0.99)
    assert np.trace(many.information) > 1.2 * 8 * np.trace(few.information)
    by_design = forecast(replace(outline, realised=False).simulate(3_000, 1))
    assert unseen(by_design.interventions, by_design.fit).scales(8, np.ones(1)) == (8, np.array([8]))


def test_a_page_has_one_result_at_a_rank() -> None:
    outline = ranked_outline(4, queries=10, swaps={(1, 2): 0.3, (1, 3): 0.2, (3, 4): 0.5})
    found = outline.simulate(5_000, 3)
    np.testing.assert_array_equal(np.bincount(found.position, found.impressions)[1:], 5_000)
    by_query = np.bincount(found.query * 5 + found.position, found.impressions).reshape(10, 5)[:, 1:]
    assert (by_query == by_query[:, :1]).all()


def test_slopes_of_variances_are_their_differences() -> None:
    outline, pairs = ranked_outline(5, queries=3), candidates(5)
    shares = np.random.default_rng(0).uniform(0.01, 0.08, len(pairs))
    _, slopes = _variance(outline, pairs, shares, 1e5)
    for i, step in enumerate(1e-6 * np.eye(len(pairs))):
        up, down = (_variance(outline, pairs, shares + sign * step, 1e5)[0] for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, i], (up - down) / 2e-6, rtol=1e-5, atol=1e-9 * np.abs(slopes).max())


def test_queries_that_differ_set_a_floor() -> None:
    """Eight queries read differently: their traffic alone never gives ±1 %, other queries would."""
    log = ranked_outline(3, queries=8, swaps={(1, 2): 0.3, (2, 3): 0.3}, spread=0.5).simulate(200_000, 1)
    same, new = plan_from_log(log, width=0.01), plan_from_log(log, width=0.01, new_queries=True)
    assert np.isinf(same.times).all()
    assert "No amount of such traffic" in same.sentence
    assert np.isfinite(new.times).all()
    assert same.to_dict()["needed"][0]["times"] is None


@pytest.mark.parametrize("realised", [False, True])
def test_what_a_design_promises_comes_out(realised: bool) -> None:
    outline = ranked_outline(4, queries=200, swaps={(k, k + 1): 0.2 for k in range(1, 4)}, realised=realised)
    planned = np.log1p(plan_from_design(outline, 15_000).margin)
    seen = np.exp(np.mean([np.log(widths(outline.simulate(15_000, seed))) for seed in range(50, 58)], axis=0))
    np.testing.assert_allclose(seen, planned, rtol=0.15)


def test_chosen_swaps_reach_the_width_and_cost_less_than_swaps_with_the_top() -> None:
    outline = ranked_outline(5, queries=100)
    chosen = plan_from_design(outline, 60_000, width=0.1, choose=True, draws=3)
    assert chosen.margin.max() <= 0.1 * 1.05
    top = replace(outline, swaps={(1, k): 0.01 for k in range(2, 6)})
    share = 0.01 * chosen.loss / (top.loss() / top.clicks())
    other = plan_from_design(replace(top, swaps=dict.fromkeys(top.swaps, share)), 60_000, draws=3)
    assert other.loss == pytest.approx(chosen.loss)
    assert other.margin.max() > chosen.margin.max()


def test_loss_is_that_of_exchanged_results() -> None:
    outline = ranked_outline(3, swaps={(1, 3): 0.1}, click_rates=[0.4, 0.2, 0.1], steepness=1.0)
    relevance = np.array([0.4, 0.4, 0.3])
    assert outline.loss() == pytest.approx(0.1 * (1 - 1 / 3) * (relevance[0] - relevance[2]))
    assert outline.clicks() == pytest.approx(0.7)


def test_rankings_become_exposures() -> None:
    ranked = {"query": ["q"] * 4, "ranker": list("aabb"), "doc": list("xyyx"), "position": [1, 2, 1, 2]}
    outline = outline_from_rankings(ranked, traffic={"a": 3, "b": 1}, swaps={(1, 2): 0.2})
    x = 0.75 * 0.8 + 0.25 * 0.2
    np.testing.assert_allclose(outline.exposure, [[x, 1 - x], [1 - x, x]])


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="100 % at most"):
        ranked_outline(3, swaps={(1, 2): 0.7, (1, 3): 0.7})
    with pytest.raises(InputError, match="ranks 1 ≤ i < j"):
        ranked_outline(3, swaps={(2, 5): 0.1})
    with pytest.raises(InputError, match="take too much memory"):
        ranked_outline(1_000, queries=1_000_000)
    for width in (0.0, 1e-320):
        with pytest.raises(InputError, match="width wanted"):
            plan_from_log(two_positions(800), width=width)
    with pytest.raises(InputError, match="a rate of clicks is 1e-320"):
        ranked_outline(3, click_rates=[0.3, 1e-320])
    with pytest.raises(InputError, match="too many to choose swaps among"):
        plan_from_design(ranked_outline(300, queries=1), 1e6, choose=True)
    with pytest.raises(InputError, match="expected 1 or more"):
        plan_from_log(two_positions(800)).margins_after(0.5)
    with pytest.raises(InputError, match="lacks ranker"):
        outline_from_rankings({"query": ["q"], "doc": ["a"], "position": [1]})
    with pytest.raises(NotIdentifiedError, match="plan more pages"):
        choose_swaps(ranked_outline(10), 500)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulated_interventions(60, seed=3, steepness={"desk": 1.0, "phone": 0.5}).write(tmp_path / "i.parquet")
    assert run("plan", tmp_path / "i.parquet", "--days", 7, "--width", 0.1, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["device"] for row in told["needed"]} == {"desk", "phone"}
    assert told["days_of_log"] == 7
    wide = [row for row in told["needed"] if row["margin"] > 0.1]
    assert wide
    for row in wide:
        least, most = row["times_range"]
        assert 1 <= least <= row["times"]
        assert most is None or row["times"] <= most
        assert row["days_range"][0] == pytest.approx(7 * least)
    assert run("plan", tmp_path / "i.parquet", "--width", "1e-320") == 2
    assert "width" in capsys.readouterr().err
    assert run("plan", "--positions", 3, "--pages", 20_000, "--swaps", "1-2=.2,2-3=.2") == 0
    assert "They cost" in capsys.readouterr().out
    assert run("plan", "--positions", 3, "--pages", 20_000, "--swaps", "1-2=.2") == 0
    assert "nothing: no ranker, no swap" in capsys.readouterr().out
    ranked = {"query": ["q"] * 4, "ranker": list("aabb"), "doc": list("xyyx"), "position": [1, 2, 1, 2]}
    pyarrow.csv.write_csv(pa.table(ranked), tmp_path / "ranked.csv")
    assert run("plan", "--rankings", tmp_path / "ranked.csv", "--traffic", "a=50,b=50", "--pages", 5_000) == 0
    assert "5,000 pages" in capsys.readouterr().out
    for words, why in (
        ([], "name a LOG"),
        (["--pages", 10, "--swaps", "x=1"], "pairs of ranks"),
        (["--pages", 10, "--swaps", "1-2=.1", "--swap", 3], "two designs"),
        (["--pages", 10, "--swaps", "1-2=.1", "--days", 3], "options of a log go with a LOG"),
        ([tmp_path / "i.parquet", "--positions", 5], "options of a design, such as --pages and --swaps, go without"),
    ):
        assert run("plan", *words) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("first", [20_513, -735_000, 3_000_000])
def test_days_come_from_the_time_column(tmp_path: Path, capsys: pytest.CaptureFixture[str], first: int) -> None:
    """Of 2026, and of years that Python's own dates do not have, before 1 and after 9999."""
    rows = [
        {"query": f"q{i}", "doc": "a", "position": k, "click": (i + k) % 2, "time": first + i % 10}
        for i in range(40)
        for k in (1, 2)
    ]
    table, path = pa.Table.from_pylist(rows), tmp_path / "log.parquet"
    dates = table["time"].cast("int32").cast("date32")
    kinds = ((dates.cast(pa.timestamp("us")), 9), (dates, 10), (dates.cast(pa.timestamp("ms", "UTC")), 9))
    for times, days in kinds[: 3 if first == 20_513 else 1]:
        pa.parquet.write_table(table.set_column(4, "time", times), path)
        assert run("plan", path, "--json") == 0
        assert json.loads(capsys.readouterr().out)["days_of_log"] == days


def test_a_log_without_end_has_no_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endless = pa.array([0, 2**31 - 1], pa.int32()).cast("date32")  # DuckDB's infinity
    table = pa.table({"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "click": [1, 0], "time": endless})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    assert run("plan", tmp_path / "log.parquet") == 2
    assert "2,147,483,647 days apart: expected 1,000,000 at most" in capsys.readouterr().err


def few_queries(queries: int) -> dict[str, list[Any]]:
    """Very many clicks of three queries, and a few of others."""
    rows = [(q, 10**12 if q < 2 else 10**11 if q == 2 else 10) for q in range(queries)]
    return {
        "query": [f"q{q}" for q, _ in rows for _ in (1, 2)],
        "doc": ["a"] * (2 * queries),
        "position": [1, 2] * queries,
        "clicks": [round(n * rate) for _, n in rows for rate in (0.7, 0.3)],
        "impressions": [n for _, n in rows for _ in (1, 2)],
    }


def test_clicks_of_few_queries_are_not_enough() -> None:
    """As the fit says: position 2 rests on 2 queries."""
    log = read_log(pa.table(few_queries(6)))
    found = plan_from_log(harvest(log))
    assert rests_on_few(found.queries[0])
    support = PBM().fit(harvest(log)).propensities_.support
    assert support is not None
    assert found.queries == support.queries[1:]
    told = (
        "but queries are too few. Position 2 rests on 2 queries, and others may be read in another way: more queries "
        "would tell, more clicks of these would not."
    )
    for sentence in (found.sentence, found.to_dict()["advice"]):
        assert sentence.endswith(told)
        assert "enough for ±30 % at every position" in sentence
    assert str(found).endswith("× this log, of more queries")
    assert found.to_dict()["needed"][0]["queries"] == found.queries[0]
    plenty = plan_from_log(two_positions(1_600))
    assert plenty.queries[0] > 100
    assert "rests on" not in str(plenty)


def test_where_users_cluster_few_of_them_are_told() -> None:
    log = pa.table(few_queries(6)).append_column("user", pa.array([n // 4 for n in range(12)]))
    found = plan_from_log(harvest(read_log(log), cluster="user"))
    assert "users are too few. Position 2 rests on 1 user, and" in found.sentence


def test_a_width_that_the_log_does_not_have_is_not_said_to_be_there() -> None:
    """One of the large queries falls otherwise than the other."""
    columns = few_queries(6)
    columns["clicks"][:2] = [9 * 10**11, 4 * 10**11]
    found = plan_from_log(harvest(read_log(pa.table(columns))), width=0.001)
    assert found.sentence.startswith("For ±0.1 % at every position it takes 1")


def test_a_design_that_moves_nothing_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "--pages", 500, "--positions", 3, "--queries", 20) == 0
    told = capsys.readouterr().out
    assert told.startswith("500 pages do not give ±30 % at positions 2-3.")
    assert "Name the rankings of several rankers (--rankings), or swaps (--swaps auto)." in told


def test_margins_beyond_telling_keep_the_columns_of_the_plan() -> None:
    plan = plan_from_log(simulated_interventions(60, seed=0, steepness={"x": 1.0}))
    wild = replace(plan, margin=np.where(np.arange(len(plan.positions)) == 0, 0.2, 40.0)[None])
    _, header, first, second, *_ = str(wild).split("\n\n")[1].splitlines()
    assert "±20 %" in first
    assert "over ±1,000 %   " in second
    assert first.index("%") == second.index("%")
    assert header.startswith("position          now   traffic needed")


def test_many_positions_are_printed_by_ranges_that_need_the_same_once() -> None:
    """Forty positions take a few lines, fewer where no amount of traffic is enough for most."""
    plan = plan_from_log(simulated_interventions(80, seed=0, steepness={"x": 1.0}, positions=40, shown=40), width=0.02)
    assert len(plan.positions) == 39
    lines = str(plan).split("\n\n")[1].splitlines()[1:]
    assert [line.split()[0] for line in lines[1:6]] == ["2", "3", "4-6", "7-10", "11-20"]
    never = np.where(np.array(plan.positions) < 4, plan.times, np.inf)
    lines = str(replace(plan, times=never, range=np.stack([never, never]))).split("\n\n")[1].splitlines()[1:]
    assert [line.split()[0] for line in lines[1:4]] == ["2", "3", "4-40"]
    assert "needs more queries" in lines[3]


def test_a_position_that_needs_less_than_those_above_it_is_explained() -> None:
    plan = plan_from_log(simulated_interventions(60, seed=0, steepness={"x": 1.0}), width=0.02)
    grows, falls = (np.array(times)[None] for times in ([2.0, 3.0, 4.0], [4.0, 3.0, 2.0]))
    told = [str(replace(plan, times=times, range=np.stack([times, times]))) for times in (grows, falls)]
    assert ["need less than those above them" in one for one in told] == [False, True]
