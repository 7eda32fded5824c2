"""A harvest that is too large keeps whole queries, and what it estimates stays within its interval."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import HarvestWarning
from clickharvest.estimation import PBM
from clickharvest.harvesting.collecting import harvest, harvest_to_parquet
from clickharvest.harvesting.interventions import Interventions, UnitKind
from clickharvest.harvesting.large_logs import share_to_keep, thin
from clickharvest.harvesting.reading import read_interventions
from clickharvest.logs.reading import read_log
from command_line import Command

pytestmark = pytest.mark.usefixtures("one_duckdb")

QUERIES, POSITIONS = 4_000, 4
STEEPNESS = 1.0


@pytest.fixture(scope="module")
def log() -> pa.Table:
    """A document of each query at all four positions, and one at the top alone, in counted rows."""
    random = np.random.default_rng(7)
    query = np.repeat(np.arange(QUERIES), POSITIONS)
    position = np.tile(np.arange(1, POSITIONS + 1), QUERIES)
    impressions = random.integers(5, 30, size=len(query))
    clicks = random.binomial(impressions, position**-STEEPNESS * random.uniform(0.2, 0.8, QUERIES)[query])
    rows = {"query": query.astype(str), "doc": np.full(len(query), "moving"), "position": position}
    moving = pa.table(rows | {"clicks": clicks, "impressions": impressions})
    still = moving.filter(pa.array(position == 1))
    return pa.concat_tables([moving, still.set_column(1, "doc", pa.array(["still"] * QUERIES))])


def test_whole_queries_are_kept_and_the_thinned_fit_agrees(log: pa.Table) -> None:
    whole = harvest(read_log(log))
    clicks = int(whole.clicks.sum())
    with pytest.warns(HarvestWarning, match=rf"of {clicks:,} clicks, .* about 1\.\d times as wide"):
        part = harvest(read_log(log), max_clicks=clicks // 3)
    assert part.thinned_from == clicks
    assert part.clicks.sum() == pytest.approx(clicks // 3, rel=0.15)
    assert len(part) == POSITIONS * len(np.unique(part.query))
    assert np.isin(part.query, whole.query).all()
    assert part.unit.tolist() == np.repeat(np.arange(part.n_units), POSITIONS).tolist()
    both = [PBM().fit(rows).propensities_.predict() for rows in (whole, part)]
    truth = np.arange(1, POSITIONS + 1) ** -STEEPNESS
    for found in both:
        assert ((found.lower[0] <= truth) & (truth <= found.upper[0]))[1:].all()
    (first, second), widths = both, [np.log(found.upper / found.lower)[0, 1:] for found in both]
    assert ((second.lower <= first.propensity) & (first.propensity <= second.upper)).all()
    assert widths[1] / widths[0] == pytest.approx(np.sqrt(clicks / part.clicks.sum()), rel=0.25)


def test_the_engine_and_the_file_keep_the_same_queries(log: pa.Table, tmp_path: Path) -> None:
    whole = harvest(read_log(log))
    most = int(whole.clicks.sum()) // 3
    with pytest.warns(HarvestWarning, match="Thinned to"):
        here = thin(whole, most)
    with pytest.warns(HarvestWarning, match=f"Thinned to {here.clicks.sum():,} of"):
        assert harvest_to_parquet(read_log(log), tmp_path / "some.parquet", max_clicks=most) == len(here)
    read = read_interventions(tmp_path / "some.parquet")
    assert (read.thinned_from, read.clicks.sum()) == (here.thinned_from, here.clicks.sum())
    assert read.query.tolist() == here.query.tolist()
    read.write(tmp_path / "again.parquet")
    assert read_interventions(tmp_path / "again.parquet").thinned_from == whole.clicks.sum()


@pytest.mark.parametrize("unit", ["context", "query"])
def test_units_without_a_click_stay_in_the_engine(log: pa.Table, unit: UnitKind) -> None:
    few = log.filter(pa.array(np.arange(log.num_rows) < 400)).to_pandas()
    few.loc[few["query"].isin([str(q) for q in range(30)]), "clicks"] = 0
    read = read_log(few)
    ours, theirs = harvest(read, unit=unit, clicked_only=True), harvest(read, unit=unit).clicked()
    assert 0 < len(ours) < len(harvest(read, unit=unit))
    for name in ("query", "position", "clicks", "impressions", "exposure"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist()
    assert ours.unit.tolist() == np.unique(theirs.unit, return_inverse=True)[1].tolist()


def test_few_queries_are_never_thinned(log: pa.Table) -> None:
    few = harvest(read_log(log.filter(pa.array([int(q) < 500 for q in log["query"].to_pylist()]))), max_clicks=10)
    assert isinstance(few, Interventions)
    assert few.n_units == 500
    assert share_to_keep(100, 0, 10) == 1.0


@pytest.mark.filterwarnings("always::clickharvest.errors.HarvestWarning")
def test_the_commands_tell_of_it(run: Command, log: pa.Table) -> None:
    pq.write_table(log, "log.parquet")
    code, out, err = run("fit log.parquet --max-clicks 30000 --intervals none -o m.safetensors")
    assert code == 0
    assert "Thinned to " in err
    assert "Thinned to " in " ".join(out.split())
    found = json.loads(run("show m.safetensors --json")[1])["info"]
    assert found["clicks"] < found["thinned_from"]
    assert found["max_clicks"] == 30_000
    code, out, err = run("report m.safetensors --log log.parquet -o r.html --json")
    assert code == 0
    assert "Thinned to " in Path("r.html").read_text()
    code, out, _ = run("harvest log.parquet --max-clicks 30000 -o i.parquet --json")
    assert json.loads(out)["clicks"] == found["clicks"]
