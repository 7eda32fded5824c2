"""Roles, the values that columns may hold, and the checks of rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import ibis
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clickharvest import PBM, diagnose, harvest, read_log, weigh
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog, identifier, number, same
from clickharvest.logs.reading import resolve_roles
from clickharvest.logs.validation import row_checks
from samples import fixed_curve

pytestmark = pytest.mark.usefixtures("one_duckdb")

LOG: dict[str, Any] = {"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "click": [1, 0]}


def values(log: ClickLog, column: str) -> list[Any]:
    return log.engine.fetch(log.table.order_by("position").select(column), task="Reading")[column].to_pylist()


@pytest.mark.parametrize(
    "clicks",
    [
        [1, 0], [True, False], [1.0, 0.0], ["1", "0"], ["True", "False"], ["TRUE", "false"], [" 1.0", "0 "],
        [Decimal("1"), Decimal("0")], ["yes", "no"], ["Y", "N"], [" t", "F "], ["Yes", "NO"],
    ],
    ids=str,
)  # fmt: skip
def test_clicks_may_be_numbers_booleans_or_text(clicks: list[Any]) -> None:
    log = read_log(pa.table(LOG | {"click": clicks}))
    assert [float(value) for value in values(log, "clicks")] == [1.0, 0.0]
    assert values(log, "impressions") == [1, 1]


@pytest.mark.parametrize("positions", [[1, 2], [1.0, 2.0], ["1", "2"], ["1.0", " 2"], [Decimal("1.0"), Decimal(2)]])
@pytest.mark.parametrize("base", [0, 1])
def test_positions_may_be_numbers_or_text_from_0_or_1(positions: list[Any], base: int) -> None:
    log = read_log(pa.table(LOG | {"position": positions}), position_base=base)
    assert values(log, "position") == [2 - base, 3 - base]


def test_small_integers_from_0_do_not_overflow() -> None:
    log = read_log(pa.table(LOG | {"position": pa.array([126, 127], pa.int8())}), position_base=0)
    assert values(log, "position") == [127, 128]


def test_words_are_no_positions() -> None:
    with pytest.raises(InputError, match="column 'position': 1 of 2 rows are not whole numbers"):
        read_log(pa.table(LOG | {"position": ["y", "2"]}))


@given(st.permutations(list(LOG)), st.lists(st.sampled_from([str.upper, str.title, str.lower]), min_size=5, max_size=5))
@settings(deadline=None, max_examples=10)
def test_columns_are_found_whatever_their_case(order: list[str], cases: list[Any]) -> None:
    written = [case(name) for case, name in zip(cases, [*order, "device"], strict=True)]
    table = pa.table([*(LOG[name] for name in order), ["a", "b"]], names=written)
    log = read_log(table, context=["Device"])
    assert (values(log, "doc"), values(log, "clicks"), values(log, "Device")) == (["a", "a"], [1, 0], ["a", "b"])
    assert log.roles == dict(zip(order, written[:4], strict=True))


def test_a_name_that_fits_two_columns_fits_none() -> None:
    table = ibis.table({"Query": "string", "QUERY": "string", "doc": "string", "position": "int64", "click": "int64"})
    with pytest.raises(InputError, match="missing column 'query'"):
        read_log(table, validate=False)
    assert read_log(table, query="QUERY", validate=False).roles["query"] == "QUERY"


def test_positions_from_0() -> None:
    table = pa.table(LOG | {"position": [0, 1], "original": [1, 0]})
    log = read_log(table, position_base=0)
    assert (values(log, "position"), values(log, "original")) == ([1, 2], [2, 1])


def test_aggregated_rows_keep_their_counts() -> None:
    counted = {name: LOG[name] for name in ("query", "doc", "position")} | {"clicks": [2, 0], "impressions": [5, 1]}
    log = read_log(pa.table(counted))
    assert (values(log, "clicks"), values(log, "impressions")) == ([2, 0], [5, 1])


@pytest.mark.parametrize("name", ["a b", "it's", 'qu"ote', "größe", "UPPER", "select", "a.b", "1", "`tick`", "{x}"])
def test_columns_may_bear_any_name(name: str) -> None:
    renamed = {name if column == "query" else column: rows for column, rows in LOG.items()}
    assert values(read_log(pa.table(renamed), query=name), "query") == ["q", "q"]
    log = read_log(pa.table(LOG | {name: ["x", "y"]}), context=[name])
    assert values(log, name) == ["x", "y"]


def test_a_column_may_have_a_role_and_be_context() -> None:
    log = read_log(pa.table(LOG | {"q": ["q", "q"]}), query="q", context=["q"])
    assert values(log, "q") == values(log, "query") == ["q", "q"]


@pytest.mark.parametrize(
    ("column", "kind"),
    [([True, None], "boolean"), ([1, 2], "int64"), ([1.5, None], "float64"), (["a", None], "string"),
     ([Decimal("1.5"), Decimal(2)], "float64"), (pa.array([1, 2], pa.int8()), "int64"),
     (pa.array([1, 2], pa.date32()), "string")],
    ids=str,
)  # fmt: skip
def test_contexts_are_booleans_numbers_or_text(column: Any, kind: str) -> None:
    log = read_log(pa.table(LOG | {"x": column}), context=["x"])
    assert log.columns["x"].type() == ibis.dtype(kind)


@pytest.mark.parametrize(
    ("columns", "wanted", "expected"),
    [
        ("click", {}, {"click": "click"}),
        ("clicks impressions", {}, {"clicks": "clicks", "impressions": "impressions"}),
        ("click clicks impressions", {"click": "click"}, {"click": "click"}),
        ("click n impressions", {"clicks": "n"}, {"clicks": "n", "impressions": "impressions"}),
        ("click page arm", {"ranker": "arm"}, {"click": "click", "page": "page", "ranker": "arm"}),
        ("click page time", {"page": ""}, {"click": "click", "time": "time"}),
    ],
)
def test_roles_default_to_their_names(columns: str, wanted: dict[str, str], expected: dict[str, str]) -> None:
    required = {"query": "query", "doc": "doc", "position": "position"}
    assert resolve_roles([*required, *columns.split()], required | wanted) == required | expected


@pytest.mark.parametrize(
    ("columns", "wanted", "message"),
    [
        ("query doc", {}, "missing column 'position': found query, doc; name the right one with --position COLUMN"),
        ("query", {}, "missing columns 'doc', 'position': found query; name the right ones with --doc COLUMN --pos"),
        ("query doc position", {}, "no click column"),
        ("query doc position clicks", {}, "impressions is missing"),
        ("query doc position impressions", {}, "clicks is missing"),
        ("query doc position click clicks", {}, "both click and clicks"),
        ("query doc position click", {"doc": ""}, "missing column ''"),
    ],
)
def test_roles_that_cannot_be_resolved(columns: str, wanted: dict[str, str], message: str) -> None:
    required = {"query": "query", "doc": "doc", "position": "position"}
    with pytest.raises(InputError, match=message):
        resolve_roles(columns.split(), required | wanted)


def test_identifiers_compare_as_the_log_holds_them() -> None:
    table = ibis.table({"x": "int32", "y": "string"}, name="t")
    assert identifier(table.x).type().is_integer()
    assert identifier(table.y).type().is_string()
    assert identifier(table.y, ibis.dtype("int64")).type() == ibis.dtype("int64")
    assert identifier(table.x, ibis.dtype("string")).type().is_string()


def test_numbers_are_read_from_text() -> None:
    table = ibis.memtable({"x": ["1", " 2.5 ", "true", "False", "x", "", None]})
    read = ibis.duckdb.connect().to_pyarrow(number(table.x).name("x")).to_pylist()
    assert read[:4] == [1.0, 2.5, 1.0, 0.0]
    assert [value != value for value in read[4:6]] == [True, True]
    assert read[6] is None


def test_an_empty_context_equals_an_empty_context() -> None:
    left = ibis.memtable(pa.table({"query": ["q"], "device": pa.array([None], "string")}))
    right = left.view()
    assert left.inner_join(right, same(left, right, ["query", "device"])).count().execute() == 1


def test_a_file_is_never_read_before_its_columns_fit() -> None:
    """Roles resolve on the schema alone: an unbound table, which cannot run, is refused for its columns."""
    with pytest.raises(InputError, match="missing column 'doc'"):
        read_log(ibis.table({"query": "string", "position": "int64"}, name="t"))


def test_examples_are_three_at_most_and_short() -> None:
    many = {name: column * 10 for name, column in LOG.items()} | {"doc": [None] * 20, "query": ["long " * 50] * 20}
    with pytest.raises(InputError, match="20 of 20 rows are empty") as caught:
        read_log(pa.table(many))
    assert str(caught.value).count("(query=") == 3
    assert len(str(caught.value)) < 500


def test_further_kinds_of_problem_are_counted() -> None:
    with pytest.raises(InputError, match=r"column 'doc': 1 of 2 rows are empty.*\(2 more kinds of problem"):
        read_log(pa.table(LOG | {"doc": ["a", None], "position": [0, 1], "click": [3, 1]}))


def test_one_further_kind_of_problem_is_no_plural() -> None:
    with pytest.raises(InputError, match=r"\(1 more kind of problem after this one\)"):
        read_log(pa.table(LOG | {"position": [0, 1], "click": [3, 1]}))


def test_an_empty_log_is_refused() -> None:
    for block in ({}, {"doc": "organic"}):
        with pytest.raises(InputError, match=r"the log is empty: expected at least one row$"):
            read_log(pa.table(LOG).slice(0, 0), block=block)


def test_one_context_is_a_name_and_none_is_nothing() -> None:
    """Not the letters of the name."""
    table = pa.table(LOG | {"device": ["x", "y"]})
    assert read_log(table, context="device").context == ("device",)
    assert read_log(table, context=None).context == ()
    with pytest.raises(InputError, match="the column of query is 5: expected a name"):
        read_log(table, query=5)  # type: ignore[arg-type]


def test_a_log_tells_of_itself_without_its_rows() -> None:
    table = pa.table(LOG | {"device": ["secret", "y"]})
    told = repr(read_log(table, context=["device"]))
    assert told.startswith("ClickLog(2 rows, 1 click; click=")
    assert told.endswith("context=('device',))")
    assert "secret" not in told
    assert "rows not checked" in repr(read_log(table, validate=False))


@pytest.mark.parametrize("use", [harvest, diagnose, lambda log: weigh(log, fixed_curve({1: 0.0, 2: -0.5}))])
def test_a_table_is_no_log_before_it_is_read(use: Any) -> None:
    with pytest.raises(InputError, match="expected a click log, found a Table: read it with read_log first"):
        use(pa.table(LOG))


def test_an_estimator_and_a_path_are_no_propensities() -> None:
    model = PBM()
    model.propensities_ = fixed_curve({1: 0.0, 2: -0.5})
    with pytest.raises(InputError, match="a PBM is an estimator: give its propensities_"):
        weigh(read_log(pa.table(LOG)), model)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'model\.safetensors' is a path, no model"):
        weigh(read_log(pa.table(LOG)), "model.safetensors")  # type: ignore[arg-type]


def test_a_position_below_base_0_is_told_so() -> None:
    with pytest.raises(InputError, match="are less than 0") as caught:
        read_log(pa.table(LOG | {"position": [-1, 0]}), position_base=0)
    assert "--position-base" not in str(caught.value)


def test_a_document_may_be_on_many_pages_but_once_on_each() -> None:
    table = pa.table(LOG | {"visit": [1, 1], "page": [1, 2]})
    assert len(values(read_log(table), "page")) == 2
    with pytest.raises(InputError, match=r"column 'visit': 2 of 2 rows .* such as \(visit=1, doc='a'\)"):
        read_log(table, page="visit")
    assert not read_log(pa.table(LOG | {"page": [1, 1]}), page="").has("page")


def test_whole_numbers_are_not_checked_for_wholeness() -> None:
    for positions, checked in (([1, 2], False), (["1", "2"], True)):
        checks = row_checks(read_log(pa.table(LOG | {"position": positions})))
        assert ("are not whole numbers" in [check.problem for check in checks]) is checked


def test_validation_can_be_left_out() -> None:
    assert len(values(read_log(pa.table(LOG | {"click": [0, 0]}), validate=False), "clicks")) == 2


def test_users_may_be_unknown_and_records_of_users_are_no_names() -> None:
    assert values(read_log(pa.table(LOG | {"user": ["u", None]})), "user") == ["u", None]
    records = pa.table(LOG | {"user": [{"id": "u"}, {"id": "v"}]})
    assert not read_log(records).has("user")
    with pytest.raises(InputError, match=r"column 'user' is of type .* expected one plain value per row"):
        read_log(records, user="user")
    assert read_log(pa.table(LOG | {"user": ["u", "v"]}), context=["user"]).context == ("user",)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["1.5", "2", "abc", " 3 ", "4.0", None, "9" * 20], [None, 2, None, 3, 4, None, None]),
        ([1.5, 2.0, float("nan"), 1e300, None], [None, 2, None, None, None]),
        ([Decimal("1.5"), Decimal("2.0")], [None, 2]),
    ],
)
def test_an_identifier_that_is_no_integer_meets_none(written: list[Any], read: list[Any]) -> None:
    """A table of documents with the id 1.5 says nothing of document 2."""
    log = read_log(pa.table(LOG))
    found = ibis.memtable(pa.table({"id": written})).select(
        id=lambda t: identifier(t.id, log.columns["position"].type())
    )
    assert log.engine.fetch(found, task="Reading")["id"].to_pylist() == read
