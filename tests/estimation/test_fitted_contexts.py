"""Checks of the model know what contexts do by the model that was fitted, not only what is linear in their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from clickharvest.diagnosis.findings import ALARM, WEAK, Finding
from clickharvest.errors import InputError
from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.estimation.model_checks import check_model, transitivity
from clickharvest.estimation.share_columns import fitted_log_p, model_sample, null_of_contexts, share_cells
from clickharvest.estimation.trust_bias import trust_bias
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities

OFFICE = np.arange(9, 17)


def simulate(seed: int, law: str, *, pages: int = 15_000, queries: int = 300, trust: float = 0.0) -> Interventions:
    """Simulate pages of three good rankers whose contexts are read to different depths.

    Args:
        seed: seed of all randomness.
        law: what makes examination steep, k^-1.4 instead of k^-.5: two columns that agree (`together`), or the `hour`.
        pages: number of pages.
        queries: number of queries.
        trust: chance that a user takes an irrelevant document for relevant at position 1; trust / k at k.
    """
    random, docs = np.random.default_rng(seed), 5
    query = np.sort(random.integers(queries, size=pages))
    quality = random.normal(-1, 0.8, (queries, 1, docs))
    order = np.argsort(-(quality + random.normal(size=(queries, 3, docs))), axis=2)
    place = np.argsort(order, axis=2)[query, random.integers(3, size=pages)]
    if law == "hour":
        context = random.integers(8, 20, pages)
        steep, contexts = np.isin(context, OFFICE), {"hour": context.astype(float)}
    else:
        one, two = random.integers(2, size=(2, pages))
        steep, context = one == two, 2 * one + two
        contexts = {"device": np.array(["desk", "phone"])[one], "side": np.array(["left", "right"])[two]}
    relevance = np.minimum(np.exp(quality[:, 0]), 1)[query]
    attraction = relevance + (1 - relevance) * trust / (place + 1)
    clicked = random.random(place.shape) < 0.6 * attraction * (place + 1.0) ** -np.where(steep, 1.4, 0.5)[:, None]
    unit = ((query * 24 + context) * docs)[:, None] + np.arange(docs)
    cell, first, row, shown = np.unique(
        (unit * docs + place).ravel(), return_index=True, return_inverse=True, return_counts=True
    )
    clicks = np.bincount(row, clicked.ravel()).astype(np.int64)
    _, unit = np.unique(cell // docs, return_inverse=True)
    kept = np.flatnonzero(np.bincount(unit)[unit] > 1)
    page, shown = first[kept] // docs, shown[kept].astype(np.int64)
    told = {name: column[page] for name, column in contexts.items()}
    return Interventions(unit[kept], query[page], cell[kept] % docs + 1, shown.astype(float), clicks[kept], shown, told)


def fitted(interventions: Interventions, curve: str = "linear") -> Propensities:
    return (
        CPBM(curve=curve, intervals=None, penalty="auto" if curve == "linear" else 1.0).fit(interventions).propensities_
    )


def known(contexts: Mapping[str, np.ndarray], steep: Mapping[str, float], *, anchor: int = 1) -> Propensities:
    """Return a model of one column of categories, k^-steep in each, that nothing was fitted for."""
    encoder = ContextEncoder.fit(contexts)
    curve = make_curve("linear", (1, 2, 3, 4), anchor=anchor, n_features=len(encoder.feature_names))
    power = np.array([steep.get(name.split("=")[1], 0.0) for name in encoder.feature_names])
    distance = np.log(np.array([k for k in curve.positions if k != anchor]) / anchor)
    params = {"b": np.zeros(len(distance)), "W": -np.outer(power, distance)}
    return Propensities(curve, params, encoder, shown=(1, 2, 3, 4, 5))


def alarms(findings: list[Finding], level: float) -> int:
    return sum(own.p_value is not None and own.p_value < level for own in findings)


@pytest.mark.parametrize(("law", "curve"), [("together", "index"), ("hour", "linear")])
def test_contexts_whose_effect_is_not_linear_are_no_trust_bias(law: str, curve: str) -> None:
    """A linear null takes units of contexts that are read further down for relevant ones, which seem to be trusted."""
    logs = [simulate(seed, law, queries=150, pages=20_000) for seed in range(4)]
    linear, own = (
        [trust_bias(log, model=model(log)) for log in logs] for model in (lambda _: None, partial(fitted, curve=curve))
    )
    assert alarms(linear, WEAK) == 4
    assert alarms(own, WEAK) <= 1
    assert alarms(own, ALARM) == 0
    values = np.array([[finding.value for finding in found] for found in (linear, own)], dtype=np.float64).mean(axis=1)
    assert values[0] > 0.08
    assert abs(values[1]) < 0.04


def test_trust_is_found_beside_such_contexts() -> None:
    log = simulate(0, "together", pages=150_000, trust=0.8)
    found = trust_bias(log, model=fitted(log, "index"))
    assert found.status == "warning"
    assert "An effect of contexts that the curve misses looks the same." in found.sentence


def test_a_context_effect_that_the_null_misses_is_named_where_trust_is_told() -> None:
    """Of a single category nothing can be missed, so that the curve *is* an average over relevance."""
    log = simulate(0, "together", pages=80_000)
    found = trust_bias(log)
    assert found.status == "warning"
    assert "An effect of contexts that is not linear in their columns looks the same." in found.sentence
    device = {"device": simulate(1, "together", pages=150_000, trust=0.8).contexts["device"]}
    found = trust_bias(replace(simulate(1, "together", pages=150_000, trust=0.8), contexts=device))
    assert found.status == "warning"
    assert "the curve is an average over relevance." in found.sentence


def test_without_contexts_a_model_changes_nothing() -> None:
    log = simulate(0, "together", pages=6_000)
    plain = replace(log, contexts={})
    model = PBM(intervals=None).fit(plain).propensities_
    assert check_model(plain, model=model) == check_model(plain)
    assert check_model(log, model=model) == check_model(log)


def test_contexts_that_a_model_needs_must_be_there() -> None:
    log = simulate(0, "together", pages=6_000)
    with pytest.raises(InputError, match="depends on side, which the interventions do not have"):
        check_model(replace(log, contexts={"device": log.contexts["device"]}), model=fitted(log))


def test_what_the_model_says_is_part_of_the_exposures() -> None:
    log = simulate(0, "together", pages=6_000)
    model = known({"side": log.contexts["side"]}, {"left": 1.0, "right": 0.5}, anchor=2)
    sample = model_sample(log, 1, None, model)
    log_p = fitted_log_p(model, sample, 1)
    assert log_p is not None
    position = np.array(sample.positions)[sample.position]
    # Columns of the model come first, by how frequent they are.
    assert model.encoder is not None
    left = sample.x[sample.context, model.encoder.feature_names.index("side=left")] == 1
    assert np.allclose(log_p, np.where(position < 5, -np.where(left, 1.0, 0.5) * np.log(position), 0.0))
    cells = share_cells(sample, log_p)
    assert np.allclose(cells.log_exposure - np.log(sample.exposure[cells.rows]), log_p[cells.rows])
    # Of each of the four contexts a steepness, and of the model one column, beside those that are linear.
    more = null_of_contexts(sample, 1, log_p).shape[1] - null_of_contexts(sample, 1).shape[1]
    assert more == 1 + 4


def test_pairs_of_positions_are_compared_with_the_model_that_was_fitted() -> None:
    """Positions 4 and 5 are seen in flat contexts alone, so that pairs with them tell another curve."""
    found = []
    for seed in range(3):
        log = simulate(seed, "together", queries=150, pages=40_000)
        agree = (log.contexts["device"] == "desk") == (log.contexts["side"] == "left")
        some = log.take(~(agree & (log.position > 3)))
        _, unit = np.unique(some.unit, return_inverse=True)
        some = some.take(np.bincount(unit)[unit] > 1)
        found.append((transitivity(some), transitivity(some, model=fitted(some, "index"))))
    assert alarms([linear for linear, _ in found], WEAK) == 3
    assert alarms([own for _, own in found], 0.01) == 0
