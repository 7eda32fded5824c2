from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickharvest.estimation import Candidate, Fit, selection
from clickharvest.estimation.pooling import pool
from clickharvest.estimation.selection import cross_validate, fold_weights, judged_by_folds
from clickharvest.model.curves import Curve, make_curve
from samples import POSITIONS, share_fit, simulated_sample


@given(st.integers(2, 60), st.integers(2, 6), st.integers(0, 5))
def test_every_query_is_kept_aside_once_and_folds_are_even(queries: int, folds: int, seed: int) -> None:
    folds = min(folds, queries)
    aside = fold_weights(queries, folds, seed)
    assert aside.sum(axis=0).tolist() == [1.0] * queries
    assert np.ptp(aside.sum(axis=1)) <= 1
    assert np.array_equal(aside, fold_weights(queries, folds, seed))


def test_queries_are_dealt_at_random() -> None:
    assert not np.array_equal(fold_weights(40, 4, 0), fold_weights(40, 4, 1))
    in_turn = np.arange(40) % 4 == np.arange(4)[:, None]
    assert not np.array_equal(fold_weights(40, 4, 0), in_turn)


@cache
def fit_of(curve: Curve) -> Fit:
    return share_fit(simulated_sample(queries=24, features=2), curve.name)


def curve_of(name: str) -> Curve:
    return make_curve(name, POSITIONS, 1, 2)


@pytest.fixture(scope="module")
def judged() -> list[Candidate]:
    """Return a curve that is judged by itself, and then another."""
    found = [cross_validate(fit_of, [curve_of(name)], folds=3, seed=4) for name in ("constant", "linear")]
    return [one.candidate for own in found for one in own]


def by_hand(fit: Fit, penalty: float, folds: int, seed: int) -> tuple[list[float], list[float]]:
    """Return for each fold the log likelihood per click of its queries, and of the others, fitted to the others."""
    held_out, seen = [], []
    for aside in fold_weights(fit.n_clusters, folds, seed):
        found = fit.solve(fit.starts(1, seed), 1 - aside[None], np.array([penalty]), tolerance=1e-7).params
        held_out.append(fit.held_out(found, aside[None])[0] / fit.scale)
        seen.append(fit.held_out(found, 1 - aside[None])[0] / fit.scale)
    return held_out, seen


def test_candidates_are_scored_on_the_queries_they_have_not_seen(judged: list[Candidate]) -> None:
    free, linear = judged[0], next(c for c in judged if c.penalty and c.folds is None)
    for candidate, curve in ((free, curve_of("constant")), (linear, curve_of("linear"))):
        held_out, seen = by_hand(fit_of(curve), candidate.penalty, 3, 4)
        assert candidate.curve == curve.spec
        assert candidate.score == pytest.approx(sum(held_out), abs=1e-4)
        assert abs(candidate.score - sum(seen)) > 0.05
        assert candidate.se == pytest.approx(np.sqrt(3 * np.var(held_out, ddof=1)), rel=0.01)
    assert free.penalty == 0.0


def test_a_candidate_that_was_left_has_no_standard_error() -> None:
    """Its score goes by that of the one that was taken, and folds that it was not tried in say nothing of it."""
    fit, aside = fit_of(curve_of("linear")), fold_weights(24, 3, 4)
    flats = fit.starts(3, 5)
    held_out = fit.by_query(flats)
    whole, *left = (judged_by_folds(fit, 1.0, held_out[:n], aside, flats[:n]).candidate for n in (3, 1, 2))
    assert whole.se == pytest.approx(np.sqrt(3 * np.var((aside * held_out).sum(axis=1) / fit.scale, ddof=1)))
    assert [(one.folds, one.se) for one in left] == [(1, None), (2, None)]
    json.dumps([one.to_dict() for one in left], allow_nan=False)
    lost = judged_by_folds(fit, 1.0, np.full_like(held_out, -np.inf), aside, flats).candidate
    assert lost.se is None


def test_the_log_likelihood_of_every_query_by_hand() -> None:
    fit = fit_of(curve_of("linear"))
    flat = fit.starts(3, 5)
    expected = [[fit.held_out(one[None], only[None])[0] for only in np.eye(24)] for one in flat]
    assert fit.by_query(flat) == pytest.approx(np.array(expected))


def test_penalties_are_tried_from_the_middle_up_and_down(judged: list[Candidate]) -> None:
    linear = [c for c in judged if c.curve["name"] == "linear"]
    tried = [i for i, penalty in enumerate(selection.PENALTIES) if any(c.penalty == penalty for c in linear)]
    assert 2 in tried
    assert tried == list(range(min(tried), max(tried) + 1))
    assert [c.penalty for c in linear] == sorted(c.penalty for c in linear)


@pytest.mark.parametrize(("name", "seed"), [("power", 0), ("power", 7), ("linear", 6), ("linear", 11), ("linear", 16)])
def test_all_folds_have_seen_both_neighbours_of_the_best_penalty(name: str, seed: int) -> None:
    """Half a decade below and above, whatever the first fold made of them; none far beyond the list.

    In all but the first case one of them was left after the first fold, or not tried there.
    """
    found = [one.candidate for one in cross_validate(fit_of, [curve_of(name)], folds=3, seed=seed)]
    whole = [c.penalty for c in found if c.folds is None]
    (best,) = (c.penalty for c in found if c.chosen)
    assert best is not None
    assert best == max(found, key=lambda c: (c.folds is None, c.score)).penalty
    for near in (best / np.sqrt(10), best * np.sqrt(10)):
        assert np.isclose(near, whole).any() or not 0.03 < near < 4_000
    assert len({round(np.log10(c.penalty), 6) for c in found}) == len(found)


