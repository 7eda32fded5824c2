"""Charts: their data are the model's numbers, and names from a log stay data."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from typing import Any

import altair as alt
import numpy as np
import pytest

import clickharvest
from clickharvest import plot_curves, plot_importance, plot_overlap
from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import flatten_params, make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.positions.places import Places
from clickharvest.report.importance import column_importance

CONTEXTS = {
    "device": ["phone", "phone", "desk", "phone", "watch", "desk"],
    "age": [20.0, 30.0, 40.0, 50.0, 60.0, 70.0],
    "pays": [True, False, False, False, True, False],
}
HOSTILE = '<script>alert("a.b[0]")</script>'


def linear_model(table: dict[str, list[object]], weights: dict[str, float], draws: bool = True) -> Propensities:
    """A linear curve over positions 1, 2, 4 in which a feature moves log p_2 by its weight and log p_4 by twice it."""
    encoder = ContextEncoder.fit(table)
    own = np.array([[weights.get(name, 0.0)] for name in encoder.feature_names])
    curve = make_curve("linear", (1, 2, 4), 1, len(own))
    params = {"b": np.log([0.5, 0.25]), "W": own @ np.array([[1.0, 2.0]])}
    spread = np.random.default_rng(0).normal(0, 0.1, (40, 2 + 2 * len(own))) if draws else None
    return Propensities(curve, params, encoder, (1, 2, 3, 4), draws=spread, draws_kind="bootstrap" if draws else None)


def rows(chart: alt.TopLevelMixin) -> list[dict[str, Any]]:
    """The data of a chart, in the specification that a notebook gets."""
    specification = chart.to_dict()
    return list(specification["datasets"][specification["data"]["name"]])


def test_curves_are_those_of_the_model() -> None:
    model = linear_model(CONTEXTS, {"device=phone": -0.3, "age": 0.1})
    contexts = {"device": ["phone", "desk"], "age": [30, 30], "pays": [True, True]}
    found = rows(plot_curves(model, contexts, level=0.9))
    expected = model.predict(contexts, level=0.9)
    assert [row["curve"] for row in found] == ["device = phone"] * 3 + ["device = desk"] * 3
    assert [row["position"] for row in found] == [1, 2, 4] * 2
    for name in ("propensity", "lower", "upper"):
        values = getattr(expected, name)[:, expected.supported[0]].ravel()
        np.testing.assert_allclose([row[name] for row in found], values, atol=1e-6)


def test_several_models_share_the_axes() -> None:
    model = linear_model(CONTEXTS, {"device=phone": -0.3}, draws=False)
    plain = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.4])}, None, (1, 2))
    found = rows(plot_curves({"CPBM": model, "PBM": plain}, {"device": ["phone"], "age": [30], "pays": [True]}))
    assert {row["curve"] for row in found} == {"CPBM, context", "PBM"}
    assert all(row["lower"] is None for row in found)
    typical = rows(plot_curves({"CPBM": model, "PBM": plain}))
    assert {row["curve"] for row in typical} == {"CPBM", "PBM"}


def test_equal_contexts_keep_a_curve_each() -> None:
    model = linear_model(CONTEXTS, {})
    found = rows(plot_curves(model, {name: column[:1] * 2 for name, column in CONTEXTS.items()}))
    assert [row["curve"] for row in found[::3]] == ["context (1)", "context (2)"]


def test_hostile_names_are_data() -> None:
    model = linear_model({HOSTILE: ["a", "b"], "x": [1, 2]}, {f"{HOSTILE}=a": 0.5})
    curves, bars = plot_curves(model, {HOSTILE: ["a", "b"], "x": [1, 1]}), plot_importance(model)
    encodings = [part["encoding"] for part in (*curves.to_dict()["layer"], bars.to_dict())]
    fields = {channel["field"] for encoding in encodings for channel in encoding.values() if "field" in channel}
    assert fields == {"position", "propensity", "lower", "upper", "curve", "column", "effect"}
    assert {row["curve"] for row in rows(curves)} == {f"{HOSTILE} = a", f"{HOSTILE} = b"}
    assert rows(bars)[0]["column"] == HOSTILE


@pytest.mark.parametrize("log", [False, True])
def test_charts_render_offline(log: bool) -> None:
    import vl_convert

    chart = plot_curves(linear_model(CONTEXTS, {"age": 0.1}), log=log)
    picture = vl_convert.vegalite_to_svg(chart.to_dict())
    assert "examination relative to position 1" in picture


def test_what_cannot_be_plotted_is_said() -> None:
    with pytest.raises(InputError, match="expected Propensities or a fitted estimator"):
        plot_curves("model")
    with pytest.raises(InputError, match="no model to plot"):
        plot_curves({})
    plain = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.4])}, None, (1, 2))
    with pytest.raises(InputError, match="has no context"):
        plot_importance(plain)


def test_overlap_is_that_of_the_diagnosis() -> None:
    interventions = Interventions(
        unit=np.array([0, 0, 1, 1, 2, 2]),
        query=np.array(["q"] * 6),
        position=np.array([1, 2, 1, 2, 3, 4]),
        exposure=np.array([3.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        clicks=np.array([2, 1, 0, 1, 1, 1]),
        impressions=np.array([3, 1, 1, 1, 1, 1]),
    )
    chart = plot_overlap(interventions)
    assert chart.to_dict()["title"]["subtitle"] == "Not linked to position 1: 3-4"
    effective = {(row["position"], row["other"]): row["effective"] for row in rows(chart)}
    assert effective == {(1, 2): 3 * 4 * 0.75 * 0.25 + 1 * 4 * 0.5 * 0.5, (3, 4): 2.0}
    assert rows(plot_overlap(diagnose(interventions))) == rows(chart)


def test_importance_is_its_formula() -> None:
    """log p_2 moves by the weight, log p_4 by twice it: on average by 1.5 times the weight."""
    weights = {"device=phone": -0.3, "device=desk": 0.2, "age": 0.1, "pays": 0.4}
    found = {i.column: i.effect for i in column_importance(linear_model(CONTEXTS, weights), CONTEXTS)}
    value = {"phone": (-0.3, 3 / 6), "desk": (0.2, 2 / 6), "watch": (0.0, 1 / 6)}
    pairs = list(combinations(value.values(), 2))
    device = sum(f * g * abs(a - b) for (a, f), (b, g) in pairs) / sum(f * g for (_, f), (_, g) in pairs)
    assert found["device"] == pytest.approx(1.5 * device)
    assert found["pays"] == pytest.approx(1.5 * 0.4)


def test_importance_of_numbers_goes_by_quantiles_or_by_values() -> None:
    many = {"age": list(np.linspace(0, 100, 101)), "rare": [1.0] * 3 + [0.0] * 98}
    model = linear_model(many, {"age": 0.2, "rare": -0.1})
    found = {i.column: i.effect for i in column_importance(model, many)}
    assert found["age"] == pytest.approx(1.5 * 0.2 * 80 / np.std(many["age"]))
    # Both quantiles of a rare 1 are 0, but it has only two values to compare.
    assert found["rare"] == pytest.approx(1.5 * 0.1 / np.std(many["rare"]))
    without = {i.column: i.effect for i in column_importance(model)}
    assert without["age"] == pytest.approx(1.5 * 0.2 * 2 * 1.2815515655446004)


def test_importance_is_sorted_and_cut() -> None:
    model = linear_model(CONTEXTS, {"device=phone": -0.3, "age": 0.1})
    found = rows(plot_importance(model, CONTEXTS, top=2))
    assert len(found) == 2
    assert found[0]["effect"] > found[1]["effect"] > 0
    assert found[0]["factor"] == pytest.approx(np.exp(found[0]["effect"]))


def test_bars_that_may_be_chance_are_hollow() -> None:
    model = linear_model(CONTEXTS, {"device=phone": -0.1})
    middle = flatten_params(model.params)
    clear = replace(model, draws=middle + np.random.default_rng(0).normal(0, 0.01, (40, len(middle))))
    for own, expected in ((model, False), (clear, True)):
        assert rows(plot_importance(own, CONTEXTS))[0]["beyond chance"] is expected
    assert plot_importance(model).to_dict()["encoding"]["fillOpacity"]["value"] == 0


def test_charts_are_exported_and_import_nothing_heavy() -> None:
    assert {"plot_curves", "plot_overlap", "plot_importance"} <= set(clickharvest.__all__)
    script = "import sys, clickharvest.report.charts; print([m for m in ('altair', 'ibis') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_places_are_drawn_by_their_names_without_a_line() -> None:
    places = Places.of(("slot",), [("top",), ("side",)])
    curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
    chart = plot_curves(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), places=places))
    assert [row["position"] for row in chart.data.values] == ["slot side", "slot top"]
    assert [layer["mark"]["type"] for layer in chart.to_dict()["layer"]] == ["rule", "circle"]
    interventions = Interventions(
        unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]), exposure=np.ones(2),
        clicks=np.array([1, 1]), impressions=np.ones(2, dtype=int), places=places,
    )  # fmt: skip
    assert plot_overlap(interventions).data.values[0]["other"] == "slot top"
