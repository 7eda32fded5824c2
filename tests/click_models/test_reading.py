"""The reading model: places by hand, a cascade, and the way from a log to weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest import read_log, weigh
from clickharvest.click_models import load_model
from clickharvest.click_models.browsing import Browsing
from clickharvest.click_models.browsing.fitted import BrowsingPropensities
from clickharvest.click_models.reading import (
    GRID,
    SERVED,
    SKIPPED,
    Reading,
    ReadingPropensities,
    ReadInterventions,
    learn_weights,
    reading_log,
)
from clickharvest.errors import InputError
from clickharvest.logs.click_log import ClickLog
from clickharvest.simulate import simulate_protocol
from command_line import run

RANKS = 5


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cascade."""
    path = tmp_path_factory.mktemp("reading") / "log.parquet"
    simulation = simulate_protocol(
        sweeps=25, queries=150, test_queries=2, positions=RANKS, clicks="cascade", eta=0, seed=2
    )
    pq.write_table(simulation.rows(truth=True), path)
    return path


@pytest.fixture(scope="module")
def log(path: Path) -> ClickLog:
    return read_log(str(path))


@pytest.fixture(scope="module")
def model(path: Path) -> Path:
    """The model file of the command."""
    model = path.with_name("m.safetensors")
    assert run("fit", path, "--model", "reading", "-o", model) == 0
    return model


@pytest.fixture(scope="module")
def fitted(model: Path) -> ReadingPropensities:
    fitted = load_model(model)
    assert isinstance(fitted, ReadingPropensities)
    return fitted


@pytest.fixture(scope="module")
def base(fitted: ReadingPropensities) -> BrowsingPropensities:
    return fitted.base


def by_hand(log: ClickLog, base: BrowsingPropensities) -> dict[tuple[int, int], tuple[int, ...]]:
    """The place of every page and rank, row by row."""
    rows = log.engine.fetch(log.table, task="").to_pylist()
    pages: dict[int, list[dict[str, int]]] = {}
    for row in sorted(rows, key=lambda row: row["position"]):
        pages.setdefault(row["page"], []).append(row)
    states = [(k, j) for k in range(1, RANKS + 1) for j in range(k)]
    looked = dict(zip(states, base.propensity_of(*zip(*states, strict=True)).tolist(), strict=True))
    sums: dict[tuple[int, int], list[float]] = {}
    terms: dict[tuple[int, int], list[float]] = {}
    for page, shown in pages.items():
        last = 0
        for row in shown:
            seen = min(looked[row["position"], last], 1.0)
            own = [math.log(r) if row["clicks"] else math.log(1 - seen * r) for r in GRID]
            terms[page, row["position"]] = own
            whole = sums.setdefault((row["query"], row["doc"]), [0.0] * len(GRID))
            sums[row["query"], row["doc"]] = [one + more for one, more in zip(whole, own, strict=True)]
            last = row["position"] if row["clicks"] else last
    weights = learn_weights(np.array(list(sums.values())))
    found = {}
    for page, shown in pages.items():
        last, kept, served = 0, 1.0, 0
        for row in shown:
            rank = row["position"]
            others = np.subtract(sums[row["query"], row["doc"]], terms[page, rank])
            likely = weights * np.exp(others - others.max())
            attraction = float(likely @ GRID / likely.sum())
            skipped = sum(kept < edge - 1e-9 for edge in SKIPPED)
            found[page, rank] = (rank, rank - last if last else 0, skipped, served)
            kept *= 1 - attraction
            if row["clicks"]:
                last, kept, served = rank, 1.0, 1 + sum(attraction >= edge for edge in SERVED)
    return found


def test_places_are_those_by_hand(log: ClickLog, base: BrowsingPropensities) -> None:
    places = reading_log(log, base, None)
    assert places.places is not None
    rows = places.engine.fetch(places.source.select("page", "position", number=places.columns["position"]), task="")
    found = {(row["page"], row["position"]): places.places.labels[row["number"] - 1] for row in rows.to_pylist()}
    expected = by_hand(log, base)
    assert found.keys() == expected.keys()
    differing = [key for key, place in expected.items() if found[key] != place]
    assert len(differing) <= 2  # sums in another order may round to the other side of an edge
    low = reading_log(log, base, 3)
    assert low.places is not None
    assert {label[0] for label in low.places.labels} == {1, 2, 3}


