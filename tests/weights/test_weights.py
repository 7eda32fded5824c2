"""Weights: against the definition in plain Python, on DuckDB, from the command line, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import ColumnSupport, Support, value_names
from clickharvest.weights.clipping import effective_sample_size
from clickharvest.weights.scoring import count_cells
from clickharvest.weights.weighing import COLUMNS, weigh, weigh_to_parquet
from command_line import run
from context_logs import CONTEXT, context_log, context_model

NAN = float("nan")


def position_model() -> Propensities:
    """Propensities 1, .5, .2 at positions 1, 2, 4; position 3 was shown but has none."""
    return Propensities(make_curve("constant", (1, 2, 4), 1, 0), {"b": np.log([0.5, 0.2])}, None, (1, 2, 3, 4))


def rows_of(log: ClickLog, table: Any, order: str) -> list[dict[str, Any]]:
    return log.engine.fetch(table.order_by(order), task="Weighing").to_pylist()


def check_against_the_definition(log: ClickLog, model: Propensities, table: pa.Table) -> None:
    """Every row keeps its values and has the propensity that `predict` gives its context and position."""
    weights = weigh(log, model, clip=0.3)
    found = {row["doc"]: row for row in rows_of(log, weights.table, "doc")}
    assert weights.table.columns == (*table.column_names, *COLUMNS)
    assert len(found) == table.num_rows == weights.report.rows
    predicted = model.predict(table).propensity
    above = {1: 1, 2: 2, 3: 3, 4: 3, 5: 5, 6: 5, 7: 5}
    clicked = []
    for row, propensity in zip(table.to_pylist(), predicted, strict=True):
        p = propensity[model.shown.index(above[row["rank"]])]
        result = found[row["doc"]]
        assert result["propensity"] == pytest.approx(p, rel=1e-12)
        assert result["ips_weight"] == pytest.approx(1 / max(p, 0.3), rel=1e-12)
        assert (result["propensity_state"] == "usable") == (row["rank"] in model.curve.positions)
        for name in ("q", "rank", "click", "note", "device", "age", "pays"):
            assert result[name] == row[name]
        if row["click"]:
            clicked.append(p)
    report = weights.report
    w = 1 / np.maximum(clicked, 0.3)
    assert report.clicks == len(clicked)
    assert report.effective_clicks == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert report.clipped_clicks == np.count_nonzero(np.array(clicked) < 0.3)
    assert report.untold_positions == (4, 6, 7)
    assert report.untold_rows == np.isin(table["rank"].to_numpy(), (4, 6, 7)).sum()


def test_every_row_has_the_propensity_of_its_context_and_position(duckdb_engine: DuckDBEngine) -> None:
    table = context_log()
    log = read_log(table, query="q", position="rank", context=CONTEXT, engine=duckdb_engine)
    check_against_the_definition(log, context_model(table), table)


def test_an_ibis_table_brings_its_engine() -> None:
    table = context_log(rows=50)
    con = ibis.duckdb.connect()
    con.con.register("clicks", table)
    log = read_log(con.table("clicks"), query="q", position="rank", context=CONTEXT)
    check_against_the_definition(log, context_model(table), table)


def test_a_model_without_context_needs_none(duckdb_engine: DuckDBEngine) -> None:
    table = pa.table({"query": ["q"] * 6, "doc": list("abcdef"), "position": range(6), "click": [1, 1, 1, 1, 1, 0]})
    log = read_log(table, position_base=0, engine=duckdb_engine)
    weights = weigh(log, position_model())
    rows = rows_of(log, weights.table, "position")
    assert [row["propensity"] for row in rows] == pytest.approx([1, 0.5, 0.5, 0.2, 0.2, 0.2])
    assert [row["ips_weight"] for row in rows] == pytest.approx([1, 2, 2, 5, 5, 5])
    assert [row["propensity_state"] == "usable" for row in rows] == [True, True, False, True, False, False]
    assert [row["position"] for row in rows] == list(range(6))
    assert weights.report.effective_clicks == pytest.approx(15**2 / (1 + 4 + 4 + 25 + 25))
    assert (weights.report.untold_rows, weights.report.untold_clicks) == (3, 2)
    assert weights.report.untold_positions == (3, 5, 6)
    assert weights.report.states == {"usable": 3, "with care": 0, "cannot tell": 2}
    assert (weights.report.clip, weights.report.clipped_clicks, weights.report.clip_share) == (None, 0, 0.0)
    assert weights.report.effective_share == pytest.approx(weights.report.effective_clicks / 5)
    assert (weights.report.largest_weight, weights.report.scale) == (pytest.approx(5.0), 1.0)


def test_contexts_that_the_model_does_not_speak_of_are_told(duckdb_engine: DuckDBEngine) -> None:
    encoder = ContextEncoder.fit({"device": ["desk", "desk", "phone"]})
    curve = make_curve("constant", (1, 2), 1, len(encoder.feature_names))
    support = Support((ColumnSupport(((1, 2), (1,))),), (None, 9.0))
    model = Propensities(curve, {"b": np.log([0.5])}, encoder, (1, 2), support=support)
    device = ["desk", "desk", "desk", "phone", "phone", "phone", "tv", "tv", "tv"]
    table = pa.table({"query": ["q"] * 9, "doc": range(9), "position": [1, 2, 3] * 3, "click": [1] * 8 + [0]})
    log = read_log(table.append_column("device", pa.array(device)), context=["device"], engine=duckdb_engine)
    weights = weigh(log, model)
    rows = rows_of(log, weights.table, "doc")
    assert [row["propensity_state"] == "usable" for row in rows] == [True, True, False] + [True, False, False] * 2
    assert [row["ips_weight"] for row in rows] == pytest.approx([1, 2, 2, 1, 1, 1, 1, 1, 1])
    report = weights.report
    assert (report.untold_rows, report.untold_clicks, report.untold_positions) == (5, 4, (2, 3))
    assert str(report).splitlines()[-1] == (
        "Cannot tell at positions 2-3 in some contexts: 4 clicks there get the weight of the last position above that "
        "the model can tell (--trust all uses the estimates)."
    )
    # The curve has a number of other contexts for these.
    every = weigh(log, model, trust="all")
    assert [row["ips_weight"] for row in rows_of(log, every.table, "doc")] == pytest.approx([1, 2, 2] * 3)
    assert (
        str(every.report).splitlines()[-1] == "No estimate at position 3: 2 clicks there get the weight of position 2."
    )


def test_positions_above_the_first_supported_one_use_it(duckdb_engine: DuckDBEngine) -> None:
    model = Propensities(make_curve("constant", (2, 3), 2, 0), {"b": np.log([0.5])}, None, (1, 2, 3))
    table = pa.table({"query": ["q"] * 2, "doc": ["a", "b"], "position": [1, 3], "click": [1, 1]})
    log = read_log(table, engine=duckdb_engine)
    rows = rows_of(log, weigh(log, model).table, "position")
    assert [row["propensity"] for row in rows] == pytest.approx([1, 0.5])
    assert [row["propensity_state"] for row in rows] == ["cannot tell", "usable"]


def test_normalised_weights_of_the_clicks_sum_to_their_number(duckdb_engine: DuckDBEngine) -> None:
    table = context_log()
    log = read_log(table, query="q", position="rank", context=CONTEXT, engine=duckdb_engine)
    model = context_model(table)
    plain, normalised = weigh(log, model), weigh(log, model, normalise=True)
    rows = rows_of(log, normalised.table, "doc")
    assert sum(row["ips_weight"] for row in rows if row["click"]) == pytest.approx(plain.report.clicks)
    ratios = [a["ips_weight"] / b["ips_weight"] for a, b in zip(rows_of(log, plain.table, "doc"), rows, strict=True)]
    assert ratios == pytest.approx([normalised.report.scale] * len(rows))
    assert normalised.report.effective_clicks == pytest.approx(plain.report.effective_clicks)
    assert normalised.report.largest_weight == pytest.approx(max(row["ips_weight"] for row in rows))


def test_counted_rows_count_and_rows_never_shown_stay(duckdb_engine: DuckDBEngine) -> None:
    table = pa.table(
        {"query": ["q"] * 3, "doc": list("abc"), "position": ["1", "2", "4"], "clicks": [3, 2, 0],
         "impressions": [9, 2, 0]}
    )  # fmt: skip
    log = read_log(table, engine=duckdb_engine)
    weights = weigh(log, position_model())
    rows = rows_of(log, weights.table, "doc")
    assert [row["ips_weight"] for row in rows] == pytest.approx([1, 2, 5])
    assert [row["position"] for row in rows] == [1, 2, 4]
    assert weights.report.clicks == 5
    assert weights.report.effective_clicks == pytest.approx((3 + 4) ** 2 / (3 + 8))


def test_continuous_contexts_may_have_a_cell_each(duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clickharvest.weights.scoring.CELLS_AT_ONCE", 300)
    random = np.random.default_rng(1)
    n = 2000
    table = pa.table(
        {"query": ["q"] * n, "doc": np.arange(n), "position": random.integers(1, 4, n), "click": [1] * n,
         "age": random.normal(size=n)}
    )  # fmt: skip
    encoder = ContextEncoder.fit(table, names=["age"])
    curve = make_curve("mlp", (1, 2, 3), 1, 1)
    model = Propensities(curve, curve.init(random), encoder, (1, 2, 3))
    log = read_log(table, context=["age"], engine=duckdb_engine)
    rows = rows_of(log, weigh(log, model).table, "doc")
    expected = model.predict(table).propensity[np.arange(n), table["position"].to_numpy() - 1]
    assert [row["propensity"] for row in rows] == pytest.approx(expected.tolist(), rel=1e-12)


KINDS = {"device": "categorical", "arm": "categorical", "pays": "boolean"}


def judged_model(curve: str, seed: int = 0) -> tuple[pa.Table, Propensities]:
    """A log with contexts that its model's training never had, far outside, missing where they never were."""
    random = np.random.default_rng(seed)
    n = 600

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[i] for i in random.integers(0, len(values), n)], kind)

    table = pa.table(
        {
            "query": [f"q{i % 7}" for i in range(n)],
            "doc": [f"d{i}" for i in range(n)],
            "position": random.integers(1, 8, n),
            "clicks": random.integers(0, 3, n),
            "impressions": random.integers(3, 5, n),
            "device": some(["phone", "desk", "tv", "other", "", None], pa.string()),
            "arm": some([1, 2, 33, 2**40, None], pa.int64()),
            "pays": some([True, False, None], pa.bool_()),
            "age": pa.array([*random.normal(size=n - 6), 90.0, -90.0, NAN, None, 0.0, -0.0], pa.float64()),
            "second": pa.array(
                [*random.integers(1_700_000_000, 1_700_090_000, n - 2), None, 1_700_500_000], pa.int64()
            ),
            "length": pa.array(random.integers(1, 4, n), pa.int8()),
            "same": pa.array([3.0] * n),
        }
    )
    names = table.column_names[5:]
    trained = {name: table[name].to_pylist()[:500] for name in names} | {"same": [0.1] * 500}
    trained["device"] = [None if device == "tv" else device for device in trained["device"]]
    trained["pays"] = [bool(value) for value in trained["pays"]]
    encoder = ContextEncoder.fit(trained, kinds=KINDS, max_levels=3)
    shown = (1, 2, 3, 4, 5, 6)
    made = make_curve(curve, (1, 2, 3, 5, 6), 2, len(encoder.feature_names))
    params = {key: value + 0.2 * random.normal(size=np.shape(value)) for key, value in made.init(random).items()}
    everywhere, nowhere, part = (1, 2, 3, 4, 5, 6), (), (1, 2, 3)
    columns = []
    for column in encoder.parts:
        values = [everywhere, part, nowhere, *[everywhere] * 20][: len(value_names(column))]
        reach = {"age": (-1.0, 1.0), "second": (1_700_000_000.0, 1_700_040_000.0), "length": (1.0, 2.0)}.get(
            column.name
        )
        columns.append(ColumnSupport(tuple(values), column.name == "arm", reach))
    support = Support(tuple(columns), (2.0, None, 9.0, 9.0, 9.0))
    return table, Propensities(made, params, encoder, shown, support=support)


