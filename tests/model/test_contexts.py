"""Hand-computed encodings, the treatment of missing and unseen values, saving, and every error message."""

import ast
import datetime
import json
import math
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickharvest.errors import InputError
from clickharvest.model import contexts
from clickharvest.model.contexts import ContextColumn, ContextEncoder

NAN = math.nan


def encode(values: Any, **options: Any) -> tuple[tuple[str, ...], list[list[float]]]:
    """Feature names and x of the single column `c` under an encoder fitted on itself."""
    encoder = ContextEncoder.fit({"c": values}, **options)
    return encoder.feature_names, encoder.transform({"c": values}).tolist()


def score(trained: Any, values: Any, **options: Any) -> list[list[float]]:
    x: list[list[float]] = ContextEncoder.fit({"c": trained}, **options).transform({"c": values}).tolist()
    return x


# --- numeric


def test_numeric_is_standardised_by_population_moments() -> None:
    mean, sd = (1 + 2 + 6) / 3, math.sqrt((2**2 + 1**2 + 3**2) / 3)
    names, x = encode([1, 2, 6])
    assert names == ("c",)
    np.testing.assert_allclose(x, [[(1 - mean) / sd], [(2 - mean) / sd], [(6 - mean) / sd]], rtol=1e-15)


def test_numeric_missing_in_training_is_the_mean_and_has_an_indicator() -> None:
    assert encode(np.array([1.0, NAN, 3.0])) == (("c", "c is missing"), [[-1, 0], [0, 1], [1, 0]])


def test_numeric_missing_only_when_scoring_is_the_mean() -> None:
    assert score([1, 3], [None, NAN, 3]) == [[0], [0], [1]]


@pytest.mark.parametrize("value", [0.1, 7, -1e90, 5e-324])
def test_constant_column_becomes_exactly_zero(value: Any) -> None:
    assert encode([value] * 1000) == (("c",), [[0]] * 1000)


def test_unseen_value_of_a_constant_column_keeps_its_distance() -> None:
    assert score([5, 5], [6]) == [[1]]


def test_all_missing_numbers_accept_numbers_later() -> None:
    assert encode(np.array([NAN, NAN])) == (("c", "c is missing"), [[0, 1], [0, 1]])
    assert score(np.array([NAN]), [2.5]) == [[2.5, 0]]


def test_extreme_numbers_neither_overflow_nor_warn() -> None:
    assert encode([-1e100, 1e100]) == (("c",), [[-1], [1]])
    assert np.isfinite(score([0.0, 1e-95], [1e100])).all()
    assert encode([0, 5e-324]) == (("c",), [[0], [5e-324]])


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 3], dtype=np.int8),
        np.array([1, 3], dtype=np.uint64),
        np.array([1, 3], dtype=np.float16),
        np.array([1, 3.0], dtype=object),
        [Decimal("1.0"), Decimal("3.0")],
        [True, 3],
        (1, np.int64(3)),
        range(1, 4, 2),
    ],
    ids=lambda values: type(values).__name__ + str(getattr(values, "dtype", "")),
)
def test_numbers_of_any_type_are_numeric(values: Any) -> None:
    assert encode(values) == (("c",), [[-1], [1]])


# --- boolean


@pytest.mark.parametrize(
    "values",
    [np.array([True, False, True]), [True, False, True], np.array([True, False, np.True_], dtype=object)],
)
def test_boolean_is_zero_or_one(values: Any) -> None:
    assert encode(values) == (("c",), [[1], [0], [1]])


@pytest.mark.parametrize("missing", [None, NAN, pd.NA, pd.NaT, np.float64("nan"), Decimal("nan")])
def test_boolean_missing(missing: Any) -> None:
    assert encode([True, missing, False]) == (("c", "c is missing"), [[1, 0], [0, 1], [0, 0]])
    assert score([True, False, True, True], [missing, True]) == [[0.75], [1]]