def test_the_best_score_is_chosen_and_a_curve_without_context_has_no_penalty(judged: list[Candidate]) -> None:
    assert [c.penalty for c in judged if c.curve["name"] == "constant"] == [0.0]
    linear = [c for c in judged[1:] if c.folds is None]
    assert [c.chosen for c in linear] == [c.score == max(one.score for one in linear) for c in linear]
    assert judged[0].chosen


def test_given_penalties_are_all_that_is_tried_and_ticks_count_curves() -> None:
    shares: list[float] = []
    curves = [curve_of("linear"), curve_of("constant")]
    update = lambda share, note="": shares.append(share)  # noqa: E731
    found = [one.candidate for one in cross_validate(fit_of, curves, penalties=(3.0, 0.5), folds=2, update=update)]
    assert [(c.curve["name"], c.penalty) for c in found] == [("linear", 0.5), ("linear", 3.0), ("constant", 0.0)]
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_the_choice_is_the_same_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, found = simulated_sample(queries=24, features=2), []
    curves = [curve_of("constant"), curve_of("linear")]
    monkeypatch.setattr("clickharvest.estimation.loss.SMALL", 0)
    for cores in (1, 4):
        monkeypatch.setattr("clickharvest.estimation.loss.cores", lambda cores=cores: cores)
        pooled = {curves[0]: pool(curves[0], sample)}
        judged = cross_validate(fit_of, curves, pooled=pooled, folds=3)
        found.append([one.candidate.to_dict() for one in judged])
    assert found[0] == found[1]


def test_there_are_no_more_folds_than_queries() -> None:
    fit = share_fit(simulated_sample(queries=3))
    (many,) = cross_validate(lambda _: fit, [fit.curve], folds=50)
    (three,) = cross_validate(lambda _: fit, [fit.curve], folds=3)
    assert many.candidate == three.candidate
    assert np.isfinite(many.candidate.score)
    assert len(many.flats) == 3


def test_a_fit_without_a_finite_value_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_of(curve_of("linear"))
    inner, asked = fit.by_query, []

    def broken(flat: np.ndarray) -> np.ndarray:
        asked.append(flat)  # the larger penalty comes first
        return np.where(len(asked) == 2, np.nan, inner(flat))

    monkeypatch.setattr(fit, "by_query", broken)
    with np.errstate(invalid="ignore"):
        found = [one.candidate for one in cross_validate(lambda _: fit, [fit.curve], penalties=(0.1, 10.0), folds=2)]
    assert [c.chosen for c in found] == [False, True]
    assert found[0].score == -np.inf


def judged_by(name: str, *scores: float) -> Any:
    return selection.Judged(
        Candidate({"name": name}, None, sum(scores), 0.0),
        np.array(scores),
        fit_of(curve_of("linear")),
        np.zeros((0, 0)),
    )


def test_simpler_curves_are_taken_unless_others_are_clearly_better() -> None:
    power = judged_by("power", -0.50, -0.51, -0.49)
    near = judged_by("linear", -0.49, -0.52, -0.488)  # 0.002 ahead, give or take 0.02
    lucky = judged_by("linear", -0.47, -0.50, -0.487)  # 0.043 ahead, give or take 0.024
    clear = judged_by("linear", -0.47, -0.49, -0.465)  # 0.075 ahead, give or take 0.009
    wavy = judged_by("mlp", -0.46, -0.495, -0.46)  # 0.010 ahead of that, give or take 0.014
    better = judged_by("mlp", -0.40, -0.41, -0.38)
    assert selection._choose([power, near]) is power
    assert selection._choose([power, lucky]) is power
    assert selection._choose([power, clear]) is clear
    assert selection._choose([power, clear, wavy]) is clear
    assert selection._choose([power, clear, better]) is better
    assert selection._choose([judged_by("power", -np.inf), better]) is better


def test_pooled_curves_are_judged_on_queries_they_have_not_seen() -> None:
    sample = simulated_sample(queries=24, features=2)
    curve = curve_of("linear")
    pooled = pool(curve, sample)
    (judged,) = cross_validate(fit_of, [curve], pooled={curve: pooled}, folds=3, seed=4)
    found, total = judged.candidate, 0.0
    for aside in fold_weights(24, 3, 4):
        others, own = (pooled.shares.weighted(weights) for weights in (1 - aside, aside))
        again = pooled.refit(1 - aside)
        theta = again.theta
        assert others.score(others.shares(theta)) == pytest.approx(again.precision @ theta, abs=1e-4)
        assert np.abs(again.log_spread - pooled.log_spread).max() > 0.01  # variances of the others' clicks
        total += own.shares(theta).value
    assert found.penalty is None
    assert found.score == pytest.approx(total / sample.clicks.sum())
