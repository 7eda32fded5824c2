"""Labels for other trainers: counted by hand, and intervals that cover."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.logs.reading import read_log
from clickharvest.rank.labels import poisson_interval, relevance_labels
from clickharvest.rank.tables import read_clicks
from command_line import run
from samples import fixed_curve

LOG = {
    "query": ["1", "1", "1"], "doc": ["a", "b", "c"], "position": [1, 2, 1], "ranker": ["x", "x", "y"],
    "clicks": [3, 1, 1], "impressions": [9, 9, 1], "propensity": [1.0, 0.5, 1.0],
}  # fmt: skip
"""Arm x showed a and b on nine pages, y showed c on one."""


def test_labels_count_the_pages_that_did_not_show_a_document() -> None:
    table = relevance_labels(read_log(pa.table(LOG), ranker="ranker"), level=0.9)
    found = {name: table[name].to_pylist() for name in table.column_names}
    assert (found["doc"], found["clicks"], found["pages"]) == (["a", "b", "c"], [3, 1, 1], [10, 10, 10])
    assert found["exposure"] == pytest.approx([9, 4.5, 1])
    assert found["policy_propensity"] == pytest.approx([0.9, 0.45, 0.1])
    assert found["relevance"] == pytest.approx([3 / 9, 1 / 4.5, 1])
    assert found["lower"][0] == pytest.approx(chi2.ppf(0.05, 6) / 2 / 9)
    assert found["upper"][0] == pytest.approx(chi2.ppf(0.95, 8) / 2 / 9)


@pytest.mark.parametrize("mean", [0.3, 2.0, 15.0])
def test_intervals_cover_at_least_as_often_as_they_say(mean: float) -> None:
    counts = np.random.default_rng(0).poisson(mean, 4_000)
    lower, upper = poisson_interval(counts, 0.9)
    assert np.mean((lower <= mean) & (mean <= upper)) > 0.89


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table(LOG), tmp_path / "log.parquet")
    out = tmp_path / "labels.parquet"
    counted = ("--clicks", "clicks", "--impressions", "impressions", "--ranker", "ranker")
    assert run("labels", tmp_path / "log.parquet", *counted, "-o", out) == 0
    assert capsys.readouterr().out == f"Labels of 3 documents: {out}\n"
    found = pq.read_table(out)
    assert found.column_names[:4] == ["query", "doc", "clicks", "exposure"]
    assert json.loads(found.schema.metadata[b"clickharvest"])["what"] == "labels"
    assert run("labels", tmp_path / "log.parquet", *counted, "-o", tmp_path / "labels.csv") == 2
    assert "should end in .parquet" in capsys.readouterr().err
    assert run("labels", tmp_path / "log.parquet", *counted) == 2
    assert "nowhere to write" in capsys.readouterr().err


def test_a_level_that_is_none() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        relevance_labels(read_log(pa.table(LOG)), level=95)


def test_the_order_of_sums_changes_nothing() -> None:
    """Threads of an engine add in any order, and data that are the same have the same fingerprint."""
    random = np.random.default_rng(0)
    shown = {"query": ["q"] * 600, "doc": ["a", "b", "c"] * 200, "position": random.integers(1, 11, 600)}
    rows = pa.table(shown | {"click": random.integers(0, 2, 600), "propensity": random.choice([0.1, 0.2, 0.3], 600)})
    logs = [read_log(rows.take(random.permutation(600))) for _ in range(4)]
    labels = [relevance_labels(log) for log in logs]
    assert all(table.equals(labels[0]) for table in labels)
    documents = pa.table({"doc": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    assert len({read_clicks(log, documents).data.fingerprint for log in logs}) == 1


def test_clicks_without_a_propensity_of_their_own_are_told() -> None:
    shown = {"query": ["q", "q", "q"], "doc": ["a", "b", "c"], "position": [1, 2, 3], "click": [1, 1, 1]}
    log = read_log(pa.table(shown))
    with pytest.warns(HarvestWarning, match="33 % of the clicks .* their exposure is that of the last position"):
        table = relevance_labels(log, fixed_curve({1: 0.0, 2: -0.5}))
    assert table.num_rows == 3