@pytest.mark.parametrize("curve", ["constant", "power", "linear", "lowrank", "index", "mlp"])
def test_curves_that_are_straight_have_lines_to_follow(curve: str, duckdb_engine: DuckDBEngine) -> None:
    table, model = judged_model(curve)
    cells = count_cells(read_log(table, context=model.context, engine=duckdb_engine), model.context, model)
    assert set(cells.numbers) == (set() if curve in ("power", "index", "mlp") else {"age", "second", "length", "same"})


@pytest.mark.parametrize("curve", ["linear", "lowrank", "mlp"])
def test_following_lines_gives_what_a_cell_for_every_number_gives(
    duckdb_engine: DuckDBEngine, curve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = judged_model(curve)
    log = read_log(table, context=model.context, engine=duckdb_engine)
    for options in ({"clip": 0.3, "trust": "all"}, {"normalise": True}, {"policy_aware": True, "clip": "auto"}):
        ours = weigh(log, model, **options)
        ours_rows = rows_of(log, ours.table, "doc")
        with monkeypatch.context() as patch:
            patch.setattr("clickharvest.weights.scoring.column_kinds", lambda *_: {})
            theirs = weigh(log, model, **options)
            theirs_rows = rows_of(log, theirs.table, "doc")
        assert ours.table.schema() == theirs.table.schema()
        for one, other in zip(ours_rows, theirs_rows, strict=True):
            for name, value in one.items():
                if name in ("propensity", "ips_weight", "policy_propensity"):
                    assert value == pytest.approx(other[name], rel=1e-9)
                else:
                    assert repr(value) == repr(other[name])
        told, expected = ours.report.to_dict(), theirs.report.to_dict()
        assert told == {key: pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for key, v in expected.items()}
        assert set(told["untold_positions"]) >= {4, 7}


def test_numbers_that_are_not_finite_and_columns_of_another_kind_are_refused(duckdb_engine: DuckDBEngine) -> None:
    table, model = judged_model("linear")
    infinite = pa.array([math.inf, *table["age"].to_pylist()[1:]])
    for name, column, message in (
        ("age", infinite, "'age' holds 1 infinite number"),
        ("age", pa.array(["old"] * len(infinite)), "'age' is numeric but holds 'old'"),
    ):
        other = table.set_column(table.column_names.index(name), name, column)
        with pytest.raises(InputError, match=message):
            weigh(read_log(other, context=model.context, engine=duckdb_engine), model)
    steep = {key: value * 3000 for key, value in model.params.items()}
    with pytest.raises(InputError, match=r"propensity of 0 in \d+ rows.*clip"):
        weigh(
            read_log(table, context=model.context, engine=duckdb_engine),
            Propensities(model.curve, steep, model.encoder, model.shown),
        )


def test_text_files_keep_identifiers_and_give_numbers(duckdb_engine: DuckDBEngine, tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text("query,doc,rank,click,note\n01,007,0,true,x\n01,7,1,false,\n")
    log = read_log(path, position="rank", position_base=0, engine=duckdb_engine)
    assert rows_of(log, weigh(log, position_model()).table, "rank") == [
        {"query": "01", "doc": "007", "rank": 0, "click": 1, "note": "x", "propensity": 1.0, "ips_weight": 1.0,
         "propensity_state": "usable"},
        {"query": "01", "doc": "7", "rank": 1, "click": 0, "note": None, "propensity": 0.5, "ips_weight": 2.0,
         "propensity_state": "usable"},
    ]  # fmt: skip


def test_names_like_those_inside_do_no_harm(duckdb_engine: DuckDBEngine) -> None:
    names = ["rows", "cell_position", "cell_context_0", "context_0", "cell_position_of_cell"]
    table = pa.table(
        {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [1, 0], **{n: ["x", "y"] for n in names}}
    )
    encoder = ContextEncoder.fit(table, names=["rows"])
    curve = make_curve("linear", (1, 2), 1, len(encoder.feature_names))
    model = Propensities(curve, curve.init(np.random.default_rng(0)), encoder, (1, 2))
    log = read_log(table, context=["rows"], engine=duckdb_engine)
    rows = rows_of(log, weigh(log, model).table, "doc")
    assert [[row[n] for n in names] for row in rows] == [["x"] * len(names), ["y"] * len(names)]


def test_auto_clips_at_one_over_the_root_of_the_clicks(duckdb_engine: DuckDBEngine) -> None:
    """16 clicks: a clip of 1/4; a hundred times as many: 1/40."""
    for times, clip in ((1, 0.25), (100, 0.025)):
        table = pa.table(
            {"query": ["q"] * 3, "doc": list("abc"), "position": [1, 2, 4], "clicks": np.array([10, 2, 4]) * times,
             "impressions": np.array([90, 20, 10]) * times}
        )  # fmt: skip
        report = weigh(read_log(table, engine=duckdb_engine), position_model(), clip="auto").report
        assert report.clip == pytest.approx(clip)
        assert report.clipped_clicks == (4 if times == 1 else 0)
        assert report.largest_weight == pytest.approx(4.0 if times == 1 else 5.0)


AB = {"query": [1, 1, 1, 2], "doc": [7, 8, 9, 7], "position": [1, 2, 1, 2], "ranker": ["a", "a", "b", "a"]}
"""Query 1: arm a showed 7 and 8 on nine pages, b showed 9 on one."""


class TestPolicyAware:
    def test_pages_that_did_not_show_a_document_count(self, duckdb_engine: DuckDBEngine) -> None:
        table = pa.table(AB | {"clicks": [3, 1, 1, 2], "impressions": [9, 9, 1, 4], "rho": ["own"] * 4})
        log = read_log(table, ranker="ranker", engine=duckdb_engine)
        weights = weigh(log, position_model(), policy_aware=True, clip=0.2)
        rows = sorted(rows_of(log, weights.table, "doc"), key=lambda row: (row["query"], row["doc"]))
        assert [row["propensity"] for row in rows] == [1.0, 0.5, 1.0, 0.5]
        assert [row["policy_propensity"] for row in rows] == pytest.approx([9 / 10, 4.5 / 10, 1 / 10, 2 / 4])
        assert [row["ips_weight"] for row in rows] == pytest.approx([1 / 0.9, 1 / 0.45, 1 / 0.2, 2])
        assert {row["rho"] for row in rows} == {"own"}
        w, c = np.array([row["ips_weight"] for row in rows]), np.array([3, 1, 1, 2])
        assert weights.report.effective_clicks == pytest.approx(effective_sample_size(w, c))
        assert (weights.report.clipped_clicks, weights.report.largest_weight) == (1, pytest.approx(5.0))

    def test_pages_are_counted_where_they_are_named(self, duckdb_engine: DuckDBEngine) -> None:
        """Three pages of one query; document 7 is first on two of them, 8 second on one."""
        table = pa.table({"query": ["q"] * 4, "doc": [7, 8, 7, 9], "position": [1, 2, 1, 1], "page": [1, 1, 2, 3],
                          "click": [1, 0, 0, 1]})  # fmt: skip
        log = read_log(table, page="page", engine=duckdb_engine)
        weights = weigh(log, position_model(), policy_aware=True, normalise=True)
        found = {row["doc"]: row for row in rows_of(log, weights.table, "doc")}
        shares = {doc: row["policy_propensity"] for doc, row in found.items()}
        assert shares == {7: pytest.approx(2 / 3), 8: pytest.approx(0.5 / 3), 9: pytest.approx(1 / 3)}
        assert found[7]["ips_weight"] + found[9]["ips_weight"] == pytest.approx(2)

    def test_the_same_arm_everywhere_gives_the_mean_propensity(self, duckdb_engine: DuckDBEngine) -> None:
        table = pa.table({"query": ["q"] * 4, "doc": [7, 8, 8, 7], "position": [1, 2, 1, 2], "click": [1, 0, 1, 0]})
        log = read_log(table, engine=duckdb_engine)
        rows = rows_of(log, weigh(log, position_model(), policy_aware=True).table, "doc")
        assert [row["policy_propensity"] for row in rows] == pytest.approx([0.75] * 4)


def test_the_file_holds_rows_and_report(duckdb_engine: DuckDBEngine, tmp_path: Path) -> None:
    table = context_log()
    log = read_log(table, query="q", position="rank", context=CONTEXT, engine=duckdb_engine)
    report = weigh_to_parquet(log, context_model(table), tmp_path / "weighted.parquet", clip=0.3, normalise=True)
    written = pq.read_table(tmp_path / "weighted.parquet")
    assert written.num_rows == table.num_rows
    assert written.schema.field("rank").type == pa.int16()
    metadata = json.loads(written.schema.metadata[b"clickharvest"])
    assert metadata == {"what": "weights", "anchor": 1, **report.to_dict()}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (lambda log, model: weigh(log, model, clip=0), "expected a propensity above 0"),
        (lambda log, model: weigh(log, model, clip=1.5), "at most 1"),
        (lambda log, model: weigh(log, model, clip=NAN), "such as 0.05"),
        (lambda log, model: weigh(log, model, clip="half"), "or 'auto'"),
    ],
)
def test_what_is_refused(
    duckdb_engine: DuckDBEngine, problem: Callable[[ClickLog, Propensities], Any], message: str
) -> None:
    table = pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]})
    with pytest.raises(InputError, match=message):
        problem(read_log(table, engine=duckdb_engine), position_model())


