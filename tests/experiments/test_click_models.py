"""The click models in the reproduction: judged by the truth of every display, in rows and checks of their own."""

from __future__ import annotations

from typing import Any

from experiments import Plan, Result, Results, Run, load_experiments
from experiments.click_models import FAMILY, measure

IDS = ("beyond-trust", "beyond-cascade")


def test_corrected_clicks_and_displays_are_judged_by_the_truth() -> None:
    def measured(model: str, **settings: object) -> dict[str, Any]:
        log = {"training_queries": 2_000, "eta": 0.5, "zeta": 1.0, "queries": 150, "test_queries": 40, **settings}
        return measure(Run(FAMILY, "synthetic", 0, log, {"model": model, "context": False}))

    plain, affine = (measured(model, clicks="trust", eta=0.0) for model in ("examination", "affine"))
    assert affine["corrected"] < plain["corrected"] / 2
    assert affine["by_position"][1] < plain["by_position"][1] / 2
    errors = {model: measured(model, clicks="cascade") for model in ("examination", "browsing", "reading", "auto")}
    assert errors["reading"]["seen_error"] < errors["browsing"]["seen_error"] < errors["examination"]["seen_error"]
    assert errors["auto"]["seen_error"] == errors[str(errors["auto"]["chosen"])]["seen_error"]


def test_tables_have_rows_of_click_models_and_bars_can_be_missed() -> None:
    plan = Plan(quick=True)
    for experiment, column in zip(load_experiments(IDS), ("corrected", "by display"), strict=True):
        runs = experiment.runs(plan)
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
            rows = experiment.rows(results)
            assert len({tuple(row) for row in rows}) == 1
            assert sum(row[column] is not None for row in rows) == len(own)
            whole = Results(Result(run, numbers(run, error)) for run in experiment.runs(Plan()))
            for judged, expected in ((whole, {verdict}), (results, set())):  # small logs are not judged
                checks = experiment.checks(judged)
                assert {one.verdict for one in checks if one.claim.startswith(("aff", "brow"))} == expected
