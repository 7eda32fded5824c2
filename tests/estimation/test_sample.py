from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation.sample import Sample, make_sample, supported_positions
from clickharvest.harvesting.interventions import Interventions, linked_positions
from clickharvest.model.contexts import ContextEncoder

Unit = dict[int, int]
"""Position → clicks there."""


def harvest_of(units: list[Unit], *, queries: list[str] | None = None, **changes: Any) -> Interventions:
    """Return units as interventions; exposures and impressions are told apart by their values."""
    rows = [(u, k, clicks) for u, unit in enumerate(units) for k, clicks in sorted(unit.items())]
    u, position, clicks = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    names = np.array(queries or [f"q{i}" for i in range(len(units))])
    whole = Interventions(u, names[u], position, position + u / 8, clicks, clicks + position)
    return replace(whole, **changes)


def pair_clicks(units: list[Unit]) -> list[tuple[int, int, int, int]]:
    """Return (k, k', clicks at k, clicks at k') of the units that stood at both, pair by pair."""
    pairs = []
    for k, other in itertools.combinations(sorted({k for unit in units for k in unit}), 2):
        common = [unit for unit in units if k in unit and other in unit]
        if common:
            pairs.append((k, other, sum(unit[k] for unit in common), sum(unit[other] for unit in common)))
    return pairs


units_at_two = st.lists(st.dictionaries(st.sampled_from([1, 2, 4, 7, 9]), st.integers(0, 2), min_size=2), min_size=1)


@given(units_at_two, st.sampled_from([1, 4]))
def test_supported_are_the_positions_linked_by_pairs(units: list[Unit], anchor: int) -> None:
    expected = linked_positions(anchor, *zip(*pair_clicks(units), strict=True))
    if len(expected) > 1:
        assert supported_positions(harvest_of(units), anchor) == expected
    else:
        with pytest.raises(NotIdentifiedError, match=f"position {anchor}"):
            supported_positions(harvest_of(units), anchor)


def test_positions_cut_from_the_anchor_are_not_supported() -> None:
    top, bottom = itertools.combinations(range(1, 6), 2), itertools.combinations(range(6, 11), 2)
    interventions = harvest_of([{k: 1, other: 1} for k, other in [*top, *bottom]])
    assert supported_positions(interventions, 1) == (1, 2, 3, 4, 5)
    assert supported_positions(interventions, 8) == (6, 7, 8, 9, 10)


@pytest.mark.parametrize(
    ("units", "anchor"),
    [([{1: 1, 2: 1}], 3), ([{1: 1, 2: 0}], 1), ([{1: 0, 2: 0}], 1), ([{1: 0, 2: 0}, {2: 1, 3: 1}], 1)],
    ids=["anchor never shown", "clicks one way", "no clicks", "anchor never clicked"],
)
def test_nothing_linked_is_not_identified(units: list[Unit], anchor: int) -> None:
    with pytest.raises(NotIdentifiedError, match="no position is linked"):
        supported_positions(harvest_of(units), anchor)


def test_no_interventions_are_not_identified() -> None:
    with pytest.raises(NotIdentifiedError, match="none"):
        supported_positions(harvest_of([{1: 1, 2: 1}]).take(np.array([], dtype=np.intp)), 1)


def test_units_left_with_one_position_are_dropped() -> None:
    interventions = harvest_of([{1: 3, 2: 4}, {2: 5, 9: 1}, {1: 0, 4: 1, 9: 2}], queries=["b", "c", "a"])
    sample = make_sample(interventions, (1, 2, 4))
    assert sample.n_units == 2
    assert sample.unit.tolist() == [0, 0, 1, 1]
    assert sample.position.tolist() == [0, 1, 0, 2]
    assert sample.clicks.tolist() == [3, 4, 0, 1]
    assert sample.impressions.tolist() == [3 + 1, 4 + 2, 0 + 1, 1 + 4]
    assert sample.exposure.tolist() == [1, 2, 1 + 2 / 8, 4 + 2 / 8]
    assert (sample.cluster.tolist(), sample.n_clusters) == ([1, 1, 0, 0], 2)
    assert sample.x.shape == (1, 0)
    assert not sample.context.any()