def test_zero_and_one_are_booleans_on_request() -> None:
    assert encode([0, 1, None], kinds={"c": "boolean"})[1] == [[0, 0], [1, 0], [0, 1]]
    assert score([True, False], np.array([1.0, 0.0, NAN])) == [[1], [0], [0.5]]


# --- categorical


def test_levels_come_by_frequency_then_name() -> None:
    names, x = encode(["b", "a", "c", "c"])
    assert names == ("c=c", "c=a", "c=b", "c=other")
    assert x == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]


def test_max_levels_and_min_count_send_the_rest_to_other() -> None:
    values = ["a"] * 3 + ["b"] * 2 + ["c"] * 2 + ["d"]
    assert encode(values, max_levels=2)[0] == ("c=a", "c=b", "c=other")
    assert encode(values, min_count=2)[0] == ("c=a", "c=b", "c=c", "c=other")
    assert encode(values, min_count=9) == (("c=other",), [[1]] * 8)


def test_how_often_values_were_missing_is_kept() -> None:
    def rank(values: Any, **options: Any) -> int | None:
        (part,) = ContextEncoder.fit({"c": values}, **options).parts
        return part.missing_rank

    assert [rank(["a", "a", "b", *[None] * n]) for n in range(4)] == [None, 2, 1, 0]
    assert rank(["a", "a", "b", None], max_levels=1) == 1
    assert [rank([1.0, 2.0, *[NAN] * n]) for n in range(4)] == [None, 1, 1, 0]
    assert [rank([True, False, *[None] * n]) for n in range(4)] == [None, 1, 1, 0]
    assert [rank([None] * 2), rank(np.array([NAN]))] == [0, 0]


@pytest.mark.parametrize("rank", [-1, 2, 0.5, True, "0"])
def test_a_rank_of_missing_values_that_cannot_be_is_refused(rank: Any) -> None:
    with pytest.raises(InputError, match="missing_rank"):
        ContextColumn("c", "categorical", True, levels=("a",), missing_rank=rank)


def test_without_missing_values_they_have_no_rank() -> None:
    with pytest.raises(
        InputError, match="missing_rank 0; expected a whole number from 0 to 1 where values were missing"
    ):
        ContextColumn("c", "numeric", False, missing_rank=0)


def test_unseen_level_is_other() -> None:
    assert score(["a", "b"], ["z", "b", ""]) == [[0, 0, 1], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("missing", [None, NAN, pd.NA, pd.NaT])
def test_categorical_missing(missing: Any) -> None:
    assert encode(["a", missing]) == (("c=a", "c=other", "c is missing"), [[1, 0, 0], [0, 0, 1]])
    assert score(["a", "b"], [missing, "a"]) == [[0, 0, 1], [1, 0, 0]]


def test_nothing_but_none_is_categorical_and_accepts_anything_later() -> None:
    assert encode([None, None]) == (("c=other", "c is missing"), [[0, 1], [0, 1]])
    assert score([None], ["a", 3, True]) == [[1, 0]] * 3


def test_integer_codes_compare_as_text() -> None:
    same = [3, "3", 3.0, np.int64(3), np.float32(3), Decimal("3.00"), b"3"]
    assert score([3, 3, 4], [*same, 3.5, "3.0"], kinds={"c": "categorical"}) == [[1, 0, 0]] * 7 + [[0, 0, 1]] * 2
    names, x = encode(np.array([3.0, NAN, 4.0]), kinds={"c": "categorical"})
    assert names == ("c=3", "c=4", "c=other", "c is missing")
    assert x == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]


def test_true_and_one_are_two_levels_in_either_order() -> None:
    for values in ([True, 1, 1], [1, True, 1]):
        assert encode(values, kinds={"c": "categorical"})[0] == ("c=1", "c=True", "c=other")


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_are_levels_whatever_their_unit(unit: Any) -> None:
    values = np.array(["2024-01-01T10:00", "NaT"], dtype=f"datetime64[{unit}]")
    assert encode(values) == (("c=2024-01-01 10:00:00", "c=other", "c is missing"), [[1, 0, 0], [0, 0, 1]])


