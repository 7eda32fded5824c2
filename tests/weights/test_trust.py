"""Trust: what nobody can tell makes no weight, on simulated and on real logs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from clickharvest import CPBM, check_fit, harvest
from clickharvest.logs.click_log import ClickLog
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.reading import read_log
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import flatten_params, make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import ColumnSupport, Support
from clickharvest.simulate import simulate_ab_log
from clickharvest.weights.weighing import weigh
from command_line import run
from places import SHARED_DATA


def checked_model(log: ClickLog) -> Propensities:
    """A model that keeps its budget, as `fit` makes it."""
    interventions = harvest(log)
    model = CPBM(curve="power").fit(interventions).propensities_
    checked = check_fit(log, model, interventions=interventions)
    return replace(model, info=dict(model.info) | checked.info())


Fitted = tuple[ClickLog, Propensities]


@pytest.fixture(scope="module")
def thin() -> Fitted:
    """An A/B test of two devices whose lowest positions have few clicks, and its model."""
    table, _ = simulate_ab_log(pages=2_500, seed=4)
    log = read_log(table, context=["device"])
    return log, checked_model(log)


def yandex() -> ClickLog:
    return read_log(shared_file("yandex_sessions.parquet"), page="session")


def expedia() -> ClickLog:
    return read_log(shared_file("expedia_pieces.parquet"))


def shared_file(name: str) -> Path:
    if not (SHARED_DATA / name).exists():
        pytest.skip(f"{name} is not here")
    return SHARED_DATA / name


def test_what_nobody_can_tell_never_makes_a_weight(thin: Fitted) -> None:
    never_makes_a_weight(*thin)


@pytest.mark.nightly
@pytest.mark.parametrize("make", [yandex, expedia])
def test_what_nobody_can_tell_of_a_real_log_never_makes_a_weight(make: Callable[[], ClickLog]) -> None:
    log = make()
    never_makes_a_weight(log, checked_model(log))


def never_makes_a_weight(log: ClickLog, model: Propensities) -> None:
    weights, every = weigh(log, model), weigh(log, model, trust="all")
    place = log.roles["position"]
    table = log.engine.fetch(weights.table, task="Weighing")
    estimates = log.engine.fetch(every.table, task="Weighing")
    contexts = {name: table[name] for name in model.context}
    predicted = model.predict(contexts or None)
    row = np.arange(table.num_rows) if contexts else np.zeros(table.num_rows, dtype=int)
    at = np.searchsorted(predicted.positions, table[place].to_numpy())
    state, anchor = predicted.state, predicted.positions.index(model.curve.anchor)
    assert table["propensity_state"].to_pylist() == state[row, at].tolist()
    p, told = table["propensity"].to_numpy(), state != "cannot tell"
    assert told[:, anchor].all()
    for i in np.flatnonzero(~told[row, at]):
        above = np.flatnonzero(told[row[i], : at[i] + 1])
        assert p[i] == pytest.approx(predicted.propensity[row[i], above[-1]], rel=1e-9)
    own = told[row, at]
    np.testing.assert_allclose(p[own], predicted.propensity[row, at][own], rtol=1e-9)
    np.testing.assert_allclose(p, predicted.clipped()[row, at], rtol=1e-9)
    assert 0 < weights.report.untold_rows == np.count_nonzero(~own) < len(own)
    assert every.report.untold_rows == np.count_nonzero(np.isnan(predicted.propensity[row, at]))
    assert estimates["propensity"].to_numpy().min() < p.min()


def test_every_use_of_weights_clips_alike() -> None:
    """Policy-aware weights and those of outcomes are made of the same propensities."""
    table, _ = simulate_ab_log(pages=2_500, seed=4)
    bought = pa.array((np.random.default_rng(0).random(table.num_rows) < 0.5) & table["click"].to_numpy().astype(bool))
    log = read_log(table.append_column("bought", bought))
    model = checked_model(log)
    plain = log.engine.fetch(weigh(log, model).table, task="Weighing")
    outcome = weigh(log, model, outcome="bought", after_click="same")
    found = log.engine.fetch(outcome.table, task="Weighing")
    assert found["outcome_propensity"].to_pylist() == found["propensity"].to_pylist()
    assert found["outcome_state"].to_pylist() == found["propensity_state"].to_pylist()
    assert sorted(found["propensity"].to_pylist()) == sorted(plain["propensity"].to_pylist())
    lost = found.filter(pc.equal(found["propensity_state"], "cannot tell"))
    assert outcome.report.outcome is not None
    assert outcome.report.outcome.untold == np.count_nonzero(lost["bought"]) > 0
    rows = log.engine.fetch(weigh(log, model, policy_aware=True).table, task="Weighing")
    assert sorted(rows["propensity"].to_pylist()) == sorted(plain["propensity"].to_pylist())


def test_numbers_on_a_line_are_trusted_no_farther_than_their_interval_allows(duckdb_engine: DuckDBEngine) -> None:
    """Parts of a number's reach are judged by their outer end: a row never has the weight of what nobody can tell."""
    random = np.random.default_rng(0)
    n = 3_000
    columns = {"query": ["q"] * n, "doc": range(n), "position": random.integers(1, 4, n), "click": [1] * n}
    table = pa.table(columns | {"age": random.normal(40, 10, n)})
    encoder = ContextEncoder.fit(table, names=["age"])
    reach = (float(table["age"].to_numpy().min()), float(table["age"].to_numpy().max()))
    support = Support((ColumnSupport(((1, 2, 3),), reach=reach),), (None, 90.0, 90.0))
    params = {"b": np.log([0.5, 0.3]), "W": np.array([[0.1, 0.2]])}
    slopes = 0.25 * np.sqrt(2) * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    draws = flatten_params(params) + np.concatenate([slopes, np.zeros((4, 2))], axis=1)
    model = Propensities(
        make_curve("linear", (1, 2, 3), 1, 1), params, encoder, (1, 2, 3), draws, "clustered", support=support
    )
    log = read_log(table, context=["age"], engine=duckdb_engine)
    rows = log.engine.fetch(weigh(log, model).table.order_by("doc"), task="Weighing").to_pylist()
    predicted = model.predict(table)
    at = table["position"].to_numpy() - 1
    told = ~predicted.cannot_tell[np.arange(n), at]
    kept = np.array([row["propensity_state"] != "cannot tell" for row in rows])
    assert not (kept & ~told).any()
    assert told.sum() * 0.9 < kept.sum() < n
    own = predicted.propensity[np.arange(n), at]
    np.testing.assert_allclose(np.array([row["propensity"] for row in rows])[kept], own[kept], rtol=1e-9)


@pytest.mark.parametrize("options", [(), ("--trust", "all")])
def test_trust_on_the_command_line(
    options: tuple[str, ...], thin: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, model = thin
    model.save(tmp_path / "model.safetensors")
    pq.write_table(log.engine.fetch(log.source, task="Reading"), tmp_path / "log.parquet")
    files = (tmp_path / "log.parquet", tmp_path / "model.safetensors", "-o", tmp_path / "w.parquet")
    assert run("weigh", *files, *options) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert ("Cannot tell at" in told and "(--trust all uses the estimates)" in told) == (not options)
    assert run("weigh", *files, *options, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["untold_clicks"] > 0) == (not options)
    assert report["states"]["cannot tell"] > 0
    assert sum(report["states"].values()) == report["clicks"]