def test_no_unit_at_two_of_the_positions() -> None:
    with pytest.raises(InputError, match="two of the positions 1, 9"):
        make_sample(harvest_of([{1: 3, 2: 4}, {2: 5, 9: 1}]), (1, 9))


def test_equal_contexts_share_a_row_of_x() -> None:
    interventions = harvest_of([{1: 1, 2: 1}, {1: 0, 2: 1}, {2: 1, 3: 0}])
    interventions = replace(interventions, contexts={"age": np.array([40.0, 40, 20, 20, 40, 40])})
    encoder = ContextEncoder.fit({"age": np.array([20.0, 40.0])})
    sample = make_sample(interventions, (1, 2, 3), encoder)
    assert sample.x.tolist() == [[-1], [1]]
    assert sample.x[sample.context, 0].tolist() == [1, 1, -1, -1, 1, 1]


def query_units() -> Interventions:
    """One unit seen in two contexts at position 1 and in one of them at position 2."""
    return Interventions(
        unit=np.zeros(3, dtype=np.int64),
        query=np.array(["q"] * 3),
        position=np.array([1, 1, 2]),
        exposure=np.array([3.0, 4.0, 5.0]),
        clicks=np.array([1, 2, 3]),
        impressions=np.array([3, 4, 5]),
        contexts={"age": np.array([20.0, 40.0, 20.0])},
        unit_kind="query",
    )


def test_contexts_that_vary_inside_a_unit_keep_a_row_each() -> None:
    sample = make_sample(query_units(), (1, 2), ContextEncoder.fit({"age": np.array([20.0, 40.0])}))
    assert sample.unit_kind == "query"
    assert sample.x[sample.context, 0].tolist() == [-1, 1, -1]
    assert sample.position.tolist() == [0, 0, 1]
    assert sample.clicks.tolist() == [1, 2, 3]


def test_without_an_encoder_rows_that_differ_in_context_are_added_up() -> None:
    sample = make_sample(query_units(), (1, 2))
    assert sample.position.tolist() == [0, 1]
    assert sample.exposure.tolist() == [3 + 4, 5]
    assert sample.clicks.tolist() == [1 + 2, 3]
    assert sample.impressions.tolist() == [3 + 4, 5]
    assert sample.clicks.dtype == np.int64


def test_a_unit_in_many_contexts_links_its_positions() -> None:
    one = query_units()
    many = replace(one.take(np.tile([0, 1, 2], 50)), contexts={"age": np.arange(150.0)})
    assert supported_positions(many, 1) == (1, 2)
    never_below = replace(many, clicks=np.where(many.position == 2, 0, many.clicks))
    with pytest.raises(NotIdentifiedError, match="no position is linked"):
        supported_positions(never_below, 1)


def test_rows_as_a_harvest_leaves_them_are_not_copied() -> None:
    interventions = harvest_of([{1: 1, 2: 1}, {1: 0, 2: 1}])
    sample = make_sample(interventions, (1, 2))
    assert np.shares_memory(sample.exposure, interventions.exposure)


def described(sample: Sample) -> list[tuple[Any, ...]]:
    columns = (sample.unit, sample.position, sample.exposure, sample.clicks, sample.impressions, sample.cluster)
    return [*zip(*(column.tolist() for column in columns), sample.x[sample.context, 0].tolist(), strict=True)]


@given(st.randoms(use_true_random=False))
def test_rows_may_come_in_any_order(random: Any) -> None:
    units = [{1: 1, 2: 0, 5: 2}, {2: 1, 5: 1}, {1: 2, 5: 0}]
    interventions = replace(
        harvest_of(units, queries=["b", "a", "b"]), contexts={"age": np.repeat([1.0, 2, 1], [3, 2, 2])}
    )
    encoder = ContextEncoder.fit(interventions.contexts)
    order = [*range(len(interventions))]
    random.shuffle(order)
    straight, shuffled = (
        make_sample(i, (1, 2, 5), encoder) for i in (interventions, interventions.take(np.array(order)))
    )
    assert (np.diff(shuffled.unit) >= 0).all()
    assert sorted(described(shuffled)) == described(straight)
