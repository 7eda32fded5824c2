"""One formula once: a curve, an objective and a log format, each defined here alone, are taken through everything."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from chromium import Browser, find_chromium
from clickharvest.errors import InputError
from clickharvest.estimation import CPBM, OBJECTIVES, PBM, ClickShare, Objective
from clickharvest.estimation import objectives as objectives_folder
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.interventions import Interventions
from clickharvest.logs import formats as formats_folder
from clickharvest.logs.formats import FORMATS
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import CURVES, Curve, Params, make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.onnx import export_onnx
from clickharvest.model.propensities import Propensities
from clickharvest.model.trace import ALONG, BINARY, UNARY, trace_curve
from clickharvest.report.page import write_report
from clickharvest.simulate import simulate_ab_log
from command_line import Command


@pytest.fixture(scope="module")
def log() -> pa.Table:
    return simulate_ab_log(pages=3_000, positions=6, seed=1)[0]


@pytest.fixture(scope="module")
def interventions(log: pa.Table) -> Interventions:
    return harvest(read_log(log, context=["device"]))


@pytest.fixture
def bends(monkeypatch: pytest.MonkeyPatch) -> type[Curve]:
    """A curve with a shape parameter of its own."""
    monkeypatch.setattr(CURVES, "things", dict(CURVES.things))

    @dataclass(frozen=True)
    class Bends(Curve):
        """Lines in log k, each steeper than the last: log p_k(x) = −Σ_m softplus(s_m + x·V_m) max(log k − κ_m, 0)."""

        bends: int = field(default=3, metadata={"least": 2})
        name: ClassVar[str] = "bends"

        def init(self, random: np.random.Generator) -> Params:
            return {"s": np.zeros(self.bends), "V": np.zeros((self.n_features, self.bends))}

        def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
            log_k = np.log(np.array(self.positions, dtype=np.float64))
            beyond = np.maximum(log_k - np.linspace(0.0, log_k[-2], self.bends)[:, None], 0.0)
            return -xp.logaddexp(x @ params["V"] + params["s"], 0.0) @ beyond

        def penalty(self, params: Params, xp: Any = np) -> Any:
            return (xp.sum(params["s"] ** 2) + xp.sum(params["V"] ** 2)) / 2

    return Bends


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Curve:
    """A curve that uses all that a program can do, senselessly."""
    monkeypatch.setattr(CURVES, "things", dict(CURVES.things))

    @dataclass(frozen=True)
    class Everything(Curve):
        name: ClassVar[str] = "everything"

        def init(self, random: np.random.Generator) -> Params:
            k, d = len(self.positions), self.n_features
            return {"M": random.normal(size=(k, d)), "v": random.normal(size=d), "s": random.normal(size=(2, k))}

        def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
            rows = x @ params["M"].T + params["s"][1]
            one = (x @ params["v"])[:, None]
            flat = xp.exp(-xp.abs(rows)) + xp.log1p(rows**2) - 0.1 * xp.expm1(xp.minimum(rows, 1.0))
            sums = xp.cumsum(xp.tanh(rows), axis=-1) / xp.sqrt(1.0 + xp.sum(xp.square(rows), axis=1, keepdims=True))
            top = xp.max(rows, axis=-1)[:, None] + xp.sum(rows, axis=-1, keepdims=True) * one
            ends = xp.concatenate([rows[:, -2:], xp.ones_like(rows[..., 1:2]), xp.zeros_like(one)], axis=-1)
            wide = xp.maximum(params["s"][0:1, :-1] - 1, 2 - xp.log(xp.abs(rows[:, 1:]) + 1.0))
            mixed = xp.concatenate([top, wide], axis=1) * np.arange(1.0, len(self.positions) + 1) + (one - 3.0) / 2
            bent = ends * xp.logaddexp(mixed, rows) - 1.5 / (1.0 + xp.exp(mixed))
            return flat + 0.1 * sums + bent + params["v"] @ params["v"]

        def penalty(self, params: Params, xp: Any = np) -> Any:
            return 0.0

    return Everything((1, 2, 4, 7), 2, 3)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("Chromium is not installed: scripts/debian-packages installs it")
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def test_a_curve_is_one_class(
    bends: type[Curve], interventions: Interventions, browser: Browser, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    shape = {"bends": 4}
    fitted = CPBM(curve="bends", shape=shape, penalty=1.0, intervals="sandwich", replicates=50).fit(interventions)
    model = fitted.propensities_
    assert model.curve.spec == {"name": "bends", "bends": 4}
    model.save(tmp_path / "model.safetensors")
    loaded = load_propensities(tmp_path / "model.safetensors")
    assert loaded.curve == bends((1, 2, 3, 4, 5, 6), 1, model.curve.n_features, 4)
    assert loaded.encoder is not None

    contexts = {"device": ["desktop", "mobile"]}
    expected = loaded.predict(contexts).propensity
    x = loaded.encoder.transform(contexts)
    np.testing.assert_array_equal(expected, fitted.predict(contexts).propensity)
    assert np.ptp(expected, axis=0).max() > 0.01  # the curve does depend on context

    export_onnx(loaded, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {"x": x.astype(np.float32)})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    write_report(tmp_path / "report.html", loaded)
    page = browser.open((tmp_path / "report.html").as_uri())
    on_page = page.run(f"{json.dumps(x.tolist())}.map(x => clickharvest.predict(x).map(row => row.p))")
    np.testing.assert_allclose(on_page, expected, rtol=1e-9)
    assert page.complaints() == []
    page.close()


def test_every_operation_is_the_same_everywhere(everything: Curve, browser: Browser, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    encoder = ContextEncoder.fit({"a": [0.0, 1.0], "b": [0.0, 1.0], "c": [0.0, 1.0]})
    random = np.random.default_rng(0)
    model = Propensities(everything, everything.init(random), encoder, everything.positions)
    x = random.normal(size=(5, 3)).astype(np.float32).astype(np.float64)
    x[0] = 0.0
    expected = everything.relative(model.params, x)
    program = trace_curve(everything)
    assert {step.op for step in program.steps} >= {*UNARY, *BINARY, *ALONG, "matmul", "slice", "squeeze", "expand"}
    assert {step.op for step in program.steps} >= {"transpose", "concatenate", "full_like", "constant", "parameter"}
    np.testing.assert_allclose(program.run(model.params, x), expected, rtol=1e-13, atol=1e-13)

    export_onnx(model, tmp_path / "model.onnx")
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x.astype(np.float32)})[0]
    np.testing.assert_allclose(np.log(found), expected, rtol=1e-5, atol=1e-5)

    write_report(tmp_path / "report.html", model)
    page = browser.open((tmp_path / "report.html").as_uri())
    on_page = page.run(f"{json.dumps(x.tolist())}.map(x => clickharvest.predict(x).map(row => row.p))")
    np.testing.assert_allclose(np.log(on_page), expected, rtol=1e-9, atol=1e-9)
    page.close()


def test_a_curve_is_offered_on_the_command_line(bends: type[Curve], log: pa.Table, run: Command) -> None:
    pq.write_table(log, "log.parquet")
    code, out, _ = run("fit --help")
    assert code == 0
    assert "bends" in out
    options = "--context device --curve bends --shape bends=2 --penalty 1 --intervals none --verbose"
    code, out, err = run(f"fit log.parquet {options} -o model.safetensors")
    assert (code, err) == (0, "")
    assert "curve bends (bends 2)" in out
    assert load_propensities("model.safetensors").curve.spec == {"name": "bends", "bends": 2}
    code, _, err = run(f"fit log.parquet {options.replace('bends=2', 'knots=2')} -o other.safetensors")
    assert (code, err) == (2, "Error: the curve 'bends' takes no knots: its shape is bends\n")
    code, _, err = run(f"fit log.parquet {options.replace('bends=2', 'bends=1')} -o other.safetensors")
    assert (code, err) == (2, "Error: the curve 'bends' has the bends 1: expected an integer of 2 or more\n")


def test_a_file_of_an_unknown_curve_says_what_to_import(
    bends: type[Curve], interventions: Interventions, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    CPBM(curve="bends", penalty=1.0, intervals=None).fit(interventions).propensities_.save(path)
    del CURVES.things["bends"]
    with pytest.raises(InputError, match=r"no curve 'bends': expected one of constant, .*once the module that defines"):
        load_propensities(path)


def test_a_name_belongs_to_one_class(bends: type[Curve]) -> None:
    with pytest.raises(InputError, match=r"the curve 'bends' is .*Bends already: choose another name"):
        type("Other", (bends,), {"name": "bends"})
    nameless = type("Nameless", (bends,), {})
    assert nameless not in CURVES.values()
    curve = nameless((1, 2, 3), 1, 0, 2)
    with pytest.raises(InputError, match="the curve Nameless is not the one named 'bends': give it its own name"):
        Propensities(curve, curve.init(np.random.default_rng(0)), None, (1, 2, 3))


def test_a_shape_without_default_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CURVES, "things", dict(CURVES.things))
    needy = dataclass(frozen=True)(type("Needy", (Curve,), {"name": "needy", "__annotations__": {"size": int}}))
    assert [parameter.name for parameter in needy.shape_fields()] == ["size"]
    with pytest.raises(InputError, match="the curve 'needy' needs size"):
        make_curve("needy", (1, 2), 1, 0)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Add a folder to a package: files written there are files of the package."""

    def extend(package: ModuleType, registry: Any) -> Path:
        path = tmp_path_factory.mktemp("more")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(path)])
        monkeypatch.setattr(registry, "things", dict(registry.things))
        return path

    before = set(sys.modules)
    yield extend
    for name in set(sys.modules) - before:
        if name.startswith((objectives_folder.__name__, formats_folder.__name__)):
            del sys.modules[name]


