"""Two models, told apart by their intervals alone."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation import CPBM, PBM
from clickharvest.model import ContextEncoder, Linear, Propensities, find_differences
from samples import fixed_curve, simulated_interventions

LOG_P = {1: 0.0, 2: -0.5, 3: -1.0}


def linear(log: dict[str, list[Any]], slope: float = 0.0) -> Propensities:
    """A model of positions 1 and 2 whose log p_2 is −1 + slope times each feature, with an sd of 0.1."""
    encoder = ContextEncoder.fit(log)
    d = len(encoder.feature_names)
    params = {"W": np.full((d, 1), slope), "b": np.array([-1.0])}
    draws = np.append(params["W"].ravel(), -1.0) + np.outer([-1.0, 0.0, 1.0], np.append(np.zeros(d), 0.1))
    return Propensities(Linear((1, 2), 1, d), params, encoder, (1, 2), draws=draws, draws_kind="sandwich")


def test_the_interval_of_a_ratio_by_hand() -> None:
    second = fixed_curve({1: 0.0, 2: -0.3, 3: -0.95, 4: -1.5}, sd=0.04)
    found = find_differences(fixed_curve(LOG_P, sd=0.03), second, level=0.9)
    assert (found.positions, found.anchor, found.contexts, found.values) == ((2, 3), 1, ("typical",), {})
    assert found.ratio == pytest.approx(np.exp([[0.2, 0.05]]))
    margin = NormalDist().inv_cdf(1 - 0.1 / 2 / 2) * 0.05  # two propensities share the level
    assert found.lower == pytest.approx(np.exp(np.array([[0.2, 0.05]]) - margin), rel=1e-5)
    assert found.upper == pytest.approx(np.exp(np.array([[0.2, 0.05]]) + margin), rel=1e-5)
    assert found.differs.tolist() == [[True, False]]
    assert found.verdict.startswith("The models differ in 1 of 2 propensities, most clearly at position 2: 1.22 times")


def test_a_model_does_not_differ_from_itself() -> None:
    model = fixed_curve(LOG_P, sd=0.03)
    found = find_differences(model, model)
    assert np.array_equal(found.ratio, np.ones((1, 2)))
    assert not found.differs.any()


@pytest.mark.parametrize(("later", "told"), [(1.0, "No difference beyond"), (1.8, "The models differ in")])
def test_drift_is_told_and_chance_is_not(later: float, told: str) -> None:
    models = []
    for seed, steepness in ((1, 1.0), (2, later)):
        interventions = simulated_interventions(400, seed=seed, steepness={"a": steepness, "b": 0.5})
        models.append(CPBM(curve="linear", penalty=1.0, intervals="sandwich").fit(interventions).propensities_)
    found = find_differences(*models)
    assert found.verdict.startswith(told)
    drifted = [name for name, row in zip(found.contexts, found.differs, strict=True) if row.any()]
    assert all(name in ("device = a", "typical (device = a)") for name in drifted)


@pytest.mark.parametrize(("pairs", "most"), [(3, 0), pytest.param(12, 2, marks=pytest.mark.nightly)])
def test_models_of_one_truth_are_seldom_told_apart(pairs: int, most: int) -> None:
    """Of twelve pairs at 95 %, three or more would have a probability of .02."""
    fits = [
        PBM().fit(simulated_interventions(60, seed=s, steepness={"a": 1.0}, positions=2)).propensities_
        for s in range(2 * pairs)
    ]
    assert sum(find_differences(*fits[i : i + 2]).differs.any() for i in range(0, 2 * pairs, 2)) <= most


def test_contexts_are_values_that_both_models_read() -> None:
    first = linear({"device": ["phone", "phone", "desk", "tv"], "age": [20.0, 40.0, 20.0, 40.0], "pays": [True] * 4})
    second = linear({"device": ["desk", "phone", "tablet", "phone"], "age": [25.0, 35.0, 25.0, 35.0]})
    found = find_differences(first, second)
    assert found.contexts == (
        "typical (device = phone, age = 30, pays = yes)",
        "device = desk",
        "age = 20",
        "age = 40",
        "pays = no",
    )
    assert found.values["device"] == ["phone", "desk", "phone", "phone", "phone"]
    assert found.values["age"] == [30.0, 30.0, 20.0, 40.0, 30.0]
    assert found.values["pays"] == [True, True, True, True, False]


def test_a_missing_value_is_compared_where_both_models_know_it() -> None:
    mostly, seldom = {"kind": ["a", None, None], "age": [1.0, 3.0, None]}, {"kind": ["a", "a", None], "age": [1.0, 3.0]}
    found = find_differences(linear(mostly), linear({"kind": ["a", None, None], "age": [1.0, 3.0, np.nan]}))
    assert found.contexts == (
        "typical (kind = missing, age = 2)", "kind = a", "age = 1", "age = 3", "age is missing",
    )  # fmt: skip
    assert found.values["age"] == [2.0, 2.0, 1.0, 3.0, None]
    assert np.isfinite(found.ratio).all()
    found = find_differences(linear({"kind": seldom["kind"]}), linear({"kind": mostly["kind"]}))
    assert found.contexts == ("typical (kind = a)", "kind is missing")
    found = find_differences(linear(mostly), linear({"kind": ["a", "a"], "age": [1.0, 3.0]}))
    assert found.contexts == ("typical (kind = a, age = 2)", "age = 1", "age = 3")


def test_a_number_is_the_same_number_for_both() -> None:
    """At age 40 the first is one sd above its mean, the second two."""
    first, second = linear({"age": [20.0, 40.0]}, slope=0.3), linear({"age": [25.0, 35.0]}, slope=0.3)
    found = find_differences(first, second)
    assert np.log(found.ratio[:, 0]) == pytest.approx([0.0, -0.3, 0.3])


def test_a_model_without_context_is_compared_in_every_context() -> None:
    found = find_differences(fixed_curve({1: 0.0, 2: -1.0}, sd=0.1), linear({"device": ["a", "b"]}, slope=2.0))
    assert found.ratio == pytest.approx(np.full((2, 1), np.exp(2.0)))
    assert found.to_dict()["contexts"] == {"typical (device = a)": {"device": "a"}, "device = b": {"device": "b"}}


def test_the_same_clicks_are_told() -> None:
    first, second = (replace(fixed_curve(LOG_P, sd=sd), info={"data": "abc"}) for sd in (0.03, 0.04))
    found = find_differences(first, second)
    assert found.same_data
    assert "fitted on the same clicks" in found.verdict
    assert not find_differences(first, replace(second, info={})).same_data


def test_what_cannot_be_compared_is_told() -> None:
    model = fixed_curve(LOG_P, sd=0.1)
    with pytest.raises(InputError, match="relative to position 1, the other to position 2"):
        find_differences(model, fixed_curve(LOG_P, anchor=2, sd=0.1))
    with pytest.raises(InputError, match="has no intervals"):
        find_differences(model, fixed_curve(LOG_P))
    with pytest.raises(InputError, match="level of an interval is 2"):
        find_differences(model, model, level=2)
    with pytest.raises(NotIdentifiedError, match="estimates for positions 1-3 and 1, 9"):
        find_differences(model, fixed_curve({1: 0.0, 9: -1.0}, sd=0.1))
    with pytest.raises(InputError, match="'age' is categorical in one model and numeric in the other"):
        find_differences(linear({"age": [1.0, 2.0]}), linear({"age": ["old", "young"]}))
