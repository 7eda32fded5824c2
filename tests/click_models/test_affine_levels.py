"""Affine clicks by context: each of a few categories has slopes of its own, from the fit to what uses them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest import harvest, read_log
from clickharvest.click_models import load_model
from clickharvest.click_models.affine import Affine, AffineLevels, AffineModel, trust_within_queries
from clickharvest.click_models.affine.levels import Classes
from clickharvest.errors import HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation import CPBM
from clickharvest.harvesting import Interventions
from clickharvest.model.storage import read_file, write_file
from clickharvest.rank import relevance_labels
from clickharvest.simulate import simulate_trust_log
from command_line import run

TRUST = {"phone": 0.65, "desk": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Phones are trusted more than desks; of televisions there is next to nothing."""
    folder = tmp_path_factory.mktemp("levels")
    parts = []
    for seed, (device, trust) in enumerate(TRUST.items()):
        log, _ = simulate_trust_log(pages=12_000, queries=120, positions=4, docs=8, trust=trust, seed=seed)
        parts.append(log.append_column("device", pa.array([device] * log.num_rows)))
    few = parts[0].slice(0, 4)
    parts.append(few.set_column(few.column_names.index("device"), "device", pa.array(["tv"] * 4)))
    pq.write_table(pa.concat_tables(parts), folder / "log.parquet")
    command = ("fit", folder / "log.parquet", "--model", "affine", "--context", "device")
    assert run(*command, "-o", folder / "model.safetensors") == 0
    return folder


def test_every_level_has_the_model_of_its_own_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load_model(folder / "model.safetensors")
    assert isinstance(model, AffineLevels)
    assert model.context == ("device",)
    rows = pq.read_table(folder / "log.parquet")
    for i, (level,) in enumerate(model.levels):
        own = rows.filter(pa.compute.equal(rows["device"], level)).drop_columns(["device"])
        if level == "tv":
            assert model.models[i] is None
            assert "relevance does not vary enough" in model.reasons[i]
            continue
        alone = Affine().fit(harvest(read_log(own)))
        assert isinstance(alone, AffineModel)
        found = model.models[i]
        assert found is not None
        assert np.allclose(found.slope, alone.slope)
        assert found.covariance is not None
        assert alone.covariance is not None
        assert np.allclose(found.covariance, alone.covariance)
    assert model.levels == (("desk",), ("phone",), ("tv",))
    assert run("show", folder / "model.safetensors") == 0
    shown = capsys.readouterr().out
    assert "device = desk" in shown
    assert "device = phone: Offsets are needed" in " ".join(shown.split())
    assert "device = tv: Cannot tell: relevance does not vary enough" in " ".join(shown.split())
    assert run("show", folder / "model.safetensors", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["level"]["device"] for one in told["levels"] if "reason" not in one] == ["desk", "phone"]
    assert run("report", folder / "model.safetensors", "-o", folder / "page.html") == 0
    assert "device = phone: 2" in (folder / "page.html").read_text()


