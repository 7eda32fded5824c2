"""Queries whose results never moved are counted, where they matter."""

from __future__ import annotations

import pyarrow as pa
import pytest

from checks.worlds import ENGINE
from clickharvest.checks.diagnosing import diagnose
from clickharvest.checks.finding import Finding
from clickharvest.logs.reading import read_log


def found(still: int, *, clicked: bool = True) -> list[Finding]:
    """Ten clicks of a query whose results move, and some clicks of one whose results do not, or move unclicked."""
    moving = [("a", doc, position, 1) for doc in "xy" for position in (1, 2) for _ in range(2)]
    moving += [("a", "x", 1, 1), ("a", "y", 2, 1)]
    resting = [("b", "x", 1, 1)] * still
    resting += [("b", "z", position, 0) for position in (1, 2) if not clicked]
    query, doc, position, click = zip(*moving, *resting, strict=True)
    table = pa.table({"query": query, "doc": doc, "position": position, "click": click})
    log = read_log(table, validate=False, engine=ENGINE)
    return [one for one in diagnose(log).findings if one.kind == "unmoved queries"]


@pytest.mark.parametrize(("still", "status"), [(0, None), (1, None), (2, "note"), (3, "note"), (4, "warning")])
def test_clicks_of_queries_that_do_not_move_are_told_from_a_tenth_on(still: int, status: str | None) -> None:
    findings = found(still)
    assert [one.severity for one in findings] == ([] if status is None else [status])
    if findings:
        assert findings[0].value == pytest.approx(still / (10 + still))
        assert findings[0].sentence.startswith(f"{100 * still / (10 + still):.1f} % of the clicks are of queries whose")


def test_results_that_moved_without_a_click_tell_nothing() -> None:
    (finding,) = found(10, clicked=False)
    assert finding.value == pytest.approx(0.5)
