from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from checks.worlds import ENGINE
from clickharvest.checks.diagnosing import Diagnosis, diagnose
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.collecting import harvest
from clickharvest.logs.reading import read_log
from clickharvest.simulate import simulate_ab_log


def log_of(rows: list[tuple[Any, ...]], names: str, **options: Any) -> Any:
    columns = dict(zip(names.split(), zip(*rows, strict=True), strict=True))
    table = pa.table({name: list(column) for name, column in columns.items()})
    return read_log(table, validate=False, engine=ENGINE, **options)  # a few rows that are all clicked would be refused


def finding(diagnosis: Diagnosis, name: str) -> Any:
    (found,) = [finding for finding in diagnosis.findings if finding.kind == name]
    return found


def test_overlap_by_hand() -> None:
    """Unit a: 3 impressions at 1, 1 at 2, clicks 2 and 1. Unit b: 1 at 1, 1 at 3, clicks 0 and 1."""
    rows = [("q", "a", 1, 3, 2), ("q", "a", 2, 1, 1), ("q", "b", 1, 1, 0), ("q", "b", 3, 1, 1), ("q", "c", 3, 9, 1)]
    diagnosis = diagnose(log_of(rows, "query doc position impressions clicks"))
    assert [(p.position, p.other, p.units, p.clicks, p.other_clicks) for p in diagnosis.pairs] == [
        (1, 2, 1, 2, 1),
        (1, 3, 1, 0, 1),
    ]
    effective = {(1, 2): 3 * 4 * 0.75 * 0.25, (1, 3): 1 * 4 * 0.5 * 0.5}
    assert {(p.position, p.other): p.effective_clicks for p in diagnosis.pairs} == pytest.approx(effective)
    # Examination of 1 by that of 2 is 2 · ¼ / (1 · ¾), and shares of a are as 3 · ⅔ to 1; 3 is not linked.
    information = {(1, 2): 3 * 2 / 3**2, (1, 3): 0.0}
    assert {(p.position, p.other): p.information for p in diagnosis.pairs} == pytest.approx(information)
    first = diagnosis.overlaps[0]
    assert (first.units, first.clicks, first.effective_clicks) == (2, 2, pytest.approx(sum(effective.values())))
    assert diagnosis.totals == {
        "impressions": 15,
        "clicks": 5,
        "queries": 1,
        "units": 2,
        "clicked_units": 2,
        "unit_clicks": 4,
    }
    assert diagnosis.linked == (1, 2)
    last = diagnosis.overlaps[-1]
    assert (last.position, last.effective_queries, last.top_query, last.top_share) == (3, 1.0, "q", 1.0)
    assert [(s.position, s.impressions, s.clicks) for s in diagnosis.shown] == [(1, 4, 2), (2, 1, 1), (3, 10, 2)]
    assert finding(diagnosis, "connectivity").value == pytest.approx(2 / 3)


def test_positions_whose_units_were_never_clicked_rest_on_nothing() -> None:
    rows = [("q", "a", 1, 3, 0), ("q", "a", 2, 3, 0), ("q", "b", 1, 5, 5)]
    diagnosis = diagnose(log_of(rows, "query doc position impressions clicks"))
    for overlap in diagnosis.overlaps:
        assert (overlap.units, overlap.clicks, overlap.effective_clicks) == (1, 0, 0)
        assert (overlap.effective_queries, overlap.top_query, overlap.top_share) == (0.0, None, 0.0)
    assert (diagnosis.totals["units"], diagnosis.totals["clicked_units"]) == (1, 0)


def test_a_log_without_interventions_has_no_overlap_to_judge() -> None:
    diagnosis = diagnose(log_of([("q", "a", 1, 1), ("q", "b", 2, 0)], "query doc position click"))
    assert diagnosis.overlaps == diagnosis.pairs == ()
    assert [f.kind for f in diagnosis.findings] == ["connectivity"]
    assert diagnosis.totals["unit_clicks"] == 0


def test_effective_queries_by_hand() -> None:
    """Query q has twice the clicks of r at equal exposures: (2 + 1)² / (2² + 1²) = 1.8 effective queries."""
    rows = [("q", "a", 1, 5, 2), ("q", "a", 2, 5, 2), ("r", "b", 1, 5, 1), ("r", "b", 2, 5, 1)]
    (first, _) = diagnose(log_of(rows, "query doc position impressions clicks")).overlaps
    assert first.effective_queries == pytest.approx(1.8)
    assert (first.top_query, first.top_share) == ("q", pytest.approx(2 / 3))


@pytest.mark.parametrize(("clicks", "status"), [(2, "ok"), (3, "warning"), (4, "warning")])
def test_a_query_with_half_of_what_is_known_dominates(clicks: int, status: str) -> None:
    """Query q has so many clicks of 3 others': 2 / 5 are fewer than half, 3 / 6 are half, 4 / 7 are more."""
    queries = {"q": clicks, "r": 1, "s": 1, "t": 1}
    rows = [(query, "a", k, 5, n) for query, n in queries.items() for k in (1, 2)]
    found = finding(diagnose(log_of(rows, "query doc position impressions clicks")), "dominance")
    assert found.severity == status
    assert found.value == pytest.approx((clicks + 3) ** 2 / (clicks**2 + 3))
    assert ("One query (q) carries" in found.sentence) == (status == "warning")
    if status == "warning":
        assert f"{100 * clicks / (clicks + 3):.0f} % of what is known about position 1" in found.sentence