def test_a_cascade_is_seen(log: ClickLog, fitted: ReadingPropensities) -> None:
    weighed = weigh(reading_log(log, fitted.base, None), fitted.places_model, trust="all").table
    rows = log.engine.fetch(weighed.order_by("page", "position"), task="").to_pandas()
    below = rows.position > 1
    last = rows.position.where(rows.click == 1, 0).groupby(rows.page).cummax().groupby(rows.page).shift(fill_value=0)
    browsing = fitted.base.propensity_of(rows.position.to_numpy(), last.to_numpy())
    truth = rows.examination[below].sum()
    ours = np.abs(rows.propensity - rows.examination)[below].sum() / truth
    theirs = np.abs(browsing - rows.examination)[below].sum() / truth
    assert ours < 0.35 * theirs
    skipped, served = fitted.steps("skipped", 0), fitted.steps("served", 1)
    assert skipped[max(skipped)] < 0.5
    assert served[max(served)] < 0.8  # half leave once served


def test_from_a_log_to_weights(
    path: Path, model: Path, fitted: ReadingPropensities, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "w.parquet"
    assert run("show", model) == 0
    assert "they have left" in " ".join(capsys.readouterr().out.split())
    assert run("show", model, "--json") == 0
    described = json.loads(capsys.readouterr().out)
    assert described["model"] == "reading"
    assert described["skipped"]
    assert run("propensities", model, "-o", tmp_path / "p.parquet") == 0
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names[:4] == ["position", "distance", "skipped", "served"]
    assert run("weigh", path, model, "-o", weights) == 0
    rows = pq.read_table(weights)
    added = ["propensity", "ips_weight", "propensity_state"]
    assert rows.column_names == [*pq.read_schema(path).names, *added]
    assert rows.num_rows == pq.read_metadata(path).num_rows
    assert run("report", model, "-o", tmp_path / "page.html") == 0
    text = (tmp_path / "page.html").read_text()
    assert "they have left" in text
    assert "The table is its first step" in text
    fitted.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == model.read_bytes()


def test_nonsense_is_refused(log: ClickLog, base: BrowsingPropensities) -> None:
    states = Browsing().harvest(log)
    with pytest.raises(InputError, match="fitted to the result of its own harvest"):
        Reading().fit(states)
    with pytest.raises(InputError, match="relative to the top of the page"):
        Reading(anchor=2).fit(ReadInterventions(**vars(states), base=base))


def test_columns_of_any_name_come_through(path: Path, base: BrowsingPropensities) -> None:
    rows = pq.read_table(path).slice(0, 2_000)
    more = rows.append_column("_k", rows["page"]).append_column("own_0", rows["doc"])
    places = reading_log(read_log(more), base, None)
    kept = places.engine.fetch(places.source, task="")
    assert kept["_k"].equals(kept["page"])
    assert kept["own_0"].equals(kept["doc"])


def test_contexts_change_what_a_place_is_worth_as_they_change_its_state() -> None:
    simulation = simulate_protocol(
        sweeps=15, queries=80, test_queries=2, positions=3, clicks="cascade", eta=0.5, seed=4
    )
    log = read_log(simulation.rows(), context=simulation.context[:2])
    model = Reading()
    harvested = model.harvest(log)
    fitted = model.fit(harvested)
    places, base = fitted.places_model, fitted.base
    assert places.places is not None
    assert places.context == base.context == simulation.context[:2]
    numbers = {label: k for k, label in enumerate(places.places.labels, 1)}
    place = next(k for label, k in numbers.items() if label[:2] == (3, 1) and k in places.curve.positions)
    contexts = {name: simulation.train_contexts[:20, i] for i, name in enumerate(base.context)}
    own = places.predict(contexts)
    state = np.log(base.predict(contexts).propensity[:, 5])  # position 3, last click at 2
    here = np.log(own.propensity[:, own.positions.index(place)])
    assert np.ptp(here) > 0.01
    assert np.ptp(here - state) < 1e-9
    column = own.positions.index(place)
    # Contexts far from the average are known less well.
    middle = places.predict_encoded(np.zeros((1, 2)))
    assert (own.upper / own.lower)[:, column].min() > (middle.upper / middle.lower)[0, column] * (1 - 1e-6)


@pytest.mark.parametrize(("times", "left"), [(0.3, True), (1.06, False)])
def test_only_who_looks_less_has_left(times: float, left: bool) -> None:
    of: Any = SimpleNamespace(steps=lambda column, first: {3: times})
    skipped, _ = ReadingPropensities.sentences(of)
    assert skipped.endswith("hardly anything: they have left." if left else "hardly anything.")
