"""Support of samples made by hand: what units link, how far numbers reach, how many queries positions rest on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.estimation.sample import make_sample
from clickharvest.estimation.support import effective_queries, find_support
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant

Unit = tuple[str, dict[int, int], dict[str, Any]]


def interventions(*units: Unit, kind: Any = "context") -> Interventions:
    """A unit is its query, its clicks by position (each shown ten times), and its context."""
    rows = [(i, q, k, c, x) for i, (q, clicks, x) in enumerate(units) for k, c in clicks.items()]
    unit, query, position, clicks, contexts = zip(*rows, strict=True)
    n = len(rows)
    names = contexts[0].keys()
    columns = {name: np.array([x[name] for x in contexts], dtype=object) for name in names}
    return Interventions(
        np.array(unit), np.array(query), np.array(position), np.full(n, 10.0), np.array(clicks),
        np.full(n, 10), columns, unit_kind=kind,
    )  # fmt: skip


def support_of(data: Interventions, positions: tuple[int, ...]) -> Any:
    encoder = ContextEncoder.fit(data.contexts)
    curve = Constant(positions, positions[0], len(encoder.feature_names))
    sample = make_sample(data, positions, encoder)
    return find_support(sample, curve, curve.init(np.random.default_rng(0)), encoder)


def test_a_level_is_linked_by_its_own_units_alone() -> None:
    phone, desk, tv, nowhere = ({"device": name} for name in ("phone", "desk", "tv", None))
    kinds: list[tuple[dict[int, int], dict[str, Any]]] = [
        ({1: 3, 2: 2}, phone), ({2: 2, 3: 1}, phone), ({1: 3, 2: 2}, desk),
        ({1: 3, 3: 0}, desk), ({2: 1, 3: 1}, tv), ({1: 0, 2: 0}, nowhere),
    ]  # fmt: skip
    data = interventions(*((f"{i} {j}", *kind) for i, kind in enumerate(kinds) for j in range(4)))
    (device,) = support_of(data, (1, 2, 3)).columns
    # Levels by frequency, ties by name, then missing. Desktops were shown at 3, but not clicked there; what links
    # 2 and 3 on televisions leads nowhere near the anchor; and nothing was clicked where the device is missing.
    assert device.linked == ((1, 2), (1, 2, 3), (1,), ())
    assert not device.rare


def test_a_level_needs_three_queries_of_its_own() -> None:
    phone, desk = {"device": "phone"}, {"device": "desk"}
    many = [(f"p{i}", {1: 3, 2: 2, 3: 1}, phone) for i in range(9)]
    # Three queries link 2 on desktops, two link 3.
    few = [(f"d{i}", {1: 3, 2: 2}, desk) for i in range(3)] + [(f"d{i}", {1: 3, 3: 2}, desk) for i in range(2)]
    (device,) = support_of(interventions(*many, *few), (1, 2, 3)).columns
    assert device.linked == ((1, 2, 3), (1, 2))


def test_where_contexts_vary_inside_units_a_level_has_its_own_rows() -> None:
    rows = interventions(*((f"q{i // 2}", {1: 3, 2: 2, 3: 1}, {"device": "x"}) for i in range(8)), kind="query")
    varying = replace(rows, unit=rows.unit // 2, contexts={"device": np.tile(["x", "x", "y", "x", "y", "y"], 4)})
    (device,) = support_of(varying, (1, 2, 3)).columns
    # On x a unit stands at 1 (twice) and 2, on y at 2 and 3.
    assert device.linked == ((1, 2), (1,))


def test_values_that_were_never_together_are_named() -> None:
    phone, desk = {"device": "phone"}, {"device": "desk"}
    units: list[Unit] = [(f"p{i}", {1: 3, 2: 2}, phone | {"pays": i % 2 == 0, "age": 20.0 + i}) for i in range(8)]
    units += [(f"d{i}", {1: 3, 2: 2}, desk | {"pays": False, "age": None if i else 30.0}) for i in range(6)]
    # Who was shown something and clicked nothing tells nothing.
    units.append(("d9", {1: 0, 2: 0}, desk | {"pays": True, "age": 30.0}))
    found = support_of(interventions(*units), (1, 2))
    # Columns: phone or desk, no or yes, an age or none.
    assert found.apart == ((0, 0, 2, 1), (0, 1, 1, 1), (1, 1, 2, 1))


def test_numbers_reach_as_far_as_five_queries_go() -> None:
    ages = [1e6, 60, 59, 58, 57, 56, 30, 24, 23, 22, 21, -5e5]
    data = interventions(*((f"q{i}", {1: 2, 2: 1}, {"age": age}) for i, age in enumerate(ages)))
    (age,) = support_of(data, (1, 2)).columns
    assert age.reach == pytest.approx((24.0, 57.0))
    # Of the same query many times over, an outlier stays one.
    again = interventions(*((f"q{i}", {1: 2, 2: 1}, {"age": a}) for i, a in enumerate(ages) for _ in range(9)))
    assert support_of(again, (1, 2)).columns[0].reach == pytest.approx((24.0, 57.0))
    # Where nothing was clicked, nothing is learned.
    silent = [(f"s{i}", {1: 0, 2: 0}, {"age": 900.0}) for i in range(9)]
    clicked = [(f"q{i}", {1: 2, 2: 1}, {"age": age}) for i, age in enumerate(ages)]
    assert support_of(interventions(*clicked, *silent), (1, 2)).columns[0].reach == pytest.approx((24.0, 57.0))


@pytest.mark.parametrize(("ages", "reach"), [([7.0], (7, 7)), ([1.0, 9.0], (1, 9)), ([1.0, 5.0, 9.0], (5, 5))])
def test_with_few_queries_numbers_reach_to_half_of_them(ages: list[float], reach: tuple[float, float]) -> None:
    data = interventions(*((f"q{i}", {1: 2, 2: 1}, {"age": age}) for i, age in enumerate(ages)))
    assert support_of(data, (1, 2)).columns[0].reach == pytest.approx(reach)


def test_effective_queries_are_those_of_equal_say() -> None:
    def queries(*units: Unit) -> tuple[float | None, ...]:
        sample = make_sample(interventions(*units), (1, 2, 3))
        return effective_queries(sample, 1, np.zeros((1, 3)))

    tail: list[Unit] = [(f"t{i}", {2: 50, 3: 50}, {}) for i in range(40)]
    even = queries(*((f"q{i}", {1: 1, 2: 1}, {}) for i in range(7)), *tail)
    assert even[0] is None
    assert even[1] == pytest.approx(7)
    # Shares of 100 and 4 times 10: (140)² / (100² + 4 · 10²).
    uneven = queries(*((f"q{i}", {1: 5, 2: 5}, {}) for i in range(4)), ("big", {1: 50, 2: 50}, {}), *tail)
    assert uneven[1] == pytest.approx(140**2 / (100**2 + 4 * 10**2))
    # Forty queries link 3 to 2, and one links 2 to the anchor: both rest on that one.
    bridge = queries(("only", {1: 1, 2: 1}, {}), *tail)
    assert bridge[1] == pytest.approx(1)
    assert bridge[2] is not None
    assert bridge[2] < 1.1
    # Several units of a query are one query.
    assert queries(*(("q", {1: 1, 2: 1}, {}) for _ in range(7)), *tail)[1] == pytest.approx(1)


def test_effective_queries_do_not_depend_on_the_order_nor_on_what_is_held_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(1)
    units: list[Unit] = []
    for i in range(60):
        first, second = sorted(random.choice([1, 2, 3], size=2, replace=False).tolist())
        device = ("phone", "desk")[int(random.integers(2))]
        units.append((f"q{i // 4}", {first: int(random.integers(1, 9)), second: 2}, {"device": device}))
    whole = support_of(interventions(*units), (1, 2, 3))
    mixed = [units[i] for i in random.permutation(len(units))]
    monkeypatch.setattr("clickharvest.estimation.cells.CACHED", 9)  # three units
    for some in (units, mixed):
        found = support_of(interventions(*some), (1, 2, 3))
        assert found.columns == whole.columns
        assert found.queries[1:] == pytest.approx(whole.queries[1:], rel=1e-12)


def test_estimators_tell_what_they_do_not_know() -> None:
    random = np.random.default_rng(5)
    units: list[Unit] = []
    for i in range(80):
        device = ("phone", "desk")[i % 2]
        first = int(random.integers(1, 4 if device == "desk" else 6))
        clicks = {first: int(random.integers(2, 9)), first + 1: int(random.integers(1, 5))}
        units.append((f"q{i}", clicks, {"device": device}))
    data = interventions(*units)
    model = CPBM(curve="linear").fit(data)
    found = model.predict({"device": ["phone", "desk", "tv"]})
    assert found.supported.tolist() == [[True] * 6, [True] * 4 + [False] * 2, [False] * 6]
    assert np.isfinite(found.propensity).all()
    assert "Not supported: device = desk at positions 5-6" in " ".join(str(model).split())
    alone = PBM().fit(data).propensities_
    assert alone.support is not None
    assert alone.support.columns == ()
    assert alone.predict().supported.all()


def home_page(users: int, phones: int, *, cluster: str) -> Any:
    """Return a model of a home page, of whose users some have phones; two rankings."""
    random = np.random.default_rng(0)
    pages, k = 20 * users, np.arange(1, 4)
    user, arm = np.arange(pages) // 20, random.integers(2, size=pages)
    doc = np.array([[0, 1, 2], [2, 0, 1]])[arm]
    clicks = random.random(doc.shape) < np.array([0.8, 0.5, 0.6])[doc] / k
    columns = {"user": user, "device": np.where(user < phones, "phone", "desk"), "query": np.zeros(pages, np.int64)}
    rows = {name: np.repeat(column, 3) for name, column in columns.items()}
    rows |= {"doc": doc.ravel(), "position": np.tile(k, pages), "click": clicks.ravel().astype(int)}
    log = read_log(pa.table(rows), context=["device"], user="user")
    return CPBM(curve="linear").fit(harvest(log, cluster=cluster)).propensities_


@pytest.mark.filterwarnings("ignore")
def test_values_are_supported_by_users_where_they_cluster() -> None:
    devices = {"device": ["phone", "desk"]}
    assert home_page(40, 20, cluster="user").predict(devices).supported.all()
    few = home_page(40, 2, cluster="user").predict(devices)
    assert few.supported[1].all()
    assert not few.supported[0, 1:].any()
    assert few.notes()[0, 1] == "device: too few users with this value link this position to the anchor"
    by_query = home_page(40, 20, cluster="query").predict(devices)
    assert not by_query.supported[:, 1:].any()
    assert by_query.notes()[0, 1] == "device: too few queries with this value link this position to the anchor"