def test_a_position_of_which_nothing_is_known_rests_on_no_queries() -> None:
    """Position 3 was shown, and never clicked: `Every position rests on 0 effective queries` would praise it."""
    rows = [(q, "d", k, 50, 20 // k) for q in range(9) for k in (1, 2)] + [(0, "e", 3, 50, 0)]
    diagnosis = diagnose(log_of(rows, "query doc position impressions clicks"))
    assert "rests on 9 effective queries" in finding(diagnosis, "dominance").sentence
    none = diagnose(log_of([(0, "d", 1, 50, 0), (0, "d", 2, 50, 0)], "query doc position impressions clicks"))
    assert "dominance" not in {one.kind for one in none.findings}


@cache
def of_cut_log(**options: Any) -> Diagnosis:
    """Diagnose an A/B log in which no document moves between positions 1-5 and 6-10."""
    table, _ = simulate_ab_log(pages=2000, queries=20, seed=1)
    low = pa.compute.greater(table["position"], 5)
    doc = pa.compute.if_else(low, pa.compute.binary_join_element_wise(table["doc"], "low", " "), table["doc"])
    table = table.set_column(table.column_names.index("doc"), "doc", doc)
    return diagnose(read_log(table, engine=ENGINE), **options)


def test_positions_without_a_link_are_named_with_remedies() -> None:
    diagnosis = of_cut_log()
    assert not diagnosis.identified
    assert diagnosis.linked == (1, 2, 3, 4, 5)
    assert diagnosis.unlinked == (6, 7, 8, 9, 10)
    told = (
        r"Positions 6-10 cannot be linked.*swap neighbours among ranks 5-10 .* on 5 %.*random order.*--max-position 5"
    )
    with pytest.raises(NotIdentifiedError, match=told):
        diagnosis.require_identified()


def test_leaving_them_out_helps() -> None:
    diagnosis = of_cut_log(max_position=5)
    assert diagnosis.positions == (1, 2, 3, 4, 5)
    assert diagnosis.identified
    diagnosis.require_identified()


def test_another_anchor_links_the_others() -> None:
    assert of_cut_log(anchor=6).unlinked == (1, 2, 3, 4, 5)


def test_an_anchor_never_shown_is_told() -> None:
    diagnosis = of_cut_log(anchor=99)
    assert not diagnosis.identified
    assert "Position 99 was never shown" in finding(diagnosis, "connectivity").sentence


def test_an_anchor_is_a_position() -> None:
    assert of_cut_log().anchor == 1
    with pytest.raises(InputError, match="the anchor is 0"):
        of_cut_log(anchor=0)


def test_clicks_on_one_side_only_do_not_link() -> None:
    rows = [("q", "a", 1, 1), ("q", "a", 2, 1), ("q", "b", 2, 1), ("q", "b", 3, 0), ("q", "c", 3, 1)]
    diagnosis = diagnose(log_of(rows, "query doc position click"))
    assert diagnosis.unlinked == (3,)
    assert "clicked on one side only" in finding(diagnosis, "connectivity").sentence


def test_one_position_is_nothing_to_compare() -> None:
    diagnosis = diagnose(log_of([("q", "a", 1, 1)], "query doc position click"))
    assert not diagnosis.identified
    assert "Only one position" in finding(diagnosis, "connectivity").sentence


def test_segments_tell_which_context_cannot_stand_alone() -> None:
    rows = [("q", "a", k, 1, "desk") for k in (1, 2, 3)] + [("q", "a", k, 1, "phone") for k in (1, 2)]
    diagnosis = diagnose(
        log_of([*rows, ("q", "b", 3, 0, "phone")], "query doc position click device", context=["device"])
    )
    assert {(s.level, s.linked) for s in diagnosis.segments} == {("desk", (1, 2, 3)), ("phone", (1, 2))}
    assert finding(diagnosis, "segments").severity == "warning"
    assert "device = phone lacks 3" in finding(diagnosis, "segments").sentence
    assert finding(diagnosis, "segments").value == pytest.approx(1 - 1 / 2)
    assert {(s.level, s.clicks) for s in diagnosis.segments} == {("desk", 3), ("phone", 2)}


def test_segments_that_stand_alone_are_told_too() -> None:
    rows = [("q", "a", k, 1, device) for k in (1, 2, 3) for device in ("desk", "phone")]
    diagnosis = diagnose(log_of(rows, "query doc position click device", context=["device"]))
    found = finding(diagnosis, "segments")
    assert (found.severity, found.value) == ("ok", 1.0)
    assert "Each of the 2 context segments" in found.sentence


@pytest.mark.parametrize("count", [20, 21])
def test_more_than_twenty_levels_of_text_are_put_together(count: int) -> None:
    names = [f"n{i:02}" for i in range(count)]
    rows = [("q", f"{name}-{i}", k, 1, name) for name in names for i in range(1 + (name < "n20")) for k in (1, 2)]
    levels = {s.level for s in diagnose(log_of(rows, "query doc position click name", context=["name"])).segments}
    assert levels == set(names[:20]) | ({"(other)"} if count > 20 else set())


def test_numeric_contexts_are_cut_at_quartiles_and_empty_values_kept() -> None:
    length = [*range(1, 41), None]
    rows = [("q", f"d{n}", k, 1, n) for n in length for k in (1, 2)]
    segments = diagnose(log_of(rows, "query doc position click length", context=["length"])).segments
    assert {s.level: s.clicks for s in segments} == {
        "(empty)": 2,
        "<= 10.75": 20,
        "<= 20.5": 20,
        "<= 30.25": 20,
        "> 30.25": 20,
    }


def test_quarters_of_numbers_that_differ_late_are_told_apart() -> None:
    """Seconds since 1970 are the same to six digits."""
    rows = [("q", f"d{n}", k, 1, 1_760_000_000.0 + n) for n in range(40) for k in (1, 2)]
    segments = diagnose(log_of(rows, "query doc position click seconds", context=["seconds"])).segments
    assert sorted(s.clicks for s in segments) == [20] * 4


@pytest.mark.parametrize("values", [2, 40])
def test_numbers_that_differ_by_rounding_are_one_segment(values: int) -> None:
    rows = [("q", f"d{n}", k, 1, 1e6 + (n % values) * 1.2e-10) for n in range(40) for k in (1, 2)]
    segments = diagnose(log_of(rows, "query doc position click sum", context=["sum"])).segments
    assert {s.level: s.clicks for s in segments} == {"1e+06": 80}


def test_contexts_unique_to_each_impression_are_called_out() -> None:
    rows = [("q", "a", 1 + n % 2, 1, float(n)) for n in range(40)]
    diagnosis = diagnose(log_of(rows, "query doc position click score", context=["score"]))
    assert not diagnosis.identified
    sentence = finding(diagnosis, "repetition").sentence
    assert "every impression is unique" in sentence
    for remedy in ("--unit query", "coarser", "--rankings"):
        assert remedy in sentence
    by_query = diagnose(log_of(rows, "query doc position click score", context=["score"]), unit="query")
    assert by_query.identified


def test_contexts_constant_within_queries_are_told_from_others() -> None:
    rows = [(q, "a", k, 1, q, d) for q in "qr" for k in (1, 2) for d in ("desk", "phone")]
    diagnosis = diagnose(log_of(rows, "query doc position click topic device", context=["topic", "device"]))
    sentence = finding(diagnosis, "context within queries").sentence
    assert sentence == "topic: constant within every query; device varies within 100.0 % of queries."


def test_interventions_are_diagnosed_like_their_log() -> None:
    log = read_log(simulate_ab_log(pages=1000)[0], context=["device"])
    whole, harvested = diagnose(log), diagnose(harvest(log))
    for ours, theirs in zip(harvested.pairs, whole.pairs, strict=True):
        assert asdict(ours) == pytest.approx(asdict(theirs))
    assert harvested.segments == whole.segments
    assert harvested.linked == whole.linked


def test_a_text_file_is_diagnosed_like_its_table(tmp_path: Path) -> None:
    """Rows of a CSV file are parsed once and kept; design and cut apply as to any log."""
    table = simulate_ab_log(pages=200, queries=10)[0]
    pyarrow.csv.write_csv(table, tmp_path / "log.csv")
    text = read_log(tmp_path / "log.csv")
    assert text.is_text
    assert not text.parsed().is_text
    assert not read_log(table).is_text
    for options in ({}, {"max_position": 5, "unit": "query"}):
        of_file, of_table = (diagnose(log, **options) for log in (text, read_log(table)))
        assert [found.sentence for found in of_file.findings] == [found.sentence for found in of_table.findings]
        assert replace(of_file, findings=(), pairs=(), overlaps=()) == replace(
            of_table, findings=(), pairs=(), overlaps=()
        )
        for one, other in zip(of_file.pairs + of_file.overlaps, of_table.pairs + of_table.overlaps, strict=True):
            assert asdict(one) == pytest.approx(asdict(other))


def test_the_dictionary_is_json() -> None:
    diagnosis = of_cut_log()
    plain = json.loads(json.dumps(diagnosis.to_dict(), allow_nan=False))
    assert plain["unlinked"] == [6, 7, 8, 9, 10]
    assert plain["identified"] is False


def test_the_real_log(yandex_log: Any) -> None:
    diagnosis = diagnose(read_log(yandex_log, page="session"))
    assert diagnosis.identified
    assert len(diagnosis.pairs) == 45
    assert min(pair.units for pair in diagnosis.pairs) > 0
    assert finding(diagnosis, "dominance").severity == "warning"
    assert "9982_0" in finding(diagnosis, "dominance").sentence
    assert diagnosis.totals["clicks"] == 42_703
    assert np.sum([shown.impressions for shown in diagnosis.shown]) == 350_640
