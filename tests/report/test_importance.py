from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import flatten_params, make_curve
from clickharvest.model.propensities import DrawsKind, Propensities
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.report.importance import column_importance, contrast_columns, movement, rank_columns
from clickharvest.report.values import column_values, typical_query


def complex_queries(
    support: Support | None = None, less: Sequence[float] = (0.8, 0.5), sd: float | None = 0.01
) -> Propensities:
    """A model in which complex queries, 28 % of all, are read less far down, by these factors."""
    encoder = ContextEncoder.fit({"complex": [True] * 28 + [False] * 72})
    curve = make_curve("linear", (1, 2, 5), 1, 1)
    params = {"b": np.log([0.6, 0.3]), "W": np.log([less])}
    draws = None
    if sd is not None:
        draws = flatten_params(params) + sd * np.random.default_rng(0).normal(size=(400, 4))
    kind: DrawsKind | None = None if sd is None else "bootstrap"
    return Propensities(curve, params, encoder, (1, 2, 5), draws, kind, support=support)


def moved(model: Propensities) -> str:
    columns = column_values(model)
    contrasts = contrast_columns(model, columns)
    return movement(model, columns, rank_columns(model, columns, None, contrasts), contrasts)


def test_sentences_speak_of_complex_queries_not_of_columns() -> None:
    model = complex_queries()
    assert typical_query(column_values(model)) == "28 % complex"
    told = moved(model)
    assert told.startswith("It depends on complex: queries that are not complex are read further down than complex que")
    found = re.search(
        r"position 5 is looked at 0.30 \((.*) to (.*)\) times as often as position 1 there, against", told
    )
    assert found is not None
    assert 0.28 < float(found[1]) < 0.30 < float(found[2]) < 0.32
    assert "=" not in told


def test_a_curve_that_ignores_the_context_does_not_say_that_it_hardly_matters() -> None:
    """Such a curve is chosen where a log is too small to tell contexts apart."""
    encoder = ContextEncoder.fit({"complex": [True] * 28 + [False] * 72})
    model = Propensities(make_curve("constant", (1, 2), 1, 1), {"b": np.log([0.6])}, encoder, (1, 2))
    assert moved(model) == "All queries get this one curve, whatever their context."


def test_what_chance_might_make_is_not_said_to_depend_on_context() -> None:
    model = complex_queries(sd=0.4)
    assert moved(model) == (
        "The log cannot tell which queries are read further down: no two values of complex differ by more than chance."
    )
    assert [own.clear for own in column_importance(model)] == [False]
    assert [own.clear for own in column_importance(complex_queries())] == [True]
    assert "without intervals the difference may be chance" in moved(complex_queries(sd=None))


def test_what_is_not_supported_is_not_told() -> None:
    for of_others, expected in (
        ((1, 2), "It depends on complex: queries that are not complex are read further down than complex queries; "),
        ((1,), "Curves differ by context, but the log cannot tell by how much."),
    ):
        model = complex_queries(Support((ColumnSupport((of_others, (1, 2, 5))),), (None, 80.0, 80.0)))
        assert moved(model).startswith(expected)
        assert ("position 2 is looked at" in moved(model)) == (len(of_others) == 2)


def test_how_much_context_moves_is_told_where_it_moves_most_clearly() -> None:
    """Below a fold, where it comes early or late, everybody looks alike, or even the other way round."""
    for less, more in ((0.9, "are read further down than"), (1.1, "look more at position 2 than")):
        told = moved(complex_queries(less=(0.5, less)))
        assert f"queries that are not complex {more} complex queries; position 2 is looked at 0.60" in told


def test_who_reads_further_down_is_told_relative_to_any_position() -> None:
    """The last position as the anchor: who looks at the top more often, compared with it, reads less far."""
    for anchor, where in ((1, "position 5 is looked at 0.30"), (5, "position 1 is looked at 3.33")):
        model = complex_queries()
        b, w = (np.append(0.0, model.params[name].ravel()) for name in ("b", "W"))
        at = model.curve.positions.index(anchor)
        b, w = (np.delete(part - part[at], at) for part in (b, w))
        flat = flatten_params({"b": b, "W": w[None]})
        draws = flat + 0.01 * np.random.default_rng(0).normal(size=(400, 4))
        told = moved(
            replace(model, curve=replace(model.curve, anchor=anchor), params={"b": b, "W": w[None]}, draws=draws)
        )
        assert told.startswith(
            f"It depends on complex: queries that are not complex are read further down than complex queries; {where}"
        )


def test_a_model_of_purchases_does_not_speak_of_looking() -> None:
    bought = replace(complex_queries(), info={"outcome": "purchase"})
    assert moved(bought).startswith("It depends on complex: a click at position 5 leads to purchase 0.30 (")
    assert moved(bought).endswith("times for complex queries.")
    assert moved(replace(complex_queries(sd=0.4), info={"outcome": "purchase"})).startswith(
        "The log cannot tell after which queries' clicks purchase depends more on the position: "
    )