HALVES = '''
from clickharvest.estimation.objectives.clickshare import ClickShare


class Halves(ClickShare):
    """ClickShare, all of it times a half: the same optimum without a penalty."""

    name = "halves"

    def __init__(self, sample, *, weighting="paper"):
        super().__init__(sample)
        self.weighting = weighting

    @property
    def about(self):
        return {"weighting": self.weighting}

    def value_and_slopes(self, log_p, own, weights, *, valued=True):
        return super().value_and_slopes(log_p, own, weights / 2, valued=valued)

    def by_cluster(self, log_p, own, n_clusters):
        return super().by_cluster(log_p, own, n_clusters) / 2

    def information(self, at, weights, *, rough):
        return super().information(at, weights / 2, rough=rough)
'''


def test_an_objective_is_one_file(folder: Any, interventions: Interventions, log: pa.Table, run: Command) -> None:
    (folder(objectives_folder, OBJECTIVES) / "halves.py").write_text(HALVES)
    assert "halves" in list(OBJECTIVES)
    settings: dict[str, Any] = {"curve": "power", "intervals": None}
    model = CPBM(objective="halves", penalty=0.5, weighting="min", **settings).fit(interventions).propensities_
    assert (model.info["objective"], model.info["weighting"]) == ("halves", "min")  # the option that it declares
    same = CPBM(penalty=1.0, **settings).fit(interventions).propensities_
    devices = {"device": ["desktop", "mobile"]}
    found, expected = (fitted.predict(devices).propensity for fitted in (model, same))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert model.info["log_likelihood"] == pytest.approx(same.info["log_likelihood"] / 2, rel=1e-4)

    pq.write_table(log, "log.parquet")
    options = "--context device --curve power --penalty 0.5 --objective halves --intervals none --verbose"
    code, out, err = run(f"fit log.parquet {options} -o model.safetensors")
    assert (code, err) == (0, "")
    assert "objective halves" in out
    np.testing.assert_allclose(load_propensities("model.safetensors").predict(devices).propensity, found, atol=1e-6)
    code, _, err = run("fit log.parquet --objective thirds -o model.safetensors")
    assert code == 2
    assert "'thirds' is not one of 'allpairs', 'clickshare', 'halves'" in err


