from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.estimation import CPBM
from clickharvest.harvesting import Interventions
from clickharvest.model import Contrasts, Propensities, find_contrasts, make_curve
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.support import ColumnSupport, Support

LEVELS = ("a", "b", "c")
LOG_P = {"a": (-0.5, -1.0), "b": (-0.7, -1.6), "c": (-0.6, -1.1)}
"""Log examination at positions 2 and 3 of three levels."""


def level_model(sd: float, shared: float = 0.0, support: Support | None = None) -> Propensities:
    """Every level has its own error at every position, and all share one."""
    encoder = ContextEncoder.fit({"level": list(LEVELS)})
    order = [LEVELS.index(level) for level in encoder.parts[0].levels]
    own = np.array(list(LOG_P.values()))[order]
    size = 2 * len(encoder.feature_names)
    middle = np.concatenate([np.zeros(2), own.ravel(), np.zeros(size - 6)])
    roots = [np.r_[shared, np.zeros(1 + size)], np.r_[0, shared, np.zeros(size)]]
    roots += [np.r_[0, 0, sd * (np.arange(size) == i)] for i in range(6)]
    far = np.sqrt(len(roots) - 0.5) * np.array(roots)
    return Propensities(
        make_curve("linear", (1, 2, 3), 1, len(encoder.feature_names)),
        {"b": np.zeros(2), "W": middle[2:].reshape(-1, 2)},
        encoder,
        (1, 2, 3),
        # Parameters in the order of their names: W before b.
        draws=np.concatenate([middle + far, middle - far])[:, [*range(2, 2 + size), 0, 1]],
        draws_kind="clustered",
        support=support,
    )


def features(model: Propensities, *levels: str) -> np.ndarray:
    assert model.encoder is not None
    return model.encoder.transform({"level": list(levels)})


def found_in(model: Propensities, *levels: str, **options: Any) -> Contrasts:
    found = find_contrasts(model, features(model, *levels), **options)
    assert found is not None
    return found


def test_a_ratio_has_the_errors_of_both_contexts_and_none_that_they_share() -> None:
    for shared in (0.0, 0.3):
        found = found_in(level_model(0.1, shared), "a", "b")
        np.testing.assert_allclose(found.log_ratio[0, 1:], [0.2, 0.6], atol=1e-6)
        np.testing.assert_allclose(found.sd[0, 1:], 0.1 * np.sqrt(2), rtol=1e-3)
        assert np.isnan(found.log_ratio[0, 0])  # the anchor is 1 in both


def test_the_clearest_difference_is_named_with_its_direction() -> None:
    for levels, high in ((("a", "b", "c"), 0), (("b", "a"), 1)):
        clearest = found_in(level_model(0.1), *levels).clearest()
        assert clearest is not None
        assert (clearest.high, clearest.position, clearest.clear, clearest.deeper) == (high, 3, True, high)
        assert levels[clearest.low] == "b"


@pytest.mark.parametrize(
    ("anchor", "log_p", "position", "deeper"),
    [
        (1, [(-0.5, -1.0), (-0.5, -2.0)], 3, "a"),
        (3, [(1.0, 0.5), (2.0, 0.8)], 1, "a"),  # of what stands above the anchor, the deeper sees less
        (2, [(0.5, -0.5), (1.5, -0.7)], 1, "a"),
        (2, [(0.5, -0.5), (1.5, -0.3)], 1, None),  # a sees less of the top, and less of the end
    ],
)
def test_who_reads_further_down_does_not_depend_on_the_anchor(
    anchor: int, log_p: list[tuple[float, float]], position: int, deeper: str | None
) -> None:
    encoder = ContextEncoder.fit({"level": ["a", "b"]})
    middle = np.concatenate([np.array(log_p).ravel(), np.zeros(4)])
    model = Propensities(
        make_curve("linear", (1, 2, 3), anchor, 3),
        {"b": np.zeros(2), "W": middle[:6].reshape(3, 2)},
        encoder,
        (1, 2, 3),
        draws=middle + 0.1 * np.concatenate([np.eye(8)[:4], -np.eye(8)[:4]]),
        draws_kind="clustered",
    )
    clearest = found_in(model, "a", "b").clearest()
    assert clearest is not None
    assert (clearest.position, clearest.deeper) == (position, None if deeper is None else 0)


def test_many_contexts_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found_in(level_model(0.1), *LEVELS)
    monkeypatch.setattr("clickharvest.model.differences.AT_ONCE", 1_000)
    assert found_in(level_model(0.1), *LEVELS).z == whole.z


def test_what_chance_might_make_is_not_clear() -> None:
    """0.6 apart, and 0.85 standard deviations of it."""
    clearest = found_in(level_model(0.5), *LEVELS).clearest()
    assert clearest is not None
    assert not clearest.clear


def test_the_more_is_compared_the_farther_apart_it_must_be() -> None:
    model = level_model(0.1)
    two, three = found_in(model, "a", "b"), found_in(model, *LEVELS)
    assert 1.96 < two.z < three.z < 3.5
    assert found_in(model, *LEVELS, level=0.99).z > three.z


