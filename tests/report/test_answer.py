from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import flatten_params, make_curve
from clickharvest.model.propensities import DrawsKind, Propensities
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.report.answer import headlines, lead, movement
from clickharvest.report.importance import column_importance, contrast_columns, rank_columns
from clickharvest.report.phrases import likely, spell
from clickharvest.report.values import column_values
from command_line import Command


@pytest.fixture
def model() -> Propensities:
    draws = np.log([0.5, 0.2]) + np.random.default_rng(0).normal(scale=0.3, size=(400, 2))
    curve = make_curve("constant", (1, 2, 3), anchor=1, n_features=0)
    return Propensities(curve, {"b": np.log([0.5, 0.2])}, None, (1, 2, 3), draws=draws, draws_kind="bootstrap")


def interval(model: Propensities, level: float) -> str:
    """Return the words of the interval at position 2."""
    predicted = model.predict(level=level)
    return f"({spell(predicted.lower[0, 1])} to {spell(predicted.upper[0, 1])})"


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_the_answer_has_the_interval_of_the_level(model: Propensities, level: float) -> None:
    assert interval(model, level) in headlines(model, level)[0].exact
    assert lead(model, [], level).endswith(f"with {100 * level:g} % intervals:")
    assert interval(model, 0.5) != interval(model, 0.8) != interval(model, 0.95)


def test_an_answer_without_numbers_says_so(model: Propensities) -> None:
    chosen = replace(model, info={"by_folds": True}, support=Support((), (None, 80.0, 80.0)))
    assert not headlines(chosen)
    assert lead(chosen, []).endswith("intervals: nothing here can tell.")


def test_the_level_of_the_command_line_reaches_the_answer(model: Propensities, run: Command, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    assert run("report model.safetensors --level 0.5 -o report.html")[0] == 0
    text = re.sub(r"\s+", " ", (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert interval(model, 0.5) in text
    assert interval(model, 0.95) not in text


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
    assert lead(model, column_values(model)).endswith("for a typical query (28 % complex), with 95 % intervals:")
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
    expected = "All queries get this one curve, whatever their context: the checks say whether contexts differ."
    assert moved(model) == expected


def test_what_chance_might_make_is_not_said_to_depend_on_context() -> None:
    model = complex_queries(sd=0.4)
    assert moved(model) == (
        "Which queries are read further down the log cannot tell: no two values of complex differ by more than chance "
        "might make them."
    )
    assert [own.clear for own in column_importance(model)] == [False]
    assert [own.clear for own in column_importance(complex_queries())] == [True]
    assert "without error bars nothing tells" in moved(complex_queries(sd=None))


def test_what_is_not_supported_is_not_told() -> None:
    for of_others, expected in (
        ((1, 2), "It depends on complex: queries that are not complex are read further down than complex queries; "),
        ((1,), "Curves differ by context, but the log cannot tell by how much."),
    ):
        model = complex_queries(Support((ColumnSupport((of_others, (1, 2, 5))),), (None, 80.0, 80.0)))
        assert moved(model).startswith(expected)
        assert ("position 2 is looked at" in moved(model)) == (len(of_others) == 2)
        assert [headline.where for headline in headlines(model)] == ["position 2"] * (len(of_others) - 1)


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
        "After which queries' clicks purchase depends more on the position the log cannot tell: "
    )


def test_an_interval_that_spans_a_factor_of_ten_is_no_headline() -> None:
    curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
    for sd, words in ((0.1, "about half as likely"), (1.0, "cannot tell")):
        draws = np.log(0.5) + sd * np.array([[-1.0], [0.0], [1.0]])
        model = Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), draws, "bootstrap")
        assert headlines(model)[0].words == words


@pytest.mark.parametrize("ratio", np.geomspace(0.001, 50, 60))
def test_round_words_are_near_the_number(ratio: float) -> None:
    words = likely(ratio)
    parts = {"a tenth": 0.1, "an eighth": 0.125, "a sixth": 1 / 6, "a fifth": 0.2, "a quarter": 0.25, "a third": 1 / 3}
    parts |= {
        "three tenths": 0.3,
        "two fifths": 0.4,
        "half": 0.5,
        "three fifths": 0.6,
        "two thirds": 2 / 3,
        "three quarters": 0.75,
    }
    parts |= {"four fifths": 0.8, "nine tenths": 0.9, "as likely": 1.0}
    if number := re.search(r"[\d.,]+", words):
        value = float(number[0].replace(",", ""))
        value = 1 / value if "less" in words else value
    else:
        value = next(part for name, part in parts.items() if name in words)
    assert value == pytest.approx(ratio, rel=0.13)