def test_dates_agree_between_libraries() -> None:
    day = datetime.date(2024, 1, 1)
    assert score([day], np.array(["2024-01-01"], dtype="datetime64[D]")) == [[1, 0]]


@pytest.mark.parametrize("dtype", ["U", "O", "S", np.dtypes.StringDType()])
def test_text_of_any_dtype(dtype: Any) -> None:
    assert encode(np.array(["a", "b", "a"]).astype(dtype))[0] == ("c=a", "c=b", "c=other")


HOSTILE = [
    "",
    " ",
    "😀",
    "it's",
    '"quoted"',
    "<script>",
    "a=b",
    "new\nline",
    "\x00",
    "x" * 300,
    "nan",
    "None",
    "\ud800",
]


def test_hostile_levels_are_plain_levels() -> None:
    names, x = encode(HOSTILE)
    assert set(names) == {f"c={level}" for level in [*HOSTILE, "other"]}
    assert sorted(np.argmax(x, axis=1).tolist()) == list(range(len(HOSTILE)))


# --- names


def test_a_real_level_other_is_told_from_the_catch_all() -> None:
    names, x = encode(["other", "other", "other…"], max_levels=9)
    assert names == ("c=other", "c=other…", "c=other……")
    assert x == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_feature_names_stay_distinct_across_columns() -> None:
    log = {"a": ["b", None], "a=b": [1, 2], "a is missing": [True, False]}
    encoder = ContextEncoder.fit(log)
    assert encoder.feature_names == ("a=b", "a=other", "a is missing", "a=b…", "a is missing…")
    assert encoder.transform(log).tolist() == [[1, 0, 0, -1, 1], [0, 0, 1, 1, 0]]


def test_names_choose_and_order_the_columns() -> None:
    encoder = ContextEncoder.fit({"a": [1, 3], "b": [True, False], "z": ["?", "!"]}, names=["b", "a"])
    assert encoder.columns == encoder.feature_names == ("b", "a")
    assert encoder.transform({"a": [3], "b": [False], "more": ["x"]}).tolist() == [[0, 1]]


# --- tables

