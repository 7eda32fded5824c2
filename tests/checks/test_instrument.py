"""Arms as instruments: the curve where rankers know their users, as well as where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from checks.worlds import LOG_K, World, fitted, quietly, world
from clickharvest import CPBM, PBM, check_fit, compare_arms
from clickharvest.checks.instrument import Instrumented
from clickharvest.errors import InputError, NotIdentifiedError


def by_arm(pages: World, **how: Any) -> tuple[Any, Instrumented]:
    with quietly():
        arms = compare_arms(pages.log(**how))
        return (CPBM(curve="power") if how else PBM()).fit(arms.interventions).propensities_, arms


def off(model: Any) -> float:
    """How far log p is off at the last position."""
    return float(np.log(model.predict().propensity[0, -1]) + LOG_K[-1])


@pytest.mark.parametrize("noise", [(0.3, 0.3), pytest.param((0.2, 0.4, 0.4), marks=pytest.mark.nightly)])
def test_rankers_that_know_users_are_compared_by_arm(noise: tuple[float, ...]) -> None:
    pages = world(5, 30_000, noise=noise, taste=0.5, known=0.3, page_noise=0.1).draw()
    model, arms = by_arm(pages)
    assert off(fitted(pages.log())) < -0.35
    assert abs(off(model)) < 0.15
    checked = check_fit(arms.displays, model, further=[arms.finding(model)])
    assert -np.log1p(checked.budget.up[-1]) < off(model) < -np.log1p(-checked.budget.down[-1])
    assert checked.budget.word != "cannot tell"
    assert 0 < checked.budget.terms["instrument"][-1] < 0.3


def test_rankers_that_know_nobody_give_the_ordinary_curve() -> None:
    pages = world(6, 20_000, taste=0.5, page_noise=0.1).draw()
    assert off(by_arm(pages)[0]) == pytest.approx(off(fitted(pages.log())), abs=0.1)
    fixed = world(6, 20_000).draw()
    model, arms = by_arm(fixed)
    assert arms.finding(model).standard_error == pytest.approx(0, abs=1e-6)  # every ranker has one place for a result


def test_contexts_have_curves_of_their_own() -> None:
    pages = world(7, 30_000, taste=0.5, known=0.3, page_noise=0.1)
    phone = pages.columns["user"] % 2 == 0
    pages.columns["device"] = np.where(phone, "phone", "desktop")
    pages.examined = np.where(phone[:, None], pages.examined**1.5, pages.examined)
    model, _ = by_arm(pages.draw(), context=("device",))
    log_p = np.log(model.predict({"device": ["desktop", "phone"]}).propensity[:, -1])
    assert log_p == pytest.approx(-LOG_K[-1] * np.array([1, 1.5]), abs=0.2)


def test_logs_without_arms_are_refused() -> None:
    with pytest.raises(InputError, match="ranker column"):
        compare_arms(world(0, 2_000).draw().log("ranker"))
    with pytest.raises(NotIdentifiedError, match="clearly different positions"):
        compare_arms(world(0, 2_000, noise=(0.3,), page_noise=0.3).draw().log())