def test_clashing_names_missing_contexts_and_infinite_weights_are_refused(duckdb_engine: DuckDBEngine) -> None:
    table = context_log(rows=30)
    log = read_log(table, query="q", position="rank", context=["device"], engine=duckdb_engine)
    with pytest.raises(InputError, match=r"depends on the context column 'length', 'age', 'pays'.*read with 'device'"):
        weigh(log, context_model(table))
    taken = table.append_column("Propensity", pa.array([0.5] * 30))
    log = read_log(taken, query="q", position="rank", engine=duckdb_engine)
    with pytest.raises(InputError, match="has a column 'Propensity' already"):
        weigh(log, position_model())
    never = Propensities(make_curve("constant", (1, 2, 4), 1, 0), {"b": np.array([-1.0, -800.0])}, None, (1, 2, 4))
    log = read_log(table, query="q", position="rank", engine=duckdb_engine)
    with pytest.raises(InputError, match=r"propensity of 0.*clip"):
        weigh(log, never)
    assert weigh(log, never, clip=0.01).report.largest_weight == pytest.approx(100)
    chosen = weigh(log, never, clip="auto").report
    assert chosen.clip is not None
    assert chosen.largest_weight == pytest.approx(1 / chosen.clip)
    empty = table.set_column(2, "rank", pa.array([None, *table["rank"].to_pylist()[1:]], pa.int16()))
    with pytest.raises(InputError, match="'rank' is empty"):
        weigh(read_log(empty, query="q", position="rank", engine=duckdb_engine, validate=False), position_model())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weigh")
    table = context_log()
    pq.write_table(table, folder / "clicks.parquet")
    context_model(table).save(folder / "model.safetensors")
    return folder