LOG: dict[str, list[Any]] = {
    "text": ["a", "b", None, "a"],
    "flag": [True, None, False, True],
    "count": [1, 2, None, 4],
    "whole": [1, 2, 3, 4],
    "real": [0.5, 1.5, 2.5, None],
    "money": [Decimal("1.50"), Decimal("2.50"), None, Decimal("0.50")],
    "day": [datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 2), datetime.date(2024, 1, 1)],
    "nothing": [None, None, None, None],
}
ARROW = pa.table(LOG)
DICTIONARY = ARROW.set_column(0, "text", ARROW["text"].dictionary_encode())
TABLES = {
    "arrow": ARROW,
    "record batch": ARROW.to_batches()[0],
    "pandas": ARROW.to_pandas(),
    "pandas of Arrow": ARROW.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas nullable": ARROW.to_pandas().convert_dtypes(),
    "polars": pl.from_arrow(ARROW),
    "dictionary": DICTIONARY,
    "dictionary in chunks": pa.concat_tables([DICTIONARY.slice(0, 1), DICTIONARY.slice(1)]),
    "dictionary in pandas": DICTIONARY.to_pandas(),
    "dictionary in pandas of Arrow": DICTIONARY.to_pandas(types_mapper=pd.ArrowDtype),
    "dictionary in polars": pl.from_arrow(DICTIONARY),
    "masked": {
        name: np.ma.array([values[0] if v is None else v for v in values], mask=[v is None for v in values])
        for name, values in LOG.items()
    },
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_table_library_gives_the_same_x(table: Any) -> None:
    kinds = {"nothing": "categorical"}
    expected = ContextEncoder.fit(LOG, kinds=kinds)
    encoder = ContextEncoder.fit(table, kinds=kinds)
    assert encoder == expected
    assert encoder.transform(table).tolist() == expected.transform(LOG).tolist()


def test_no_rows_to_score_give_no_rows() -> None:
    empty: dict[str, list[Any]] = {"c": [], "d": []}
    for table in (empty, pd.DataFrame(empty)):
        assert ContextEncoder.fit({"c": ["a"], "d": [1]}).transform(table).shape == (0, 3)


def test_scoring_imports_numpy_and_the_standard_library_only() -> None:
    tree = ast.parse(Path(contexts.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    own = {"clickharvest.errors", "clickharvest.words"}  # which import nothing else
    assert foreign == {"numpy", "numpy.typing"} | own


# --- properties

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_infinity=False, min_value=-1e99, max_value=1e99) | st.just(NAN),
    st.text(max_size=5) | st.sampled_from(HOSTILE),
)


@st.composite
def logs(draw: st.DrawFn) -> dict[str, list[Any]]:
    n = draw(st.integers(1, 8))
    cells = st.sampled_from([CELLS, st.none() | st.booleans(), st.none() | st.integers(-9, 9), st.sampled_from("abc")])
    columns = cells.flatmap(lambda cell: st.lists(cell, min_size=n, max_size=n))
    return draw(st.dictionaries(st.text(max_size=5), columns, min_size=1, max_size=4))


@settings(max_examples=40)
@given(logs())
def test_json_round_trip_is_exact(log: Any) -> None:
    encoder = ContextEncoder.fit(log, max_levels=3)
    saved = encoder.to_dict()
    loaded = ContextEncoder.from_dict(json.loads(json.dumps(saved, allow_nan=False)))
    assert json.loads(json.dumps(saved)) == saved
    assert loaded == encoder
    assert loaded.feature_names == encoder.feature_names
    assert loaded.transform(log).tobytes() == encoder.transform(log).tobytes()


@given(logs(), st.randoms(use_true_random=False))
def test_row_order_leaves_no_trace(log: Any, random: Any) -> None:
    order = list(range(len(next(iter(log.values())))))
    random.shuffle(order)
    shuffled = {name: [values[i] for i in order] for name, values in log.items()}
    encoder = ContextEncoder.fit(log)
    assert ContextEncoder.fit(shuffled) == encoder
    np.testing.assert_array_equal(encoder.transform(shuffled), encoder.transform(log)[order])


@given(logs())
def test_x_is_finite_and_named(log: Any) -> None:
    encoder = ContextEncoder.fit(log)
    x = encoder.transform(log)
    assert x.dtype == np.float64
    assert x.shape == (len(next(iter(log.values()))), len(set(encoder.feature_names)))
    assert np.isfinite(x).all()


@settings(max_examples=20)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50).filter(lambda v: np.std(v) > 1e-3))
def test_standardised_column_has_mean_0_and_sd_1(values: Any) -> None:
    x = np.array(score(values, values))
    np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-6)


def test_a_million_rows_of_text_take_about_a_second() -> None:
    levels = np.array([f"browser number {i}" for i in range(1000)], dtype=object)
    log = {"c": levels[np.random.default_rng(0).integers(0, 1000, 1_000_000)]}
    start = time.perf_counter()
    x = ContextEncoder.fit(log).transform(log)
    assert x.sum() == 1_000_000
    assert time.perf_counter() - start < 10  # about 1 s in quiet; the slack is for busy machines


