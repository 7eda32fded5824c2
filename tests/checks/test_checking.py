"""Checking a fit: the same answer for the same log, whatever it looks like, and a budget that holds the truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.testing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from checks.worlds import ENGINE, LOG_K, WIDE, fitted, quietly, world
from clickharvest import harvest, read_log
from clickharvest.checks import CHECKS, Checked, Displays, Finding, budget_of, check_fit, findings_of, read_displays
from clickharvest.click_models.base import load_model
from clickharvest.model.propensities import Propensities
from samples import logs

UNTESTED = {
    "arms": "ranker",
    "rankers": "ranker",
    "time": "time",
    "clicks above": "page",
    "crowd": "user",
    "rows": "page",
}


@cache
def table() -> pa.Table:
    """Two rankers of which each has moods, so that every check has something to look at."""
    return world(0, 6_000, per_user=30, page_noise=0.2).draw().table()


def checked(rows: pa.Table, *, context: tuple[str, ...] = (), **how: Any) -> Checked:
    with quietly():
        log = read_log(rows, context=list(context), engine=ENGINE)
    return check_fit(log, fitted(log), **how)


@cache
def base() -> Checked:
    return checked(table())


def change(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, pa.array(values))


def same(one: Checked, other: Checked, rtol: float = 1e-6) -> None:
    """Require the same findings, but for the last digits."""
    for found, again in zip(one.findings, other.findings, strict=True):
        assert (found.kind, found.severity, found.needs) == (again.kind, again.severity, again.needs)
        for side, its in zip(found.bounds, again.bounds, strict=True):
            npt.assert_allclose(its, side, rtol=rtol, atol=1e-7, err_msg=found.kind)
    npt.assert_allclose(other.budget.up, one.budget.up, rtol=rtol)
    npt.assert_allclose(other.budget.down, one.budget.down, rtol=rtol)
    assert other.budget.word == one.budget.word
    assert other.budget.untested == one.budget.untested


def test_every_check_answers() -> None:
    found = base()
    assert [one.kind for one in found.findings] == list(CHECKS)
    assert set(found.budget.terms) == {"noise"} | {one.kind for one in found.findings if one.effect is not None}
    assert found.budget.positions == tuple(range(2, WIDE + 1))
    assert found.budget.untested == {}
    shapes = {one.effect.shape for one in found.findings if one.effect is not None}
    assert shapes == {(1, WIDE)}


def test_the_same_log_gives_the_same_answer() -> None:
    one, other = base(), checked(table())
    assert one.info() == other.info()


def test_seeds_split_users_in_other_ways() -> None:
    one, other = checked(table(), seed=1), checked(table(), seed=2)
    differ = [a.kind for a, b in zip(one.findings, other.findings, strict=True) if a.to_dict() != b.to_dict()]
    assert differ == ["relevance"]


def test_the_order_of_rows_does_not_matter() -> None:
    """Pages, users and results are numbered as they come, and no answer may hang on their numbers."""
    order = np.random.default_rng(1).permutation(len(table()))
    other = checked(table().take(order))
    differ = []
    for found, again in zip(base().findings, other.findings, strict=True):
        sides = zip(found.bounds, again.bounds, strict=True)
        if found.severity != again.severity or not all(np.allclose(a, b, rtol=1e-6, atol=1e-7) for a, b in sides):
            differ.append(found.kind)
    assert differ == []
    same(base(), other)


RENAMED: dict[str, Callable[[Any], Any]] = {
    "doc": lambda own: [f"doc {one:05}" for one in own],
    "query": lambda own: [f"query {one:03}" for one in own],
    "user": lambda own: [f"u{one:05}" for one in own],
    "page": lambda own: [f"p{one:06}" for one in own],
    "ranker": lambda own: [{"a": "new", "b": "old"}[one] for one in own],
    "time": lambda own: [int(1_700_000_000 + 1e9 * one) for one in own],
}


def test_names_do_not_matter() -> None:
    renamed = table()
    for name, rename in RENAMED.items():
        renamed = change(renamed, name, rename(renamed[name].to_pylist()))
    same(base(), checked(renamed))


def test_rankers_may_change_names() -> None:
    names = [{"a": "b", "b": "a"}[one] for one in table()["ranker"].to_pylist()]
    same(base(), checked(change(table(), "ranker", names)), rtol=1e-4)


def test_interventions_leave_most_questions_open() -> None:
    with quietly():
        log = read_log(table(), engine=ENGINE)
    interventions, model = harvest(log), fitted(log)
    found = check_fit(interventions, model)
    assert found.budget.untested == UNTESTED
    assert {"noise", "relevance"} <= set(found.budget.terms)
    npt.assert_allclose(found.budget.terms["noise"], check_fit(log, model).budget.terms["noise"])


def test_displays_may_be_read_once() -> None:
    with quietly():
        log = read_log(table(), engine=ENGINE)
    model = fitted(log)
    displays = read_displays(log)
    assert isinstance(displays, Displays)
    assert check_fit(displays, model).info() == check_fit(log, model).info()


def test_counted_logs_are_checked_as_far_as_they_go() -> None:
    """The same log, counted by ranker: curve and noise are the same, and what is about pages is untested."""
    keys = ["query", "doc", "position", "ranker"]
    counts = table().group_by(keys).aggregate([("click", "sum"), ("click", "count")])
    counts = counts.rename_columns([*keys, "clicks", "impressions"])
    found, whole = checked(counts), base()
    npt.assert_allclose(found.budget.terms["noise"], whole.budget.terms["noise"], rtol=1e-4)
    by_page = {"time": "time", "clicks above": "page", "crowd": "user", "rows": "page"}
    assert {name: found.budget.untested.get(name) for name in by_page} == by_page
    for kind in ("arms", "step"):
        one, other = ({f.kind: f for f in some.findings}[kind] for some in (found, whole))
        npt.assert_allclose(other.bounds[1], one.bounds[1], atol=0.05, err_msg=kind)


@pytest.mark.parametrize("drop", [["page"], ["page", "ranker"], []])
def test_users_may_be_unknown_on_some_pages(drop: list[str]) -> None:
    user = pc.if_else(pc.equal(pc.bit_wise_and(table()["page"], 3), 0), None, table()["user"])
    found = checked(change(table(), "user", user.combine_chunks()).drop_columns(drop))
    assert [one.kind for one in found.findings] == list(CHECKS)
    assert np.isfinite(found.budget.off)


@pytest.mark.parametrize("value", ["text", "true or false", "number"])
def test_contexts_may_be_empty_in_some_rows(value: str) -> None:
    """The model has a value for them: missing."""
    values = {"text": ["phone", "desktop", None], "true or false": [True, False, None], "number": [1.0, 2.0, None]}[
        value
    ]
    number = np.random.default_rng(0).integers(3, size=6_000)[table()["page"].to_numpy()]
    rows = table().append_column("device", pa.array([values[i] for i in number]))
    found = checked(rows, context=("device",))
    assert np.isfinite(found.budget.off)


def test_a_ranker_that_shows_at_other_positions_only_is_no_ranker_of_the_curve() -> None:
    """The carousel's first results, positions 11 to 16, are linked to nothing, and most of the log."""
    own = table()
    carousel = change(own, "position", pc.add(own["position"], 10).combine_chunks())
    carousel = change(carousel, "doc", pc.add(own["doc"], 100_000).combine_chunks())
    carousel = change(carousel, "page", pc.add(own["page"], 100_000).combine_chunks())
    carousel = change(carousel, "ranker", ["carousel"] * len(own))
    single = change(own, "ranker", ["list"] * len(own))
    found = checked(pa.concat_tables([carousel, single]))
    assert found.budget.positions == tuple(range(2, WIDE + 1))
    assert np.isfinite(found.budget.off)


