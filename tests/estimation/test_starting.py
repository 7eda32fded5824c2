"""A fit that starts from another model: the same curve, its penalty and its doubts, without choosing again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest import harvest, read_log
from clickharvest.errors import InputError
from clickharvest.estimation import CPBM, PBM
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.propensities import Propensities
from clickharvest.simulate import simulate_ab_log
from command_line import run

DEVICES = {"device": ["desktop", "mobile"]}


@cache
def of_a_day(seed: int) -> Interventions:
    return harvest(read_log(simulate_ab_log(pages=3_000, seed=seed)[0], context=["device"]))


@pytest.fixture(scope="module")
def yesterday() -> Propensities:
    return CPBM().fit(of_a_day(0)).propensities_


def test_on_the_same_log_it_says_the_same(yesterday: Propensities) -> None:
    again = CPBM(start=yesterday).fit(of_a_day(0)).propensities_
    first, second = yesterday.predict(DEVICES), again.predict(DEVICES)
    assert second.propensity == pytest.approx(first.propensity, rel=1e-3)
    # Rivals move positions together, and here each by itself: widths at one position are about the same.
    assert second.upper - second.lower == pytest.approx(first.upper - first.lower, rel=0.1, nan_ok=True)
    third = CPBM(start=again).fit(of_a_day(0)).propensities_.predict(DEVICES)
    assert third.upper == pytest.approx(second.upper, rel=1e-3, nan_ok=True)


def test_on_another_day_nothing_is_chosen_and_the_truth_is_found(yesterday: Propensities) -> None:
    today = CPBM(start=yesterday).fit(of_a_day(1)).propensities_
    assert today.curve.name == yesterday.curve.name
    assert not today.info["selection"]
    truth = np.stack([np.arange(1, 11) ** -eta for eta in (0.7, 1.4)])
    assert np.abs(np.log(today.predict(DEVICES).propensity / truth)).max() < 0.35
    assert not np.allclose(today.predict(DEVICES).propensity, yesterday.predict(DEVICES).propensity)


@pytest.mark.parametrize("curve", ["linear", "mlp", "index"])
def test_any_curve_may_be_gone_on_with(curve: str) -> None:
    rows = of_a_day(0)
    first = CPBM(curve=curve, intervals=None).fit(rows).propensities_
    again = CPBM(start=first, intervals=None).fit(rows).propensities_
    assert again.curve == first.curve
    assert again.predict(DEVICES).propensity == pytest.approx(first.predict(DEVICES).propensity, rel=0.01)


def test_what_does_not_go_together_is_refused(yesterday: Propensities) -> None:
    with pytest.raises(InputError, match="curve is given"):
        CPBM(start=yesterday, curve="linear").fit(of_a_day(0))
    with pytest.raises(InputError, match="objective"):
        CPBM(start=yesterday, objective="allpairs").fit(of_a_day(0))
    other = replace(of_a_day(0), contexts={"country": of_a_day(0).contexts["device"]})
    with pytest.raises(InputError, match="depends on device, and the data have the contexts country"):
        CPBM(start=yesterday).fit(other)


def test_from_the_command_line(
    yesterday: Propensities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(simulate_ab_log(pages=2_000, seed=1)[0], "today.parquet")
    yesterday.save("yesterday.safetensors")
    fit = ("fit", "today.parquet", "-o", "today.safetensors", "--start", "yesterday.safetensors")
    assert run(*fit, "--context", "device") == 0
    assert run(*fit) == 2
    assert "depends on device" in capsys.readouterr().err
    assert run(*fit, "--context", "device", "--curve", "linear") == 2
    PBM().fit(of_a_day(0)).propensities_.save("yesterday.safetensors")
    assert run(*fit) == 0