def test_columns_are_not_compared_with_each_other() -> None:
    model = level_model(0.1)
    found = found_in(model, "a", "b", "a", "c", column=[0, 0, 7, 7])
    assert found.pairs.tolist() == [[0, 1], [2, 3]]
    assert found.column.tolist() == [0, 7]
    own = found.clearest(7)
    assert own is not None
    assert {own.high, own.low} == {2, 3}
    assert found.clearest(1) is None
    with pytest.raises(InputError, match="one number for each of 2 contexts"):
        find_contrasts(model, features(model, "a", "b"), [0])


def test_a_context_that_is_not_supported_is_not_compared() -> None:
    model = level_model(0.1)
    assert model.encoder is not None
    linked = tuple((1, 2) if level == "b" else (1, 2, 3) for level in model.encoder.parts[0].levels)
    found = found_in(replace(model, support=Support((ColumnSupport(linked),), (None, 40.0, 40.0))), "a", "b")
    assert np.isfinite(found.log_ratio).tolist() == [[False, True, False]]


def test_nothing_is_said_without_intervals_or_of_a_curve_that_ignores_contexts() -> None:
    model = level_model(0.1)
    bare = replace(model, draws=None, draws_kind=None)
    assert find_contrasts(bare, features(bare, "a", "b")) is None
    one = Propensities(
        make_curve("constant", (1, 2), 1, model.curve.n_features),
        {"b": np.array([-1.0])},
        model.encoder,
        (1, 2),
        draws=np.array([[-1.1], [-0.9]]),
        draws_kind="bootstrap",
    )
    assert found_in(one, "a", "b").clearest() is None


def test_nothing_is_said_where_all_contexts_are_given_the_same_curve() -> None:
    """Such a model knows no difference, though its draws know that there might be one."""
    model = level_model(0.1)
    alike = replace(model, params={"b": np.array([-0.5, -1.0]), "W": np.zeros_like(model.params["W"])})
    assert found_in(alike, *LEVELS).clearest() is None
    assert alike.describe()["clearest_contrast"] is None
    assert "differ" not in str(alike).partition("In contexts that differ from it")[2]


def two_devices(steeper: float, seed: int) -> Interventions:
    """Documents at positions 1 and 3 of 400 queries on two devices; 3 is looked at half as often, or less on phones."""
    random = np.random.default_rng(seed)
    phone = np.repeat(random.integers(2, size=400), 2)
    rate = 0.2 * np.where(np.arange(800) % 2 == 0, 1.0, 0.5 * np.exp(-steeper * phone))
    return Interventions(
        unit=np.arange(800) // 2,
        query=np.arange(800) // 2,
        position=np.tile([1, 3], 400),
        exposure=np.full(800, 30.0),
        clicks=random.binomial(30, rate),
        impressions=np.full(800, 30),
        contexts={"device": np.array(["desk", "phone"])[phone]},
    )


@pytest.mark.parametrize("seeds", [3, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("steeper", [0.0, 0.5])
def test_devices_that_read_alike_are_seldom_called_different_and_others_mostly(steeper: float, seeds: int) -> None:
    """Nor does NumPy warn, as it did with two positions, of which both variances between queries explain the same."""
    clear = []
    for seed in range(seeds):
        model = CPBM(curve="linear").fit(two_devices(steeper, seed)).propensities_
        assert model.encoder is not None
        found = find_contrasts(model, model.encoder.transform({"device": ["desk", "phone"]}))
        assert found is not None
        clearest = found.clearest()
        assert clearest is not None
        clear.append(clearest.clear and clearest.high == 0)
    assert sum(clear) <= seeds / 10 if steeper == 0 else sum(clear) >= 0.9 * seeds


def test_fit_and_show_say_whether_contexts_differ() -> None:
    told = " ".join(str(level_model(0.1)).split())
    assert "Clearest difference: position 3 is examined more with level = a than with level = b." in told
    assert "No two values of a column differ by more than chance." in str(level_model(0.5))
    assert level_model(0.1).describe()["clearest_contrast"] == {
        "column": "level", "high": "a", "low": "b", "position": 3, "clear": True
    }  # fmt: skip
    assert level_model(0.5).describe()["clearest_contrast"]["clear"] is False


def test_levels_that_are_not_shown_are_compared_as_well() -> None:
    """Of ten levels six are shown; the last alone differs."""
    names = [f"level {i}" for i in range(10)]
    encoder = ContextEncoder.fit({"level": names})
    middle = np.concatenate([np.where(np.arange(11) == 9, -1.5, -0.5), [0.0]])
    model = Propensities(
        make_curve("linear", (1, 2), 1, 11),
        {"b": np.zeros(1), "W": middle[:11, None]},
        encoder,
        (1, 2),
        draws=middle + 0.1 * np.concatenate([np.eye(12)[:10], -np.eye(12)[:10]]),
        draws_kind="clustered",
    )
    last = encoder.parts[0].levels[-1]
    assert last not in str(model).partition("In contexts")[2].partition("Clearest")[0]
    assert f"than with level = {last}" in " ".join(str(model).split())
    bought = replace(model, info={"outcome": "purchase"})
    assert "Clearest difference: a click at position 2 leads to it more often with" in " ".join(str(bought).split())