def test_weigh_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roles = ("--query", "q", "--position", "rank")
    files = (folder / "clicks.parquet", folder / "model.safetensors")
    out = folder / "weighted.parquet"
    assert run("weigh", *files, *roles, "--clip", "0.3", "-o", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    written = pq.read_table(out)
    w = np.array([row["ips_weight"] for row in written.to_pylist() if row["click"]])
    assert told["file"] == str(out)
    assert (told["rows"], told["clip"], told["clicks"]) == (400, 0.3, len(w))
    assert told["effective_clicks"] == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert math.isclose(w.max(), 1 / 0.3)
    assert run("weigh", *files, *roles, "--context", "pays,age,length,device", "--clip", "auto", "-o", out) == 0
    printed = capsys.readouterr().out
    assert "Effective sample size" in printed
    assert max(map(len, printed.splitlines())) <= 80 or str(out) in printed.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "name a file with -o"),
        (("-o", "out.csv"), "should end in .parquet"),
        (("-o", "out.parquet", "--clip", "much"), "--clip much: expected"),
        (("-o", "out.parquet", "--clip", "0"), "above 0 and at most 1"),
        (("-o", "out.parquet", "--context", "device"), "leave --context out"),
    ],
)
def test_bad_options_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    roles = ("--query", "q", "--position", "rank")
    assert run("weigh", folder / "clicks.parquet", folder / "model.safetensors", *roles, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("out.parquet").exists()


def test_weights_beyond_all_squares_have_an_effective_number() -> None:
    assert effective_sample_size([1e300, 1e300]) == pytest.approx(2)
    assert effective_sample_size([0.5, 0.5, 0.5]) == pytest.approx(3)
    assert effective_sample_size([]) == 0
