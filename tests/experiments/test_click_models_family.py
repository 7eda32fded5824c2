"""The click models in the reproduction: what they are fitted to without an engine is what an engine gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest import read_log
from clickharvest.click_models.browsing import Browsing
from clickharvest.click_models.pages import Pages, clicks_above, interventions_at, reading_places
from clickharvest.click_models.reading import reading_log
from clickharvest.diagnosis import cascade
from clickharvest.experiments.beyond import cascade as beyond_cascade
from clickharvest.experiments.beyond import trust as beyond_trust
from clickharvest.experiments.families.click_models import FAMILY, make_runs, measure, pages_of
from clickharvest.experiments.runner.experiment import Plan
from clickharvest.experiments.runner.runs import Result, Results, Run
from clickharvest.harvesting import Interventions, harvest
from clickharvest.logs.hashing import is_drawn
from clickharvest.simulate import Simulation, simulate_protocol

Counted = list[tuple[int, int, int, int]]


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate_protocol(sweeps=4, queries=60, test_queries=5, positions=5, clicks="cascade", eta=0.5, seed=3)


def counted(rows: Interventions) -> Counted:
    columns = (rows.query, rows.position, rows.clicks, rows.impressions)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def test_states_are_those_of_the_engine(simulation: Simulation) -> None:
    pages = pages_of(simulation)
    ours = interventions_at(pages, pages.state, {})
    theirs = Browsing().harvest(read_log(simulation.rows()))
    assert counted(ours) == counted(theirs)
    assert ours.n_units == theirs.n_units


def test_places_of_readers_and_the_test_of_clicks_above_are_those_of_the_engine(simulation: Simulation) -> None:
    rows = simulation.rows()
    log = read_log(rows)
    half = log.engine.fetch(
        log.table.select(page=log.table.page, half=is_drawn(log.table.page.cast("string"), 0.5)).distinct(), task=""
    )
    of_page = dict(zip(half["page"].to_pylist(), half["half"].to_pylist(), strict=True))
    positions = simulation.shown.shape[2]
    order = np.argsort(rows["page"].to_numpy(), kind="stable")
    columns = {name: rows[name].to_numpy()[order].reshape(-1, positions) for name in ("query", "doc", "click", "page")}
    pages = Pages(
        columns["query"][:, 0], columns["doc"], columns["click"] == 1,
        np.array([of_page[page] for page in columns["page"][:, 0].tolist()]),
    )  # fmt: skip
    browsing = Browsing(intervals=None)
    base = browsing.fit(browsing.harvest(log))
    number, places = reading_places(pages, base.predict().propensity[0][pages.state - 1])
    theirs = reading_log(log, base, None)
    assert theirs.places is not None
    assert places.labels == theirs.places.labels
    assert counted(interventions_at(pages, number, {}, places)) == counted(harvest(theirs, clicked_only=True))
    (expected,) = cascade.clicks_above(log)
    found = clicks_above(pages)
    assert found.p_value == pytest.approx(expected.p_value)
    assert found.value == pytest.approx(expected.value)


def test_corrected_clicks_and_displays_are_judged_by_the_truth() -> None:
    def found(model: str, **log: object) -> dict[str, Any]:
        context = log.pop("context", False)
        (run,) = make_runs(Plan(quick=True), [model], seeds=1, sweeps=2, context=bool(context), **log)
        return measure(
            Run(
                FAMILY,
                run.world,
                0,
                {**run.log, "queries": 300, "test_queries": 50, "training_queries": 2_000},
                run.fit,
            ),
            None,
        )

    plain, affine = (found(model, clicks="trust", eta=0.0) for model in ("examination", "affine"))
    assert affine["corrected"] < plain["corrected"] / 2
    assert affine["by_position"][1] < plain["by_position"][1] / 2
    states = {model: found(model, clicks="cascade") for model in ("examination", "browsing", "reading", "auto")}
    assert states["reading"]["seen_error"] < states["browsing"]["seen_error"] < states["examination"]["seen_error"]
    assert states["auto"]["seen_error"] == states[str(states["auto"]["chosen"])]["seen_error"]


def test_tables_have_rows_of_click_models_and_bars_can_be_missed() -> None:
    plan = Plan(quick=True)
    for module, column in ((beyond_trust, "corrected"), (beyond_cascade, "by display")):
        runs = module.EXPERIMENT.runs(plan)
        own = [run for run in runs if run.family == FAMILY]
        assert {run["model"] for run in own} >= {"examination", "auto"}

        def numbers(run: Run, error: float) -> dict[str, object]:
            if run.family != FAMILY:
                return {"rel_error": 0.3 if run["clicks"] else 0.1, "clicks": 5}
            off = 0.9 if run["model"] == "examination" else error
            names = ("corrected", "slope_error", "impression_error", "seen_error")
            chosen = {"chosen": "affine" if run["clicks"] == "trust" else "reading"} if run["model"] == "auto" else {}
            return dict.fromkeys(names, off) | chosen

        for error, verdict in ((0.05, "PASS"), (2.0, "FAIL")):
            results = Results(Result(run, numbers(run, error)) for run in runs)
            rows = module.EXPERIMENT.summarise(results)
            assert len({tuple(row) for row in rows}) == 1
            assert sum(row[column] is not None for row in rows) == len(own)
            whole = Results(Result(run, numbers(run, error)) for run in module.EXPERIMENT.runs(Plan()))
            for judged, expected in ((whole, {verdict}), (results, set())):  # small logs are not judged
                checks = module.EXPERIMENT.checks(judged)
                assert {one.verdict for one in checks if one.claim.startswith(("aff", "brow"))} == expected


def test_what_is_there_is_told_where_runs_of_click_models_are_missing() -> None:
    for module in (beyond_trust, beyond_cascade):
        runs = [run for run in module.EXPERIMENT.runs(Plan(quick=True)) if run.family != FAMILY]
        results = Results(Result(run, {"rel_error": 0.3 if run["clicks"] else 0.1}) for run in runs)
        assert len(module.EXPERIMENT.checks(results)) == 1
        assert len(module.EXPERIMENT.summarise(results)) == len(runs)
        alone = Results(Result(run, {}) for run in module.EXPERIMENT.runs(Plan(quick=True)) if run.family == FAMILY)
        assert module.EXPERIMENT.checks(alone) == module.EXPERIMENT.headline(alone) == []


def test_pages_without_a_result_at_the_end_are_no_rows(simulation: Simulation) -> None:
    shown = simulation.shown.copy()
    shown[:, :, -1] = -1
    short = replace(simulation, shown=shown)
    assert int(interventions_at(pages_of(short), pages_of(short).state, {}).position.max()) <= 10
