"""Places on the command line: simulate, check, harvest, fit, weigh, propensities, compare, report, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clickharvest.model.loading import load_propensities
from command_line import run

PLACES = ("--place", "row,column", "--page", "view")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("places")
    assert run("simulate", "grid", "--pages", 3_000, "-o", folder / "grid") == 0
    assert run("fit", folder / "grid" / "log.parquet", *PLACES, "--anchor", "1,1", "-o", folder / "m.safetensors") == 0
    return folder


def test_a_harvest_keeps_the_places_and_gives_the_same_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = folder / "harvest.parquet"
    assert run("harvest", folder / "grid" / "log.parquet", *PLACES, "-o", kept) == 0
    assert run("fit", kept, "--anchor", "1,1", "-o", folder / "again.safetensors") == 0
    capsys.readouterr()
    one, two = (load_propensities(folder / name) for name in ("m.safetensors", "again.safetensors"))
    assert one.places == two.places
    assert np.array_equal(one.predict().propensity, two.predict().propensity)
    assert run("compare", folder / "m.safetensors", folder / "again.safetensors") == 0
    assert "relative to row 1, column 1" in capsys.readouterr().out


def test_check_and_fit_tell_places_by_their_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", folder / "grid" / "log.parquet", *PLACES) == 0
    assert run("show", folder / "m.safetensors") == 0
    printed = capsys.readouterr().out
    assert "examination relative to row 1, column 1" in printed
    assert "Propensity relative to row 1, column 1" in printed
    assert "position" not in printed.split("Made by")[0]
    assert max(len(line) for line in printed.splitlines() if not line.startswith(("Command", "next: "))) <= 80
    assert run("show", folder / "m.safetensors", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["places"]["columns"] == ["row", "column"]
    assert told["typical_context"][6]["place"] == "row 2, column 3"


def test_propensities_have_the_columns_of_places(folder: Path) -> None:
    assert run("propensities", folder / "m.safetensors", "-o", folder / "p.parquet") == 0
    table = pq.read_table(folder / "p.parquet")
    assert table.column_names == ["position", "row", "column", "propensity", "lower", "upper", "propensity_state"]
    truth = pq.read_table(folder / "grid" / "truth.parquet")
    assert table["row"].to_pylist() == truth["row"].to_pylist()
    assert np.abs(np.log(table["propensity"].to_numpy() / truth["examination"].to_numpy())).max() < 0.35


def test_weights_go_by_label_even_where_another_log_numbers_places_otherwise(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = pq.read_table(folder / "grid" / "log.parquet")
    later = log.filter(pc.not_equal(log["row"], 1)).slice(0, 3_000)
    lost = later.slice(0, 4).set_column(later.schema.get_field_index("row"), "row", pa.array([9] * 4))
    pq.write_table(pa.concat_tables([later, lost]), folder / "later.parquet")
    out = folder / "weighed.parquet"
    assert run("weigh", folder / "later.parquet", folder / "m.safetensors", "-o", out) == 0
    assert "row 9, column" in " ".join(capsys.readouterr().out.split())
    rows, model = pq.read_table(out).to_pylist(), load_propensities(folder / "m.safetensors")
    assert model.places is not None
    predicted = dict(zip(model.places.labels, model.predict().clipped()[0], strict=True))
    for row in rows:
        if row["row"] != 9:
            assert row["propensity"] == predicted[row["row"], row["column"]]
        else:
            # A middling place of its column.
            column = sorted(p for (_, j), p in predicted.items() if j == row["column"])
            assert (row["propensity"], row["propensity_state"]) == (column[1], "cannot tell")
    assert list(rows[0]) == [*log.column_names, "propensity", "ips_weight", "propensity_state"]


def test_a_report_draws_a_grid(folder: Path) -> None:
    out = folder / "report.html"
    log = ("--log", folder / "grid" / "log.parquet", "--page", "view")
    assert run("report", folder / "m.safetensors", *log, "-o", out) == 0
    page = out.read_text()
    assert 'id="fig-places"' in page
    assert "relative to row 1, column 1" in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["places"]["grid"]["7"] == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("fit {log} --place row,column --curve power -o x.safetensors", "the curve 'power' goes down a list"),
        ("fit {log} --place row,column --swap 3 -o x.safetensors", "places (row, column) have no ranks"),
        ("fit {log} --place row,column --max-position 3 -o x.safetensors", "places (row, column) have no ranks"),
        ("fit {log} --place row,column --anchor 9,9 -o x.safetensors", "no place '9,9' (row, column)"),
        ("fit {log} --place row,column --position row -o x.safetensors", "does not go with --position"),
        ("check {log} --place row,shelf", "no column 'shelf'"),
        ("plan {log} --place row,column", "plan speaks of ranks"),
        ("tally {log} --place row,column -o x.parquet", "places have no tally"),
        ("harvest {log} --place row,column --emit-sql duckdb", "--emit-sql does not go with --place"),
        ("rank {log} {log} --model {model} -o x.json", "speaks of places, and rankers are judged by lists"),
        ("weigh {log} {model} --place device -o x.parquet", "read it with --place row,column"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    arguments: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments.format(log=folder / "grid" / "log.parquet", model=folder / "m.safetensors").split()
    assert run(*words) == 2
    error = capsys.readouterr().err.strip()
    assert told in " ".join(error.split()), error


def test_what_speaks_of_other_places_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model, a harvest or options that would be taken for something else, without a word."""
    log, model, out = folder / "grid" / "log.parquet", folder / "m.safetensors", folder / "w.parquet"
    rows = pq.read_table(log)
    renamed = pa.array([f"r{value}" for value in rows["row"].to_pylist()])
    pq.write_table(rows.set_column(rows.column_names.index("row"), "row", renamed), folder / "other.parquet")
    harvest = folder / "kept.parquet"
    assert run("harvest", log, *PLACES, "-o", harvest) == 0
    refused = {
        "none of the log's 12 places is one of the model's 12: found row r1, column 1, expected such as row 1":
            ("weigh", folder / "other.parquet", model, "--page", "view", "-o", out),
        "--place row: ": ("check", harvest, "--place", "row"),
        "holds interventions at places by row, column":
            ("fit", harvest, "--place", "x", "-o", folder / "x.safetensors"),
        "affine knows positions of a list, found places by row, column":
            ("fit", log, *PLACES, "--model", "affine", "-o", folder / "a.safetensors"),
        "options of a log go with a LOG": ("plan", "--pages", 5_000, *PLACES),
        "options of a log go with --log": ("report", model, *PLACES, "-o", folder / "r.html"),
    }  # fmt: skip
    capsys.readouterr()
    for message, words in refused.items():
        assert run(*words) == 2, words
        assert message in capsys.readouterr().err, message
    assert not out.exists()


def test_one_model_is_scored_against_click_rates_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Places have no 1/k."""
    assert run("compare", folder / "m.safetensors", "--log", folder / "grid" / "log.parquet", "--page", "view") == 0
    assert "m.safetensors explains these clicks better than click rates." in " ".join(capsys.readouterr().out.split())
