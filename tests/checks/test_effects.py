"""Every check is quiet on sound logs, and tells the size and the sign of what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.testing as npt
import pytest
from numpy.typing import NDArray

from checks.worlds import DOCS, LOG_K, QUERIES, WIDE, World, answer, evidence_of, fitted, quietly, world
from clickharvest.checks import CHECKS, Evidence, Finding, read_displays

Array = NDArray[Any]

SOUND: dict[str, Callable[[], World]] = {
    "two rankers": lambda: world(0),
    "one ranker that changes its mind": lambda: world(1, noise=(0.3,), page_noise=0.2),
    "users who click more than others": lambda: zealous(world(2)),
    "users who come back": lambda: world(3, per_user=60, page_noise=0.1),
}
MOST_FAR = {"relevance": 0.8, "rankers": 0.35, "arms": 0.15, "time": 0.15, "clicks above": 0.2, "crowd": 0.15}
"""How far off log p may be at the last position of a sound log of 12,000 pages; other checks find nothing at all."""


@cache
def sound(name: str) -> Evidence:
    return evidence_of(SOUND[name]().draw().log())


def zealous(pages: World) -> World:
    users = int(pages.columns["user"].max()) + 1
    zeal = np.exp(pages.random.normal(-0.25, 0.7, users))[pages.columns["user"]]
    pages.appeal = np.minimum(pages.appeal * zeal[:, None], 1)
    return pages


def error(evidence: Evidence, truth: Array = -LOG_K) -> Array:
    """Return log p less log p̂, [K]."""
    return np.asarray(truth - truth[evidence.anchor] - np.log(evidence.model.predict().propensity[0]))


def effect_of(found: Finding) -> Array:
    assert found.effect is not None
    return found.effect[0]


def tells(found: Finding, truth: Array, *, within: float = 2.0) -> None:
    """Require a warning whose effect at the last position is that of the truth, but for a factor."""
    assert found.severity == "warning"
    assert any(word in found.sentence for word in ("%", "times", "factor", "±"))
    assert found.advice
    last = effect_of(found)[-1]
    assert np.sign(last) == np.sign(truth[-1])
    assert abs(truth[-1]) / within < abs(last) < abs(truth[-1]) * within
    below, above = (bound[0] for bound in found.bounds)
    assert (-below[-1] <= truth[-1] + 0.1) & (truth[-1] - 0.1 <= above[-1])


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("kind", CHECKS)
def test_sound_logs_pass(kind: str, name: str) -> None:
    found = answer(kind, sound(name))
    assert found.severity == "ok", found.sentence
    assert found.kind == kind
    assert found.sentence.endswith(".")
    assert not found.needs
    assert max(float(bound[:, -1].max()) for bound in found.bounds) <= MOST_FAR.get(kind, 0)


def test_bounds_are_narrower_in_larger_logs() -> None:
    small, large = (
        evidence_of(world(5, pages, noise=(0.3,), page_noise=0.2).draw().log()) for pages in (4_000, 16_000)
    )
    for kind in ("relevance", "time", "clicks above", "crowd", "rankers"):
        few, many = answer(kind, small).standard_error, answer(kind, large).standard_error
        assert few is not None, kind
        assert many is not None, kind
        assert many[0, -1] < 0.75 * few[0, -1], kind


@cache
def small(*without: str) -> Evidence:
    return evidence_of(world(0, 3_000).draw().log(*without))


@pytest.mark.parametrize(
    ("without", "kind", "needs"),
    [
        (("ranker",), "arms", "ranker"),
        (("ranker", "user"), "rankers", "ranker"),
        (("page",), "rows", "page"),
        (("page",), "clicks above", "page"),
        (("page",), "crowd", "page"),
        (("user",), "crowd", "user"),
        (("time",), "time", "time"),
    ],
)
def test_a_missing_column_is_named(without: tuple[str, ...], kind: str, needs: str) -> None:
    found = answer(kind, small(*without))
    assert (found.severity, found.needs) == ("untested", needs)
    assert found.effect is None
    assert f"no {needs} column" in found.sentence
    assert CHECKS[kind].assumption in found.sentence
    assert answer(kind, small()).severity == "ok"


def test_one_ranker_needs_users_to_tell_what_it_knows_of_them() -> None:
    found = answer("rankers", evidence_of(world(0, 3_000, noise=(0.3,), page_noise=0.2).draw().log("user")))
    assert (found.severity, found.needs) == ("untested", "user")


def test_too_few_clicks_are_no_answer() -> None:
    pages = world(0, 1000)
    pages.appeal = pages.appeal * 0.02
    found = answer("relevance", evidence_of(pages.draw().log()))
    assert (found.severity, found.needs) == ("untested", "more clicks")


# Relevance.


@pytest.mark.parametrize("without", [(), ("user",), ("user", "page")])
def test_the_curve_of_good_results_has_the_size_of_two_standard_deviations(without: tuple[str, ...]) -> None:
    """Steepness falls by .4 for each unit of log appeal; the effect is for results two deviations better."""
    pages = world(0)
    better = np.log(pages.appeal) - np.log(pages.appeal).mean()
    pages.examined = np.exp(-LOG_K * (1 - 0.4 * better))
    pages.draw()
    truth = 0.4 * 2 * better[pages.clicks].std() * LOG_K
    tells(answer("relevance", evidence_of(pages.log(*without))), truth)


def test_clicks_on_useless_results_at_the_top_are_trust() -> None:
    """Everything is seen, useless results are clicked at the top: the curve of clicks is too steep for good ones."""
    pages = world(2, 20_000)
    pages.appeal = pages.appeal * np.exp(-LOG_K) + (1 - pages.appeal) * 0.8 * np.exp(-3 * LOG_K)
    pages.examined[:] = 1
    evidence = evidence_of(pages.draw().log())
    found = answer("relevance", evidence)
    assert error(evidence)[-1] > 0.3
    tells(found, error(evidence))
    assert "less steeply" in found.sentence


# Rankers that know users.


def test_two_rankers_that_know_users_make_the_curve_too_steep() -> None:
    evidence = evidence_of(world(0, taste=0.7, known=0.6).draw().log())
    assert error(evidence)[-1] > 0.8
    tells(answer("rankers", evidence), error(evidence))


@pytest.mark.parametrize("without", [(), ("ranker",)])
def test_one_ranker_that_knows_users_is_told_from_users_who_come_back(without: tuple[str, ...]) -> None:
    evidence = evidence_of(
        world(0, taste=0.7, known=0.6, noise=(0.3,), page_noise=0.2, per_user=60).draw().log(*without)
    )
    assert error(evidence)[-1] > 0.8
    tells(answer("rankers", evidence), error(evidence))


def test_tastes_that_rankers_do_not_know_are_no_bias() -> None:
    evidence = evidence_of(world(0, taste=0.7, noise=(0.3,), page_noise=0.2, per_user=60).draw().log())
    assert answer("rankers", evidence).severity == "ok"


def test_users_who_see_results_once_do_not_tell_whether_rankers_know_them() -> None:
    """The curve is off by a factor, and no user shows it: that is no proof that all is well."""
    evidence = evidence_of(world(0, taste=0.7, known=0.6, per_user=1.2).draw().log("ranker"))
    assert error(evidence)[-1] > 0.8
    found = answer("rankers", evidence)
    assert found.severity != "ok" or found.bounds[1][0, -1] > 0.5, found.sentence


# Arms.


def test_pages_that_are_read_to_different_depths_widen_the_bounds() -> None:
    pages = world(0)
    steep = np.where(pages.columns["ranker"] == "a", 0.6, 1.4)
    pages.examined = np.exp(-steep[:, None] * LOG_K)
    found = answer("arms", evidence_of(pages.draw().log()))
    assert (
        "different depths: the power of k differs by ± 0.4" in found.sentence
        or "different depths: the power of k differs by ± 0.3" in found.sentence
    )
    below, above = (bound[0] for bound in found.bounds)
    assert below[-1] + above[-1] > 2 * 0.35 * LOG_K[-1]
    assert below[-1] + above[-1] < 4 * 0.4 * LOG_K[-1]


def test_a_good_ranker_whose_pages_are_clicked_more_bends_the_curve() -> None:
    """It shows at the top what the poor one shows below, and its users click all they see more often."""
    pages = world(1, noise=(0.02, 0.6))
    pages.appeal = pages.appeal * np.where(pages.columns["ranker"] == "a", 1.0, 0.4)[:, None]
    evidence = evidence_of(pages.draw().log())
    found = answer("arms", evidence)
    assert error(evidence)[-1] > 0.1
    tells(found, error(evidence))
    assert "clicked more at every position" in found.sentence


def test_contexts_inside_units_are_no_depth_of_rankers() -> None:
    """Phones are read less deep, which the model knows, and one ranker has most of them: rankers are read alike."""
    pages = world(0)
    phone = pages.random.random(len(pages.doc)) < np.where(pages.columns["ranker"] == "a", 0.85, 0.15)
    pages.columns["device"] = np.where(phone, "phone", "desktop")
    pages.examined = np.exp(-np.where(phone, 1.5, 0.6)[:, None] * LOG_K)
    log = pages.draw().log(context=("device",))
    for unit in ("context", "query"):
        found = answer("arms", Evidence(read_displays(log, unit), fitted(log, unit=unit)))
        assert max(float(bound.max()) for bound in found.bounds) < 0.15, (unit, found.sentence)


# Time.


def test_results_that_gain_clicks_while_they_move_up_make_the_curve_too_steep() -> None:
    evidence = evidence_of(world(0, noise=(0.1, 0.1), change=0.9).draw().log())
    assert error(evidence)[-1] > 0.8
    tells(answer("time", evidence), error(evidence), within=1.4)


def test_rankers_that_take_turns_are_bounded_by_results_that_stay() -> None:
    """Nothing moves but from the first half to the second: what stays tells how much may have changed."""
    evidence = evidence_of(world(0, noise=(0.1, 0.1), change=0.6, turns=True).draw().log())
    assert error(evidence)[-1] > 0.2
    found = answer("time", evidence)
    assert found.bounds[1][0, -1] > error(evidence)[-1]
    still = evidence_of(world(0, turns=True).draw().log())
    assert abs(error(still)[-1]) < 0.15
    assert answer("time", still).bounds[1][0, -1] < 0.5 * found.bounds[1][0, -1]


def test_results_that_change_and_do_not_move_for_it_are_no_bias() -> None:
    pages = world(0, page_noise=0.3)
    way = pages.random.choice([-0.6, 0.6], QUERIES * DOCS)[pages.columns["query"][:, None] * DOCS + pages.doc]
    pages.appeal = pages.appeal * (1 + way * (2 * pages.columns["time"][:, None] - 1))
    found = answer("time", evidence_of(pages.draw().log()))
    assert found.severity == "ok"
    assert max(float(bound.max()) for bound in found.bounds) < 0.2


# Clicks above.


def served(pages: World, chance: float) -> Array:
    """Let users stop after a click with some chance, and return log p less log p̂ that this makes: who is left."""
    pages.draw()
    left = pages.clicks & (pages.random.random(pages.clicks.shape) < chance)
    there = np.cumsum(left, axis=1) - left == 0
    pages.clicks &= there
    return np.asarray(-np.log(there.mean(axis=0)))


@pytest.mark.parametrize("without", [(), ("ranker", "time")])
@pytest.mark.parametrize("chance", [0.3, 0.7])
def test_users_who_leave_after_a_click_are_counted(chance: float, without: tuple[str, ...]) -> None:
    pages = world(0)
    left = served(pages, chance)
    evidence = evidence_of(pages.log(*without))
    found = answer("clicks above", evidence)
    tells(found, left, within=1.3)
    tells(found, error(evidence), within=1.5)
    assert "too steep" in found.sentence


@pytest.mark.parametrize("chance", [0.3, 0.7])
def test_without_users_what_results_above_attract_tells_how_many_leave(chance: float) -> None:
    pages = world(0, noise=(0.3,) * 4, page_noise=0.3, pages=24_000)
    left = served(pages, chance)
    tells(answer("clicks above", evidence_of(pages.log("user"))), left, within=2.2)


@pytest.mark.parametrize("seed", range(2))
def test_fixed_rankings_without_users_do_not_prove_that_users_stay(seed: int) -> None:
    """Two rankers show hardly anything else above a result: either nothing is told, or the bound holds the truth."""
    pages = world(seed)
    left = served(pages, 0.7)
    found = answer("clicks above", evidence_of(pages.log("user")))
    assert found.severity == "untested" or found.bounds[1][0, -1] > left[-1] - 0.1, found.sentence


def test_users_who_always_leave_after_a_click_are_seen() -> None:
    """There are no clicks below clicks at all, so that their ratio has no size; nobody says that all is well."""
    pages = world(0)
    left = served(pages, 1.0)
    evidence = evidence_of(pages.log())
    found = answer("clicks above", evidence)
    assert found.severity in ("untested", "warning")
    assert found.severity == "untested" or found.bounds[1][0, -1] > left[-1] - 0.1
    assert answer("log", evidence).severity == "decisive"


def test_pages_of_unequal_intent_are_no_effect_of_clicks_above() -> None:
    pages = world(0)
    pages.appeal = pages.appeal * pages.random.choice([0.3, 1.2], (len(pages.doc), 1))
    found = answer("clicks above", evidence_of(pages.draw().log()))
    assert found.severity == "ok"
    npt.assert_array_equal(effect_of(found), 0)


# Crowd.


def test_robots_make_the_curve_too_flat() -> None:
    pages = world(0).draw()
    users = int(pages.columns["user"].max()) + 1
    robot = (pages.random.random(users) < 0.04)[pages.columns["user"]]
    pages.clicks |= robot[:, None]
    evidence = evidence_of(pages.log())
    assert error(evidence)[-1] < -0.2
    tells(answer("crowd", evidence), error(evidence), within=1.5)
    doubt = answer("log", evidence)
    assert doubt.severity == "warning"
    assert "robots" in doubt.sentence


# Rows.


def test_rows_that_were_not_on_the_screen_are_missing() -> None:
    pages = world(0)
    pages.kept = np.arange(WIDE) <= pages.random.geometric(0.2, len(pages.doc))[:, None]
    evidence = evidence_of(pages.draw().log())
    truth = np.log(pages.kept.mean(axis=0))
    found = answer("rows", evidence)
    tells(found, truth, within=1.02)
    npt.assert_allclose(effect_of(found), truth, atol=1e-9)
    npt.assert_allclose(error(evidence, -LOG_K + truth)[-1], truth[-1], atol=0.15)
    assert "on the screen" in found.sentence


def test_rows_are_missing_by_context() -> None:
    pages = world(0)
    phone = pages.random.random(len(pages.doc)) < 0.5
    pages.columns["device"] = np.where(phone, "phone", "desktop")
    pages.kept = (np.arange(WIDE) <= pages.random.geometric(0.2, len(pages.doc))[:, None]) | ~phone[:, None]
    evidence = evidence_of(pages.draw().log(context=("device",)))
    found = answer("rows", evidence)
    assert found.effect is not None
    kinds = {evidence.displays.contexts["device"][row]: evidence.kind[row] for row in range(500)}
    npt.assert_allclose(found.effect[kinds["desktop"]], 0, atol=1e-9)
    npt.assert_allclose(found.effect[kinds["phone"]], np.log(pages.kept[phone].mean(axis=0)), atol=1e-9)


def test_queries_with_few_results_lack_none() -> None:
    pages = world(0)
    short = (pages.random.random(QUERIES) < 0.3)[pages.columns["query"]]
    pages.kept = ~short[:, None] | (np.arange(WIDE) < 4)
    found = answer("rows", evidence_of(pages.draw().log()))
    assert found.severity == "ok"
    npt.assert_array_equal(effect_of(found), 0)


def test_positions_counted_before_results_were_removed_are_numbered_through() -> None:
    pages = world(0)
    removed = pages.random.random(pages.doc.shape) < 0.25
    pages.examined = 1.0 / np.maximum(np.cumsum(~removed, axis=1), 1)
    pages.kept = ~removed
    evidence = evidence_of(pages.draw().log())
    assert error(evidence)[-1] < -0.2
    found = answer("rows", evidence)
    tells(found, error(evidence), within=1.5)
    assert "gaps" in found.sentence


def test_a_place_that_something_else_always_has_is_no_gap() -> None:
    """Advertisements have position 3 on every page and are not in the log."""
    pages = world(0)
    pages.kept = np.tile(np.arange(WIDE) != 2, (len(pages.doc), 1))
    found = answer("rows", evidence_of(pages.draw().log()))
    assert found.severity == "ok"
    npt.assert_array_equal(effect_of(found), 0)


# A step.


def folded(at: int = 4, size: float = 0.4) -> World:
    pages = world(0)
    pages.examined = pages.examined * np.where(np.arange(1, WIDE + 1) >= at, size, 1)
    return pages


def test_a_step_counts_until_its_fold_is_named() -> None:
    log = folded().draw().log()
    evidence = evidence_of(log)
    found = answer("step", evidence)
    tells(found, error(evidence), within=1.5)
    npt.assert_array_equal(effect_of(found)[:3], 0)
    assert "From position 4 on" in found.sentence
    named = answer("step", evidence_of(log, folds=[4]))
    assert named.severity == "ok"
    npt.assert_array_equal(effect_of(named), 0)
    assert answer("step", evidence_of(log, folds=[5])).severity == "warning", "the page changes elsewhere"


@pytest.mark.parametrize("folds", [[3, 4, 5, 6], [1], [4, 4], [99]])
def test_any_folds_may_be_named(folds: list[int]) -> None:
    """All that could be asked about, the top of the page, one twice, and one beyond the page."""
    found = answer("step", evidence_of(world(0, 3_000).draw().log(), folds=folds))
    assert found.severity == "ok"


@pytest.mark.parametrize("steep", [0.0, 0.5, 2.0])
def test_smooth_curves_have_no_step(steep: float) -> None:
    pages = world(1)
    pages.examined = np.tile(np.exp(-steep * LOG_K), (len(pages.doc), 1))
    assert answer("step", evidence_of(pages.draw().log())).severity == "ok"


# What has no size.


def test_a_log_of_single_clicks_tells_nothing() -> None:
    pages = world(0).draw()
    pages.clicks &= np.cumsum(pages.clicks, axis=1) == 1
    found = answer("log", evidence_of(pages.log()))
    assert found.severity == "decisive"
    assert found.effect is None


def test_pages_without_a_click_may_be_left_out() -> None:
    pages = world(0).draw()
    pages.kept = np.repeat(pages.clicks.any(axis=1)[:, None], WIDE, axis=1)
    found = answer("log", evidence_of(pages.log()))
    assert found.severity == "note"
    assert "left out" in found.sentence


@pytest.mark.parametrize("without", [(), ("user", "page")])
def test_clicks_that_are_joined_to_every_display_are_decisive(without: tuple[str, ...]) -> None:
    """A user's click on a document of a query is on each of its displays; without users, anybody's click is."""
    pages = world(0, per_user=60).draw()
    of = pages.columns["query"][:, None] * DOCS + pages.doc
    if without:
        pages.clicks = (pages.random.random(QUERIES * DOCS) < 0.3)[of]
    else:
        of = of * (int(pages.columns["user"].max()) + 1) + pages.columns["user"][:, None]
        pages.clicks = (np.bincount(of.ravel(), pages.clicks.ravel()) > 0)[of]
    evidence = evidence_of(pages.log(*without))
    found = answer("copied clicks", evidence)
    assert found.severity == "decisive", found.sentence
    assert "joined" in found.sentence
    assert found.effect is None


def test_a_context_that_is_made_of_clicks_is_decisive() -> None:
    pages = world(0, 4_000).draw()
    pages.columns["device"] = pages.random.choice(["phone", "desktop"], len(pages.doc))
    pages.columns["bounced"] = np.where(pages.clicks.any(axis=1), "no", "yes")
    with quietly():
        found = answer("leaked contexts", evidence_of(pages.log(context=("device", "bounced"))))
        sound_one = answer("leaked contexts", evidence_of(pages.log(context=("device",))))
    assert found.severity == "decisive"
    assert "bounced = yes" in found.sentence
    assert "bounced" in found.advice
    assert sound_one.severity == "ok"


# All of them.


@cache
def anchored(anchor: int) -> Evidence:
    """A log with a fold where users leave after clicks, seen from a position of one's own."""
    pages = folded()
    served(pages, 0.5)
    return evidence_of(pages.log(), anchor=anchor)


@pytest.mark.parametrize("anchor", [1, 5])
@pytest.mark.parametrize("kind", CHECKS)
def test_effects_are_relative_to_the_anchor(kind: str, anchor: int) -> None:
    evidence = anchored(anchor)
    assert evidence.positions[evidence.anchor] == anchor
    found = answer(kind, evidence)
    if found.effect is None or found.standard_error is None:
        return
    npt.assert_allclose(found.effect[:, evidence.anchor], 0, atol=1e-12)
    npt.assert_allclose(found.standard_error[:, evidence.anchor], 0, atol=1e-12)
    assert found.standard_error.min() >= 0
    # From one anchor to another, log p_k / p_anchor changes by what it is at the new one.
    from_first = effect_of(answer(kind, anchored(1)))
    npt.assert_allclose(effect_of(found), from_first - from_first[evidence.anchor], atol=0.15)
