"""Support worked by hand: what is told of values, numbers and positions, by a model, its file and the commands."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.model.cautions import tell_cautions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.model.storage import read_file, write_file
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.model.typical import typical_context, typical_names
from clickharvest.report.values import column_values
from command_line import run

LOG = {"device": ["phone", "phone", "desk", None], "age": [20.0, 60.0, 40.0, 40.0], "pays": [True, False, True, True]}
DEVICE = ColumnSupport(((1, 2, 3), (1, 2), (1, 3)))
AGE = ColumnSupport(((1, 2, 3),), reach=(20.0, 60.0))
PAYS = ColumnSupport(((), (1, 2, 3)))
FINE = {"device": "phone", "age": 40, "pays": True}


def a_model(**changes: Any) -> Propensities:
    """Positions 1 to 3 are linked, 4 is not; position 2 rests on three queries and 3 on hundreds."""
    encoder = ContextEncoder.fit(LOG)
    curve = make_curve("linear", (1, 2, 3), 1, len(encoder.feature_names))
    params = {"b": np.log([0.5, 0.3]), "W": np.full((len(encoder.feature_names), 2), 0.1)}
    flat = np.concatenate([params["W"].ravel(), params["b"]])
    draws = np.stack([flat - 0.01, flat, flat + 0.01])
    support = Support((DEVICE, AGE, PAYS), (None, 3.2, 300.0))
    made = Propensities(curve, params, encoder, (1, 2, 3, 4), draws, "clustered", support=support)
    return replace(made, **changes)


def predict(**value: Any) -> Any:
    return a_model().predict({name: [v] for name, v in (FINE | value).items()})


@pytest.mark.parametrize(
    ("value", "supported", "why"),
    [
        ({}, [1, 1, 1, 0], None),
        (
            {"device": "desk"},
            [1, 1, 0, 0],
            "device: too few queries with this value link this position to the anchor",
        ),
        ({"device": None}, [1, 0, 1, 0], None),
        ({"device": "tv"}, [0, 0, 0, 0], "device: a value that training never had"),
        ({"age": 79.9}, [1, 1, 1, 0], None),
        ({"age": 80.1}, [0, 0, 0, 0], "age: far outside of what training had, 20 to 60"),
        ({"age": 0.1}, [1, 1, 1, 0], None),
        ({"age": -0.1}, [0, 0, 0, 0], "age: far outside of what training had, 20 to 60"),
        ({"age": None}, [0, 0, 0, 0], "age: missing, as it never was in training"),
        ({"pays": False}, [0, 0, 0, 0], "pays: a value that training had no clicks with"),
        ({"pays": None}, [0, 0, 0, 0], "pays: missing, as it never was in training"),
        ({"device": "desk", "age": 500}, [0, 0, 0, 0], "device: too few queries with this value link this position"),
    ],
)
def test_a_context_is_supported_where_data_speak_of_it(value: Any, supported: list[int], why: str | None) -> None:
    found = predict(**value)
    assert found.supported.astype(int).tolist() == [supported]
    np.testing.assert_array_equal(np.isfinite(found.lower), found.supported)
    np.testing.assert_array_equal(np.isfinite(found.upper), found.supported)
    # The number stays: it is the position alone that takes it away.
    assert np.isfinite(found.propensity).tolist() == [[True, True, True, False]]
    notes = found.notes()[0]
    assert notes[3] == "nothing links this position to position 1"
    if why is not None:
        assert notes[2].startswith(why)


def test_a_value_too_rare_for_a_feature_is_told_so() -> None:
    encoder = ContextEncoder.fit({"city": ["a"] * 9 + ["b"] * 9 + ["c"]}, max_levels=2)
    support = Support((ColumnSupport(((1, 2), (1, 2)), rare=True),), (None, 9.0))
    (doubt,) = support.doubts(encoder, encoder.transform({"city": ["a", "c", "z"]}), (1, 2))
    assert doubt.where.tolist() == [[False], [True], [True]]
    assert doubt.why == "city: a value that training never had, or too rarely for an estimate of its own"
    alike = ContextEncoder.fit({"city": ["a", "b"]}, min_count=2)
    (doubt,) = Support((ColumnSupport(()),), (None, 9.0)).doubts(alike, alike.transform({"city": ["a"]}), (1, 2))
    assert doubt.where.tolist() == [[True]]


def test_what_lies_between_no_and_yes_counts_as_the_nearer_one() -> None:
    model = a_model()
    assert model.encoder is not None
    x = model.encoder.transform({name: [v] for name, v in FINE.items()})
    for share, supported in ((1.0, True), (0.6, True), (0.4, False)):
        x[0, model.encoder.feature_names.index("pays")] = share
        assert model.predict_encoded(x).supported[0, :3].tolist() == [supported] * 3


def test_without_support_positions_alone_tell(tmp_path: Path) -> None:
    older = a_model(support=None)
    odd = {"device": ["tv"], "age": [1e6], "pays": [None]}
    assert older.predict(odd).supported.tolist() == [[True, True, True, False]]
    assert older.predict(odd | {"age": [30.0]}).notes()[0, :3].tolist() == [None] * 3
    older.save(tmp_path / "older.safetensors")
    assert "support" not in read_file(tmp_path / "older.safetensors")[0]
    assert load_propensities(tmp_path / "older.safetensors").support is None


def test_a_file_keeps_the_support(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    a_model().save(path)
    assert load_propensities(path).support == a_model().support


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"queries": [None, 3.0]}, "2 positions, the curve 3"),
        ({"queries": [None, math.nan, 3.0]}, "not finite"),
        ({"columns": []}, "other columns or values than the encoder"),
        (
            {"columns": [{"linked": [[1]], "rare": False, "reach": None}] * 3},
            "other columns or values than the encoder",
        ),
        ({"columns": [{"linked": "no"}]}, "damaged"),
        ({"columns": 3}, "damaged"),
        ({"apart": [[0, 0, 0, 1]]}, "never together of columns that it does not have"),
        ({"apart": [[0, 3, 2, 0]]}, "never together of columns that it does not have"),
        ({"apart": [[0, 1, 2]]}, "damaged"),
    ],
)
def test_a_forged_support_is_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    a_model().save(path)
    header, tensors = read_file(path)
    del header["format"]
    write_file(path, header | {"support": header["support"] | change}, tensors)
    with pytest.raises(InputError, match=told):
        load_propensities(path)


def test_values_that_were_never_together_are_not_supported_together(tmp_path: Path) -> None:
    every = (1, 2, 3)
    columns = (ColumnSupport((every,) * 3), AGE, ColumnSupport((every, every)))
    # Levels are phone, desk and missing: desks never pay, and where the device is missing the age never is known.
    support = Support(columns, (None, 80.0, 80.0), apart=((0, 1, 2, 1), (0, 2, 1, 0)))
    a_model(support=support).save(tmp_path / "model.safetensors")
    model = load_propensities(tmp_path / "model.safetensors")
    assert model.support == support
    asked = {"device": ["desk", "desk", "phone", None], "age": [40] * 4, "pays": [True, False, True, False]}
    found = model.predict(asked)
    assert found.supported[:, :3].all(axis=1).tolist() == [False, True, True, False]
    assert found.notes()[0, 1] == "device and pays: values that training never had together"
    assert found.notes()[3, 1] == "device and age: values that training never had together"
    np.testing.assert_array_equal(np.isfinite(found.lower), found.supported)


def test_the_typical_context_is_one_that_occurs() -> None:
    """The most frequent country, of which the most frequent city is not one."""
    encoder = ContextEncoder.fit({"country": ["us"] * 3 + ["de"] * 2, "city": ["york", "bend", "reno", "ulm", "ulm"]})
    assert [part.levels[0] for part in encoder.parts] == ["us", "ulm"]
    columns = tuple(ColumnSupport(((1, 2),) * len(part.levels)) for part in encoder.parts)
    city = {name: i for i, name in enumerate(encoder.parts[1].levels)}
    apart = ((0, 0, 1, city["ulm"]), *((0, 1, 1, city[name]) for name in ("bend", "reno", "york")))
    curve = make_curve("power", (1, 2), 1, len(encoder.feature_names))
    params = {"a": np.ones(1), "w": np.zeros((len(encoder.feature_names), 1))}
    model = Propensities(curve, params, encoder, (1, 2), support=Support(columns, (None, 80.0), apart))
    assert "(country = us, city = bend)" in " ".join(str(model).split())
    assert model.predict_encoded(typical_context(model)).supported.all()
    de = typical_context(model, (0, [0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(de, encoder.transform({"country": ["de"], "city": ["ulm"]}))
    reno = encoder.transform({"country": ["us"], "city": ["reno"]})
    np.testing.assert_array_equal(typical_context(model, (3, reno[0, 3:])), reno)
    without = replace(model, support=replace(model.support, apart=()) if model.support else None)
    np.testing.assert_array_equal(typical_context(without), encoder.transform({"country": ["us"], "city": ["ulm"]}))


def test_an_average_of_yes_and_no_is_together_with_all() -> None:
    support = Support(
        (DEVICE, AGE, ColumnSupport(((1, 2), (1, 2)))), (None, 80.0, 80.0), apart=((0, 0, 2, 0), (0, 0, 2, 1))
    )
    model = a_model(support=support)
    assert model.predict_encoded(typical_context(model)).supported[0, :2].all()
    assert not model.predict({"device": ["phone"], "age": [40], "pays": [True]}).supported.any()


def free_model(sd: float, queries: float, kind: Any = "clustered") -> Propensities:
    b = np.log([0.5, 0.3])
    draws = b + sd * np.array([[-1, 0], [1, 0], [0, -0.01], [0, 0.01]])
    curve = make_curve("constant", (1, 2, 3), 1, 0)
    return Propensities(curve, {"b": b}, None, (1, 2, 3), draws, kind, support=Support((), (None, queries, 60.0)))


def test_the_summary_says_cannot_tell_beside_absurd_intervals() -> None:
    text = str(free_model(40.0, 9.0))
    assert "       2      0.5000  0.0000 to over 1,000  cannot tell\n" in text
    assert "Cannot tell at position 2: may be off by more than a factor of two." in text
    assert "e+" not in text
    assert "cannot tell" not in str(free_model(0.1, 9.0)).lower()


def test_a_position_on_few_queries_is_flagged_beside_its_interval() -> None:
    text = str(free_model(0.1, 2.4))
    assert "rests on 2 queries" in next(line for line in text.splitlines() if line.startswith("       2 "))
    assert "Position 2 rests on 2 queries: with fewer than 5" in text
    assert "rests on" not in str(free_model(0.1, 4.6))
    assert free_model(0.1, 2.4).predict().supported.all()


@pytest.mark.parametrize("kind", ["bootstrap", "sandwich"])
def test_intervals_that_are_blind_to_single_queries_are_not_given_for_few(kind: str) -> None:
    found = free_model(0.1, 2.4, kind).predict()
    assert found.supported.tolist() == [[True, False, True]]
    assert np.isnan(found.upper[0, 1])
    assert found.notes()[0, 1] == f"rests on fewer than 50 queries, too few for {kind} intervals"
    assert free_model(0.1, 50.0, kind).predict().supported.all()


def test_intervals_that_are_blind_to_shrinkage_are_not_given_where_it_counts() -> None:
    blind = free_model(0.1, 80.0, "sandwich")
    found = replace(blind, info={"shrunk": [0.0, 0.1, 0.4]}).predict()
    assert found.supported.tolist() == [[True, True, False]]
    assert found.notes()[0, 2] == "the penalty shrinks the estimate by more than sandwich intervals allow for"
    assert replace(blind, draws_kind="clustered", info={"shrunk": [0.0, 0.1, 0.4]}).predict().supported.all()
    for damaged in ("much", ["much"] * 3, None):
        assert replace(blind, info={"shrunk": damaged}).predict().supported.all()


@pytest.mark.parametrize("kind", ["bootstrap", "sandwich"])
def test_intervals_that_do_not_count_a_choice_are_not_given_where_folds_made_one(kind: str) -> None:
    chosen = replace(free_model(0.1, 80.0, kind), info={"by_folds": True})
    found = chosen.predict()
    assert found.supported.tolist() == [[True, False, False]]
    assert found.notes()[0, 1] == f"cross-validation chose curve or penalty, which {kind} intervals ignore"
    assert replace(chosen, draws_kind="clustered").predict().supported.all()
    assert replace(chosen, info={"by_folds": False}).predict().supported.all()
    bare = replace(chosen, draws=None, draws_kind=None)
    assert bare.predict().supported.tolist() == [[True, False, False]]
    assert replace(bare, info={}).predict().supported.all()


def test_the_summary_shows_no_number_of_an_unsupported_context_as_supported() -> None:
    text = " ".join(str(a_model()).split())
    assert "(? cannot tell):" in text
    assert re.search(r"device = phone 0\.\d+ 0\.\d+ device = desk 0\.\d+ \? device is missing \? 0\.\d+ age", text)
    assert re.search(r"pays = no \? \? pays = yes 0\.\d+ 0\.\d+ ", text)
    told = "Not supported: device = desk at position 3; device = missing at position 2; pays = no at positions 1-3."
    assert told in text
    assert len(tell_cautions(a_model(support=None), a_model(support=None).predict_encoded(np.zeros((1, 6))))) == 1


def missing_model(columns: dict[str, Any], support: Support | None = None) -> Propensities:
    """Two positions, and contexts as given."""
    encoder = ContextEncoder.fit(columns)
    n = len(encoder.feature_names)
    params = {"b": np.log([0.5]), "W": np.full((n, 1), 0.1)}
    draws = np.append(np.full(n, 0.1), np.log(0.5)) + np.array([[-0.01], [0.0], [0.01]])
    return Propensities(
        make_curve("linear", (1, 2), 1, n), params, encoder, (1, 2), draws, "clustered", support=support
    )


def typical_of(model: Propensities) -> tuple[list[str], list[float]]:
    return list(typical_names(model)), typical_context(model)[0].round(2).tolist()


def test_the_typical_value_is_a_missing_one_where_that_is_most_frequent() -> None:
    nan = np.nan
    mostly = {"kind": ["x", None, None], "age": [30.0, nan, nan], "pays": [None, True, None]}
    names, x = typical_of(missing_model(mostly))
    assert (names, x) == (["kind is missing", "age is missing", "pays is missing"], [0, 0, 1, 0, 1, 0, 1])
    as_often = {"kind": ["x", None], "age": [30.0, nan], "pays": [None, True]}
    names, x = typical_of(missing_model(as_often))
    assert (names, x) == (["kind = x", "age = 30", "pays = yes in 100%"], [1, 0, 0, 0, 0, 1, 0])
    between = {"kind": ["x"] * 3 + [None] * 2 + ["y"]}
    assert typical_of(missing_model(between))[0] == ["kind = x"]
    nothing = {"kind": [None, None], "age": np.array([nan, nan])}
    assert typical_of(missing_model(nothing))[0] == ["kind is missing", "age is missing"]


def test_a_missing_value_is_typical_where_the_more_frequent_ones_never_came_with_the_others() -> None:
    """Phones, of which there are most, never told an age, though most of all do; desks all did."""
    columns = {"device": ["phone"] * 3 + ["desk"] * 4, "age": [np.nan] * 2 + [30.0] + [20.0, 40.0, 30.0, 30.0]}
    both, own = ColumnSupport(((1, 2), (1, 2))), ColumnSupport(((1, 2), (1, 2)), reach=(20.0, 40.0))
    # Of device 0 is desk and 1 phone; of age 0 is any number and 1 none.
    assert typical_of(missing_model(columns, Support((both, own), (None, 40.0))))[0] == ["device = desk", "age = 30"]
    apart = Support((both, own), (None, 40.0), ((0, 0, 1, 0),))
    assert typical_of(missing_model(columns, apart))[0] == ["device = desk", "age is missing"]


def test_a_model_whose_rows_mostly_have_no_value_is_judged_by_those(tmp_path: Path) -> None:
    """One row in a thousand has the value x, which nothing links: what is typical is that there is none."""
    columns = {"kind": ["x"] + [None] * 999}
    support = Support((ColumnSupport(((), (1, 2))),), (None, 300.0))
    model = missing_model(columns, support)
    assert model.predict_encoded(typical_context(model)).supported.all()
    text = " ".join(str(model).split())
    assert "in a typical context (kind is missing)" in text
    assert re.search(r"kind = x \? kind is missing 0\.\d+", text)
    (column,) = column_values(model)
    assert column.typical in column.choices
    assert column.is_missing(column.typical)
    assert column.typical.share > 0
    model.save(tmp_path / "m.safetensors")
    assert typical_of(load_propensities(tmp_path / "m.safetensors")) == typical_of(model)


def test_a_file_that_does_not_tell_how_often_values_were_missing_has_the_typical_context_it_had(tmp_path: Path) -> None:
    columns = {"kind": ["x", None, None], "age": [30.0, np.nan, np.nan], "pays": [None, True, None]}
    model = missing_model(columns)
    model.save(tmp_path / "new.safetensors")
    header, tensors = read_file(tmp_path / "new.safetensors")
    for column in header["encoder"]["columns"]:
        assert column.pop("missing_rank") == 0
    write_file(tmp_path / "old.safetensors", header, tensors)
    old = load_propensities(tmp_path / "old.safetensors")
    assert typical_of(old) == (["kind = x", "age = 30", "pays = yes in 100%"], [1, 0, 0, 0, 0, 1, 0])
    for name in ("kind", "age", "pays"):
        table = columns | {name: [None] * 3}
        np.testing.assert_array_equal(old.predict(table).propensity, model.predict(table).propensity)


def test_columns_of_one_value_are_no_contexts_that_differ() -> None:
    """Nor is a number that differs by rounding; numbers that differ late are told apart."""
    every = ColumnSupport(((1, 2),), reach=(3.0, 3.0))
    one = missing_model(
        {"const": ["x"] * 3, "three": [3.0] * 3}, Support((ColumnSupport(((1, 2),)), every), (None, 40.0))
    )
    assert "differ from it" not in str(one)
    assert "differ from it" not in str(missing_model({"yes": [True] * 3, "sum": [0.3, 0.1 + 0.2, 0.3]}))
    text = str(missing_model({"const": ["x"] * 2, "seconds": [1_760_000_000, 1_760_000_200]}))
    assert "seconds = 1.76e+09" in text
    assert "seconds = 1.7600002e+09" in text
    assert "const" not in text.partition("differ from it")[2]


def test_positions_that_are_odd_are_told() -> None:
    model = free_model(0.1, 60.0)
    (told,) = tell_cautions(replace(model, info={"odd": [2, 9]}), model.predict())
    assert told.startswith("Position 2 does not follow the curve of the others")
    (both,) = tell_cautions(replace(model, info={"odd": [2, 3]}), model.predict())
    assert both.startswith("Positions 2-3 do not follow")
    for damaged in ("2", [["2"]], None, {}):
        assert tell_cautions(replace(model, info={"odd": damaged}), model.predict()) == []


def test_positions_that_are_odd_in_some_contexts_are_told() -> None:
    """By the kind of a context: a level, a yes, a number, a value that is missing; damaged files say nothing."""
    model = replace(a_model(), support=None)

    def told(odd_in: object, odd: object = None) -> list[str]:
        other = replace(model, info={"odd_in": odd_in, "odd": odd})
        return [one for one in tell_cautions(other, other.predict_encoded(np.zeros((1, 6)))) if "the curve of" in one]

    (one,) = told({"device=phone": [2], "device=tv": [3], "pays": [9]})
    assert one.startswith("Position 2 where device = phone does not follow the curve of the others")
    (all_kinds,) = told({"pays": [1, 3], "age": [2], "device is missing": [3]}, [2])
    assert all_kinds.startswith(
        "Position 2; position 3 where device is missing; position 2 as age changes; positions 1, 3 where pays = yes do "
    )
    for damaged in ("2", [["2"]], {"pays": 2}, {"pays": [[2]]}, {"pays": "2"}):
        assert told(damaged) == []


def test_commands_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, contexts = tmp_path / "model.safetensors", tmp_path / "contexts.csv"
    a_model().save(model)
    contexts.write_text("device,age,pays,note\nphone,40,true,mine\ntv,40,true,mine\n")
    assert run("propensities", model, contexts) == 0
    out = capsys.readouterr().out
    assert "2 rows: device: a value that training never had." in out
    assert "Position 2 rests on 3 queries" in out
    assert run("propensities", model, contexts, "-o", tmp_path / "p.csv") == 0
    assert "2 rows: device: a value that training never had." in capsys.readouterr().out
    assert run("propensities", model, contexts, "-o", tmp_path / "p.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)["doubts"] == {"device: a value that training never had": 2}
    contexts.write_text("device,age,pays\nphone,40,true\ntv,40,true\n")
    assert run("propensities", model, contexts, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["note"] for row in rows[1:3]] == ["rests on 3 queries", None]
    assert rows[5]["note"] == "device: a value that training never had"
    assert (rows[5]["propensity_state"], rows[5]["lower"]) == ("cannot tell", None)
    assert rows[5]["propensity"] > 0
    free_model(40.0, 9.0).save(model)
    assert run("propensities", model) == 0
    out = capsys.readouterr().out
    assert "1 row: cannot tell: may be off by more than a factor of two." in out
    assert "e+" not in out
    assert run("show", model, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["typical_context"][1]["state"] == "cannot tell"
    assert told["support"]["queries"] == [None, 9.0, 60.0]
    assert told["cautions"][0].startswith("Cannot tell at position 2")