def test_positions_folds_and_tolerance_are_handed_on() -> None:
    found = checked(
        table(), positions=[2, 3], tolerance=0.07, further=[Finding("design", "untested", "?", needs="swap")]
    )
    assert found.budget.positions == (2, 3)
    assert found.budget.tolerance == 0.07
    assert found.budget.untested["design"] == "swap"
    assert found.findings[0].kind == "design"


def test_a_decisive_finding_of_other_tests_decides() -> None:
    found = checked(table(), further=[Finding("design", "decisive", "Swaps did not happen.")])
    assert found.budget.word == "cannot tell"
    assert found.budget.reason == "Swaps did not happen."


def test_what_was_found_is_kept_in_the_file_of_the_model(tmp_path: Any) -> None:
    with quietly():
        log = read_log(table(), engine=ENGINE)
    model = fitted(log)
    found = check_fit(log, model)
    info = json.loads(json.dumps(found.info(), allow_nan=False))
    kept = Propensities(**(vars(model) | {"info": {**model.info, **info}}))
    kept.save(tmp_path / "model.safetensors")
    back = load_model(tmp_path / "model.safetensors")
    budget = budget_of(back)
    assert budget is not None
    assert str(budget) == str(found.budget)
    assert budget.terms == {name: pytest.approx(sizes, rel=1e-3) for name, sizes in found.budget.terms.items()}
    assert [one.to_dict() for one in findings_of(back)] == [one.to_dict() for one in found.findings]
    assert [one.kind for one in findings_of(back)] == list(CHECKS)


@logs(daily=3, nightly=10)
def test_the_budget_holds_the_truth_of_sound_logs(logs: int) -> None:
    """At position 3 and at the last."""
    wide = []
    for seed in range(logs):
        log = world(seed, 5_000, noise=(0.3, 0.3, 0.3)[: 1 + seed % 3], page_noise=0.15).draw().log()
        model = fitted(log)
        budget = check_fit(log, model).budget
        off = np.expm1(-LOG_K - np.log(model.predict().propensity[0]))
        for k in (3, WIDE):
            i = budget.positions.index(k)
            assert -budget.down[i] <= off[k - 1] <= budget.up[i], (seed, k)
        assert not budget.reason
        wide.append(budget.off)
    assert np.median(wide) < 0.8, "and is not so wide that it says nothing"
