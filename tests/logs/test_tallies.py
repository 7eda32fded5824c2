"""Counts kept day by day are read as the log of all days."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.files import SHARED
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Design, Rankings, Swap
from clickharvest.logs.incomplete_logs import doubts
from clickharvest.logs.reading import read_log
from clickharvest.logs.tallies import find_tallies, write_tally
from clickharvest.simulate import simulate_ab_log
from command_line import Command

pytestmark = pytest.mark.usefixtures("one_duckdb")

DAYS = 3


@pytest.fixture(scope="module")
def log() -> pa.Table:
    """Three days with empty contexts, numbers, an original position, users and a time."""
    table, _ = simulate_ab_log(pages=1200, queries=20, seed=3)
    page = table["page"].to_numpy()
    length = pa.array([None if p % 7 == 0 else p % 4 / 2 for p in page])
    table = table.append_column("length", length).append_column("original", table["position"])
    table = table.append_column("user", pa.array([f"u{p % 90}" for p in page]))
    return table.append_column("time", pa.array(page))


@pytest.fixture(scope="module")
def folder(log: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tallies")
    for day in range(DAYS):
        part = log.slice(day * log.num_rows // DAYS, log.num_rows // DAYS)
        write_tally(read_log(part, context=["device", "length"]), folder / f"{day}.parquet", keep=["user"])
    return folder


@pytest.mark.parametrize(
    ("unit", "cluster", "context"),
    [
        ("context", "query", ("device", "length")),
        ("context", "user", ("device",)),
        ("query", "query", ()),
        ("query", "doc", ("length",)),
    ],
)
def test_a_harvest_of_tallies_is_that_of_the_log(
    log: pa.Table, folder: Path, unit: Any, cluster: str, context: tuple[str, ...]
) -> None:
    ours, whole = (
        harvest(read_log(source, context=context), unit=unit, cluster=cluster).to_arrow() for source in (folder, log)
    )
    assert ours.equals(whole, check_metadata=True)


@pytest.mark.parametrize("kind", ["rankings", "swap"])
def test_designs_are_those_of_the_log(log: pa.Table, folder: Path, kind: str) -> None:
    ranked = log.group_by(["query", "ranker", "doc", "position"]).aggregate([])
    design: Design = Rankings(ranked) if kind == "rankings" else Swap.uniform(3)
    ours, whole = (harvest(read_log(source), design=design).to_arrow() for source in (folder, log))
    assert ours.drop(["exposure"]).equals(whole.drop(["exposure"]))
    assert ours["exposure"].to_pylist() == pytest.approx(whole["exposure"].to_pylist(), rel=1e-12)


def test_a_check_of_tallies_is_that_of_the_log_but_for_what_counts_cannot_tell(log: pa.Table, folder: Path) -> None:
    ours, whole = (diagnose(read_log(source, context=["device"])) for source in (folder, log))
    assert (ours.totals, ours.shown, ours.linked, ours.segments) == (
        whole.totals, whole.shown, whole.linked, whole.segments,
    )  # fmt: skip
    for one, other in zip((*ours.pairs, *ours.overlaps), (*whole.pairs, *whole.overlaps), strict=True):
        assert vars(one) == pytest.approx(vars(other))
    names = [finding.kind for finding in ours.findings]
    assert {finding.kind for finding in whole.findings} <= {*names}
    # But for the last bit of p-values: they have sums over users, in any order.
    theirs = [replace(finding, p=None).to_dict() for finding in whole.findings]
    same = {finding.kind for finding in ours.findings if replace(finding, p=None).to_dict() in theirs}
    assert {"ranker and query", "ranker and device", "sample ratio", "repetition"} <= same


def test_pages_without_a_click_that_are_missing_are_remembered(log: pa.Table, tmp_path: Path) -> None:
    clicked = {page for page, click in zip(*(log[n].to_pylist() for n in ("page", "click")), strict=True) if click}
    rows = log.filter(pa.array([page in clicked for page in log["page"].to_pylist()]))
    write_tally(read_log(rows), tmp_path / "day.parquet")
    assert read_log(rows).only_clicked_pages
    assert read_log(tmp_path / "day.parquet").only_clicked_pages


def test_clicks_and_rows_that_are_missing_are_remembered(log: pa.Table, tmp_path: Path) -> None:
    """Of every page the first click and every other position: what its log was doubted for, a tally is."""
    page, click, position = (log[name].to_numpy() for name in ("page", "click", "position"))
    order = np.lexsort((position, page))
    table, click = log.take(order), click[order]
    _, begin, number = np.unique(page[order], return_index=True, return_inverse=True)
    before = (np.cumsum(click) - click)[begin][number]
    first = click * (np.cumsum(click) == before + 1)
    kept = table.set_column(table.column_names.index("click"), "click", pa.array(first))
    kept = kept.filter(position[order] % 2 == 1)
    write_tally(read_log(kept), tmp_path / "tally.parquet")
    for source in (kept, tmp_path / "tally.parquet"):
        assert [doubt.name for doubt in doubts(read_log(source))] == ["single clicks", "missing rows"]


def test_tallies_of_tallies_are_tallies(log: pa.Table, folder: Path, tmp_path: Path) -> None:
    context = ["device", "length"]
    write_tally(read_log(folder, context=context), tmp_path / "month.parquet", keep=["user"])
    month = read_log(tmp_path / "month.parquet", context=context)
    assert harvest(month).to_arrow().equals(harvest(read_log(log, context=context)).to_arrow())
    assert month.facts is not None
    assert month.facts.pages == 1200


def test_the_parts_of_a_folder_are_one_tally(folder: Path, tmp_path: Path) -> None:
    """As Spark's executors write it: nothing of ours in the parts' footers."""
    table = pq.read_table(folder / "0.parquet")
    day = tmp_path / "day.parquet"
    day.mkdir()
    pq.write_metadata(table.schema.with_metadata(pq.read_schema(folder / "0.parquet").metadata), day / SHARED)
    for part in range(2):
        rows = table.slice(part * table.num_rows // 2, (part + 1) * table.num_rows // 2 - part * table.num_rows // 2)
        pq.write_table(rows.replace_schema_metadata(None), day / f"part-{part}.parquet")
    for source in (day, tmp_path):
        ours, theirs = read_log(source, context=["device"]), read_log(folder / "0.parquet", context=["device"])
        assert (ours.tallies, ours.facts) == (1, theirs.facts)
        assert harvest(ours).to_arrow().equals(harvest(theirs).to_arrow())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"context": ["device"]}, "their context columns are device, length, and device"),
        ({"context": ["device", "length"]}, "the column 'user' is string, and missing"),
        ({"context": ["device", "length"], "block": {"ranker": "a"}, "keep": ["user"]}, "prepared by"),
    ],
)
def test_tallies_of_different_logs_are_refused(
    log: pa.Table, folder: Path, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    (tmp_path / "0.parquet").write_bytes((folder / "0.parquet").read_bytes())
    keep = options.get("keep", ())
    named = {name: value for name, value in options.items() if name != "keep"}
    write_tally(read_log(log, **named), tmp_path / "1.parquet", keep=keep)
    with pytest.raises(InputError, match=said):
        read_log(tmp_path)


def test_a_log_among_tallies_is_refused(log: pa.Table, folder: Path, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.parquet").write_bytes((folder / "0.parquet").read_bytes())
    pq.write_table(log, tmp_path / "ab.parquet")
    with pytest.raises(InputError, match=r"ab.parquet is no tally, but is among tallies"):
        read_log(tmp_path)


def test_a_day_that_is_counted_twice_is_doubted(folder: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.parquet").write_bytes((folder / "0.parquet").read_bytes())
    with pytest.warns(HarvestWarning, match=r"both count 4,000 rows and \d+ clicks"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"query": "q"}, "leave --query out"),
        ({"position_base": 0}, "leave --position-base out"),
        ({"block": {"ranker": "a"}}, "leave --block out"),
        ({"context": ["country"]}, "without the context column 'country': found device, length"),
    ],
)
def test_what_a_tally_cannot_take_is_told(folder: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_log(folder, **options)


@pytest.mark.parametrize(("keep", "said"), [("page", "the log itself"), ("colour", "no such column, found page")])
def test_what_cannot_be_kept_is_told(log: pa.Table, tmp_path: Path, keep: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        write_tally(read_log(log), tmp_path / "day.parquet", keep=[keep])


def footer(kept: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    sound = {"columns": {"query": "string"}, "context": [], "prepared": {}}
    return {"what": "tally", "version": 1, "kept": sound | kept, "facts": facts}


@pytest.mark.parametrize(
    "about",
    [
        {"what": "tally"},
        {"what": "tally", "version": 9, "kept": {}, "facts": []},
        footer({"columns": {"query": ["string"]}}, {}),
        footer({"columns": "query"}, {}),
        footer({"context": [-1]}, {}),
        footer({"context": "device"}, {}),
        footer({"prepared": [1]}, {}),
        footer({}, {"clicks": [1]}),
        footer({}, {"pages": -1}),
        footer({}, {"pages": 10**400}),
        footer({}, {"rows": True}),
        footer({}, {"shared_example": {}}),
    ],
)
def test_a_broken_footer_is_told(tmp_path: Path, about: dict[str, Any]) -> None:
    table = pa.table({"query": ["q"], "doc": ["a"], "position": [1], "clicks": [1], "impressions": [2]})
    pq.write_table(table.replace_schema_metadata({"clickharvest": json.dumps(about)}), tmp_path / "day.parquet")
    with pytest.raises(InputError, match="tally"):
        read_log(tmp_path / "day.parquet")


def test_a_footer_of_a_hundred_thousand_brackets_is_none(tmp_path: Path) -> None:
    table = pa.table({"query": ["q"], "doc": ["a"], "position": [1], "clicks": [1], "impressions": [2]})
    pq.write_table(table.replace_schema_metadata({"clickharvest": "[" * 100_000}), tmp_path / "day.parquet")
    assert find_tallies(tmp_path / "day.parquet") == []


def test_the_commands(run: Command, log: pa.Table) -> None:
    Path("tallies").mkdir()
    for day in range(2):
        pq.write_table(log.slice(day * 6000, 6000), f"{day}.parquet")
        code, out, _ = run(f"tally {day}.parquet --context device -o tallies/{day}.parquet")
        assert code == 0
        assert out.startswith("6,000 impressions, ")
    assert run("harvest tallies --context device -o ours.parquet")[0] == 0
    pq.write_table(log, "log.parquet")
    assert run("harvest log.parquet --context device -o whole.parquet")[0] == 0
    assert pq.read_table("ours.parquet").to_pydict() == pq.read_table("whole.parquet").to_pydict()
    code, _, err = run("check tallies --context length")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = run("tally tallies -o tallies/again.parquet")
    assert code == 2
    assert "is what the command reads" in err