# --- errors


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {}, "context columns are []; expected one or more"),
        ({"c": [1]}, {"names": []}, "context columns are []"),
        (
            {"c": [1]},
            {"names": ["c", "c"]},
            "context columns are ['c', 'c']; expected one or more, each once",
        ),
        ({"c": [1]}, {"names": ["d"]}, "'d' is there 0 times; expected it once among ['c']"),
        ({3: [1]}, {}, "has the name 3; expected text"),
        ({"c": []}, {}, "'c' has no rows; expected one or more to fit on"),
        ({"c": [1], "d": [1, 2]}, {}, "different numbers of rows, {'c': 1, 'd': 2}"),
        ({"c": [[1, 2], [3, 4]]}, {}, "'c' has shape (2, 2); expected one value per row"),
        ({"c": 7}, {}, "'c' has shape (); expected one value per row"),
        ({"c": [[1], [3, 4]]}, {}, "'c' holds lists; expected one value per row"),
        ({"c": [1.0, math.inf, -math.inf]}, {}, "'c' holds 2 infinite numbers"),
        ({"c": np.array([1.0, math.inf])}, {}, "'c' holds 1 infinite number"),
        ({"c": [1, 10**400]}, {}, "'c' holds 1 infinite number (beyond ±1e+100)"),
        ({"c": [1, "two"]}, {"kinds": {"c": "numeric"}}, "'c' is numeric but holds 'two'; expected numbers"),
        (
            {"c": [1, 2]},
            {"kinds": {"c": "boolean"}},
            "'c' is boolean but holds 2.0; expected True, False, 1, 0",
        ),
        ({"c": [1]}, {"kinds": {"d": "numeric"}}, "kinds has {'d': 'numeric'}; expected columns of ['c']"),
        (
            {"c": [1]},
            {"kinds": {"c": "ordinal"}},
            "kinds has {'c': 'ordinal'}; expected columns of ['c'] and kinds of",
        ),
        ({"c": [1]}, {"max_levels": 0}, "max_levels=0"),
        ({"c": [1]}, {"min_count": 0}, "min_count=0"),
        (pd.DataFrame([[1, 2]], columns=["c", "c"]), {}, "'c' is there 2 times"),
    ],
)
def test_fit_refuses(columns: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ContextEncoder.fit(columns, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"n": ["3", 1]},
            "'n' is numeric but holds '3'; expected numbers or missing values: convert the column, or fit",
        ),
        ({"n": np.array(["1", "2"])}, "'n' is numeric but holds '1'"),
        (
            {"n": np.array(["2024", "2025"], dtype="datetime64[D]")},
            "'n' is numeric but holds datetime.date(2024",
        ),
        ({"n": ["x" * 300, 1]}, "'n' is numeric but holds 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
        ({"n": [math.inf, 1]}, "'n' holds 1 infinite number"),
        ({"b": ["yes", True]}, "'b' is boolean but holds 'yes'; expected True, False, 1, 0 or missing"),
        ({"b": [0.5, True]}, "'b' is boolean but holds 0.5"),
        ({"b": np.array([2, 1])}, "'b' is boolean but holds 2.0"),
        ({"t": [{}, "a"]}, "'t' holds lists; expected one value per row"),
        ({"t": ["a"]}, "different numbers of rows, {'n': 2, 'b': 2, 't': 1}"),
    ],
)
def test_transform_refuses(change: Any, message: str) -> None:
    log = {"n": [1, 2], "b": [True, False], "t": ["a", "b"]}
    encoder = ContextEncoder.fit(log)
    with pytest.raises(InputError) as caught:
        encoder.transform(log | change)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "table", [{"d": [1]}, pd.DataFrame({"d": [1]}), pl.DataFrame({"d": [1]}), pa.table({"d": [1]})]
)
def test_transform_names_the_missing_column_and_those_found(table: Any) -> None:
    with pytest.raises(InputError, match=r"'c' is there 0 times; expected it once among \['d'\]"):
        ContextEncoder.fit({"c": [1]}).transform(table)


GOOD: dict[str, Any] = {
    "name": "c",
    "kind": "categorical",
    "missing": False,
    "mean": 0.0,
    "sd": 1.0,
    "levels": ["a"],
}