def test_objectives_are_found_by_name(interventions: Interventions) -> None:
    assert OBJECTIVES["clickshare"] is ClickShare
    assert all(issubclass(kind, Objective) for kind in OBJECTIVES.values())
    with pytest.raises(InputError, match="no objective 'thirds': expected one of allpairs, clickshare"):
        PBM(objective="thirds").fit(interventions)


SHOP = '''
import ibis

from clickharvest.logs.formats import log_format
from clickharvest.logs.reading import read_log
from clickharvest.logs.sources import open_source


@log_format("shop")
def read_shop(source, *, devices, ranker=None, context=(), position_base=1, engine=None):
    """The shop's own tracker: slots from 0, and a second table with the device of each session."""
    shown, engine = open_source(source, engine)
    sessions, engine = open_source(devices, engine)
    joined = shown.inner_join(sessions, "session")
    return read_log(joined, query="words", doc="sku", position="slot", click="bought", page="session", ranker=ranker,
                    context=context, position_base=0, engine=engine)
'''


def test_a_log_format_is_one_file(folder: Any, log: pa.Table, run: Command) -> None:
    (folder(formats_folder, FORMATS) / "shop.py").write_text(SHOP)
    names = {"query": "words", "doc": "sku", "position": "slot", "click": "bought", "page": "session"}
    log = log.slice(0, 2_400)
    shop = log.rename_columns([names.get(name, name) for name in log.column_names])
    sessions = shop.select(["session", "device"]).group_by(["session", "device"]).aggregate([])
    moved = shop.drop_columns(["device", "slot"]).append_column("slot", pc.subtract(shop["slot"], 1))
    pq.write_table(log, "log.parquet")
    pq.write_table(moved, "shop.parquet")
    pq.write_table(sessions, "sessions.parquet")
    assert run("harvest log.parquet --context device -o expected.parquet")[0] == 0
    shop_log = "shop.parquet --format shop --inputs devices=sessions.parquet --context device"
    assert run(f"harvest {shop_log} -o harvested.parquet")[::2] == (0, "")
    expected, harvested = (
        table.sort_by([(name, "ascending") for name in table.column_names if name != "unit"]).drop_columns(["unit"])
        for table in map(pq.read_table, ("expected.parquet", "harvested.parquet"))
    )
    assert harvested.num_rows > 0
    assert harvested.equals(expected)
    assert "shop" in run("harvest --help")[1]
    code, _, err = run("check shop.parquet --format shop --query words --inputs devices=sessions.parquet")
    assert (code, err) == (2, "Error: --query does not go with the format shop: it fixes its columns\n")