def test_rows_are_corrected_by_their_own_level(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "corrected.parquet"
    assert run("weigh", folder / "log.parquet", folder / "model.safetensors", "-o", out) == 0
    assert "Cannot tell any position where device = tv" in " ".join(capsys.readouterr().out.split())
    rows = pq.read_table(out).to_pandas()
    model = load_model(folder / "model.safetensors")
    assert isinstance(model, AffineLevels)
    expected = model.correct(rows["clicks"], rows["position"], rows["impressions"], {"device": rows["device"]})
    assert np.allclose(rows["corrected_click"], expected, equal_nan=True)
    assert rows["corrected_click"].isna().sum() == 4 == (rows["device"] == "tv").sum()
    assert rows.groupby("device")["click_slope"].nunique().to_dict() == {"desk": 4, "phone": 4, "tv": 0}
    with pytest.warns(HarvestWarning, match="0.18 % of the clicks are .* they are left out"):
        labels = relevance_labels(read_log(pq.read_table(folder / "log.parquet"), context=["device"]), model)
    seen = rows["click_slope"] * rows["impressions"]
    assert sum(labels["exposure"].to_pylist()) == pytest.approx(seen.sum())
    judgments = ("judgments", folder / "log.parquet", folder / "model.safetensors")
    assert run(*judgments, "-o", folder / "judgments.parquet") == 0
    judged = pq.read_table(folder / "judgments.parquet")
    assert sum(judged["effective_impressions"].to_pylist()) == pytest.approx(seen.sum())


def read_unlike(
    seed: int, contexts: dict[str, np.ndarray], steepness: np.ndarray, trust: float = 0.0, queries: int = 150
) -> Interventions:
    """Documents of queries in contexts that are read to different depths; every unit is shown 8 times at 1 to 4.

    Args:
        seed: seed of the clicks.
        contexts: values of each context.
        steepness: examination is k to minus this.
        trust: chance that a user takes an irrelevant document for relevant at position 1; trust / k at k.
        queries: number of queries.
    """
    random, n, docs, k = np.random.default_rng(seed), len(steepness), 4, np.arange(1, 5)
    relevance = random.uniform(0.1, 0.9, (queries, 1, docs, 1))
    clicked = 0.6 * (relevance + (1 - relevance) * trust / k) * k ** -steepness[:, None, None]
    clicks = random.binomial(8, clicked).ravel()
    query, context, _, position = (column.ravel() for column in np.indices((queries, n, docs, 4)))
    told = {name: values[context] for name, values in contexts.items()}
    shown, unit = np.full(len(query), 8), np.arange(len(query)) // 4
    return Interventions(unit, query, position + 1, shown.astype(float), clicks, shown, told)


DEVICES = {"device": np.array(["phone", "desk"])}
TOGETHER = {"device": np.array(["phone", "phone", "desk", "desk"]), "side": np.array(["left", "right"] * 2)}
NUMBERED = {"hour": np.array([1, 2, 3])}


@pytest.mark.parametrize(
    ("contexts", "steepness"),
    [(DEVICES, [1.2, 0.6]), (TOGETHER, [1.4, 0.5, 0.5, 1.4]), (NUMBERED, [0.5, 1.4, 0.5])],
    ids=["two devices", "two columns together", "numbers as levels"],
)
def test_contexts_that_are_read_to_different_depths_are_not_taken_for_trust(
    contexts: dict[str, np.ndarray], steepness: list[float]
) -> None:
    """Less steep contexts are clicked more far down, as if their results were better and trusted."""
    logs = [read_unlike(seed, contexts, np.array(steepness)) for seed in range(4)]
    assert sum(trust_within_queries(replace(log, contexts={})).severity == "ok" for log in logs) >= 3
    found = [trust_within_queries(log) for log in logs]
    assert sum(check.severity == "ok" for check in found) <= 1
    assert all(check.p is not None and check.p > 0.001 for check in found)


def test_trust_shows_within_queries_whatever_devices_do() -> None:
    found = [trust_within_queries(read_unlike(s, DEVICES, np.array([1.2, 0.6]), trust=0.9)) for s in range(3)]
    assert sum(check.severity == "ok" for check in found) >= 2


def test_contexts_of_classes_are_told_by_the_model_that_makes_them() -> None:
    hours = {"hour": np.arange(3.0, 24.0)}
    office = np.where((hours["hour"] >= 9) & (hours["hour"] < 17), 1.4, 0.5)
    log = read_unlike(0, hours, office, queries=90)
    classes = Classes(CPBM(curve="power", intervals=None).fit(log).propensities_, np.array([-1.0]))
    same = AffineModel(1, (1, 2), np.array([1.0, 0.5]), np.zeros(2), None, (1, 2))
    fitted = AffineLevels(("hour",), (("class 1",), ("class 2",)), (same, same), ("", ""), classes=classes)
    found = trust_within_queries(log, fitted)
    assert found.severity == "warning"


def test_levels_of_which_none_tells_are_refused(folder: Path) -> None:
    rows = harvest(read_log(pq.read_table(folder / "log.parquet"), context=["device"]))
    with pytest.raises(NotIdentifiedError, match="no level of device tells slopes"):
        Affine().fit(replace(rows, clicks=np.zeros_like(rows.clicks)))
    with pytest.raises(InputError, match="contexts of whole units"):
        Affine().fit(replace(rows, unit_kind="query"))


def test_numbers_make_classes_by_how_far_people_read(tmp_path: Path) -> None:
    """Steepness depends on x, trust does not: without x, queries that are read to different depths look like trust."""
    random, queries, docs, k = np.random.default_rng(0), 150, 6, np.arange(1, 4)
    x = random.uniform(-1, 1, queries)
    rate = random.uniform(0.1, 0.6, (queries, docs, 1))
    shown = np.full((queries, docs, 3), 150)
    true = k ** -(1 + 0.8 * x[:, None, None])
    clicks = random.binomial(shown, rate * true)
    unit = np.repeat(np.arange(queries * docs), 3)
    rows = Interventions(
        unit=unit, query=unit // docs, position=np.tile(k, queries * docs), exposure=shown.ravel().astype(float),
        clicks=clicks.ravel(), impressions=shown.ravel(), contexts={"x": x[unit // docs]},
    )  # fmt: skip
    model = Affine(intervals=None).fit(rows)
    assert isinstance(model, AffineLevels)
    assert [model.name(i) for i in range(5)][::4] == ["class 1 of 5, read least far", "class 5 of 5, read farthest"]
    lines = model.lines(rows.position, rows.contexts)
    pooled = Affine(intervals=None).fit(replace(rows, contexts={})).lines(rows.position)
    error, without = (np.abs(one.slope / np.repeat(true, docs, axis=1).ravel() - 1).mean() for one in (lines, pooled))
    assert error < without / 2
    model.save(tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert isinstance(again, AffineLevels)
    assert np.array_equal(again.level_of({"x": x}), model.level_of({"x": x}))
    assert np.bincount(model.level_of({"x": x})).min() > queries / 8
    header, tensors = read_file(tmp_path / "model.safetensors")
    for cuts, told in (([1.0, 0.0, 2.0, 3.0], "cuts that ascend"), ([0.0], "1 cuts between them")):
        broken = {**header, "classes": {**header["classes"], "cuts": cuts}}
        write_file(tmp_path / "bad.safetensors", broken, tensors)
        with pytest.raises(InputError, match=told):
            load_model(tmp_path / "bad.safetensors")


def test_damaged_files_are_refused_in_a_line(folder: Path, tmp_path: Path) -> None:
    header, tensors = read_file(folder / "model.safetensors")
    for change, told in (
        ({"levels": header["levels"] * 20}, "levels; expected at most"),
        ({"levels": header["levels"][:1] * 2}, "two levels are the same"),
        ({"context": []}, "no context"),
        ({"levels": [level | {"anchor": 7} for level in header["levels"]]}, "must hold the anchor"),
    ):
        write_file(tmp_path / "bad.safetensors", {**header, **change}, tensors)
        with pytest.raises(InputError, match=told):
            load_model(tmp_path / "bad.safetensors")
    load_model(folder / "model.safetensors").save(tmp_path / "same.safetensors")
    again = load_model(tmp_path / "same.safetensors")
    assert again.describe() == load_model(folder / "model.safetensors").describe()