@pytest.mark.parametrize(
    "saved",
    [
        None,
        [],
        {},
        {"columns": {}},
        {"columns": [GOOD], "more": 1},
        {"columns": [1]},
        {"columns": [GOOD | {"more": 1}]},
    ]
    + [{"columns": [{key: GOOD[key] for key in GOOD if key != left_out}]} for left_out in GOOD],
)
def test_from_dict_refuses_another_shape(saved: Any) -> None:
    with pytest.raises(InputError, match=r"saved context.*expected"):
        ContextEncoder.from_dict(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "has the name 3; expected text"),
        ({"kind": "ordinal"}, "has the kind 'ordinal'; expected one of"),
        ({"kind": ["numeric"]}, "has the kind ['numeric']"),
        ({"missing": 1}, "has the missing 1; expected True or False"),
        ({"mean": "0"}, "has the mean '0'"),
        ({"mean": NAN}, "has the mean nan"),
        ({"mean": True}, "has the mean True"),
        ({"kind": "boolean", "mean": 1.5}, "has the mean 1.5"),
        ({"sd": 0.0}, "has the sd 0.0; expected a finite number above 0"),
        ({"sd": math.inf}, "has the sd inf"),
        ({"levels": "abc"}, "saved context column is"),
        ({"levels": ["a", 1]}, "has the levels ('a', 1); expected texts that all differ"),
        ({"levels": ["a", ["b"]]}, "has the levels ('a', ['b'])"),
        ({"levels": ["a", "a"]}, "has the levels ('a', 'a')"),
    ],
)
def test_from_dict_refuses_another_value(change: Any, message: str) -> None:
    assert ContextEncoder.from_dict({"columns": [GOOD]}).parts[0].levels == ("a",)
    with pytest.raises(InputError) as caught:
        ContextEncoder.from_dict({"columns": [GOOD | change]})
    assert message in str(caught.value)


def test_from_dict_refuses_a_column_twice() -> None:
    with pytest.raises(InputError, match="each once"):
        ContextEncoder.from_dict({"columns": [GOOD, GOOD]})


def test_encoder_does_not_change() -> None:
    with pytest.raises(AttributeError):
        ContextEncoder((ContextColumn("c", "numeric", missing=False),)).parts = ()  # type: ignore[misc]


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_moments_are_exact_in_any_order(scale: float) -> None:
    random = np.random.default_rng(5)
    values = np.repeat(random.lognormal(sigma=4, size=200), random.integers(1, 9, 200)) * scale
    fitted = [ContextEncoder.fit({"v": v}).parts[0] for v in (values, np.sort(values), random.permutation(values))]
    assert fitted[0] == fitted[1] == fitted[2]
    mean = math.fsum(values) / len(values)
    assert fitted[0].mean == pytest.approx(mean, rel=1e-15)
    variance = math.fsum((values / scale - mean / scale) ** 2) / len(values)
    assert fitted[0].sd == pytest.approx(scale * math.sqrt(variance), rel=1e-14)


def test_neighbours_that_are_equal_are_one_level_unless_their_types_differ() -> None:
    def counts(values: list[Any]) -> tuple[str, ...]:
        (part,) = ContextEncoder.fit({"c": values}, kinds={"c": "categorical"}).parts
        return (*part.levels, *["missing"] * part.missing)

    assert counts(["b", "b", "b", "a", "a", "b", None, None]) == ("b", "a", "missing")
    assert counts([True, 1, 1.0, "x", "x", "x"]) == ("x", "1", "True")
    assert counts([1, True, True, True]) == ("True", "1")
    x = ContextEncoder.fit({"c": ["b", "b", None, "a"]}).transform({"c": ["b", "b", "a", "a", None, None, "z", "b"]})
    assert x.argmax(axis=1).tolist() == [0, 0, 1, 1, 3, 3, 2, 0]
