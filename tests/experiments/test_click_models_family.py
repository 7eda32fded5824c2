"""The click models in the reproduction: judged by the truth of every display, in rows and checks of their own."""

from __future__ import annotations

from typing import Any

from experiments.beyond import cascade as beyond_cascade
from experiments.beyond import trust as beyond_trust
from experiments.families.click_models import FAMILY, make_runs, measure
from experiments.runner.experiment import Plan
from experiments.runner.runs import Result, Results, Run


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
