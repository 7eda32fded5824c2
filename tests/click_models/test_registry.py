"""Click models: the folder is the list, a file is a model, and what does not go together is refused in a line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest import click_models
from clickharvest.click_models import CLICK_MODELS, ClickModel, load_model
from clickharvest.errors import InputError
from clickharvest.model import Propensities, load_propensities, make_curve
from clickharvest.model.storage import FORMAT, write_file
from clickharvest.simulate import simulate_ab_log
from command_line import run

COINS = '''
from dataclasses import dataclass, replace
from typing import ClassVar

from clickharvest.click_models.base import ClickModel
from clickharvest.click_models.examination import Examination


@dataclass(frozen=True)
class Coins(ClickModel):
    """Examination under another name, with one option."""

    name: ClassVar[str] = "coins"
    anchor: int = 1

    def fit(self, interventions):
        return Examination(anchor=self.anchor, intervals=None).fit(interventions)

    @classmethod
    def load(cls, header, tensors):
        return Examination.load(header, tensors)

    @classmethod
    def weigh(cls, log, fitted, path, **how):
        raise AssertionError
'''


@pytest.fixture
def coins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coins.py").write_text(COINS)
    monkeypatch.setattr(click_models, "__path__", [*click_models.__path__, str(tmp_path)])
    monkeypatch.setattr(CLICK_MODELS, "things", dict(CLICK_MODELS.things))
    monkeypatch.delitem(sys.modules, "clickharvest.click_models.coins", raising=False)


def test_every_model_says_what_it_is() -> None:
    for name in CLICK_MODELS:
        kind = CLICK_MODELS[name]
        assert issubclass(kind, ClickModel)
        assert kind.name == name
        assert kind.about
        assert {"anchor", "seed"} <= set(kind.options())


def test_a_click_model_is_one_file(coins: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, model = tmp_path / "log.parquet", tmp_path / "model.safetensors"
    pq.write_table(simulate_ab_log(pages=600, positions=5)[0], log)
    assert run("fit", log, "--model", "coins", "-o", model) == 0
    capsys.readouterr()
    assert isinstance(load_model(model), Propensities)
    assert run("fit", log, "--model", "coins", "--curve", "power", "-o", model) == 2
    assert "--curve: the model coins has no such option; leave it out" in capsys.readouterr().err
    assert run("fit", log, "--model", "dice", "-o", model) == 2
    assert "'dice' is not one of" in capsys.readouterr().err


def test_files_of_unknown_and_other_models_are_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_file(path, {"model": "dice"}, {"a": np.ones(2)})
    with pytest.raises(InputError, match=r"holds a click model 'dice': expected .*examination"):
        load_model(path)
    with pytest.raises(InputError, match="of the kind 'dice', which is no examination propensities"):
        load_propensities(path)


def test_examination_files_are_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, shown=(1, 2)).save(path)
    text = path.read_bytes()
    assert f'\\"format\\": {FORMAT}'.encode() in text
    assert b'\\"model\\"' not in text
