from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities
from clickharvest.report.answer import answer, spell
from command_line import Command


@pytest.fixture
def model() -> Propensities:
    draws = np.log([0.5, 0.2]) + np.random.default_rng(0).normal(scale=0.3, size=(400, 2))
    curve = make_curve("constant", (1, 2, 3), anchor=1, n_features=0)
    return Propensities(curve, {"b": np.log([0.5, 0.2])}, None, (1, 2, 3), draws=draws, draws_kind="bootstrap")


def interval(model: Propensities, level: float) -> str:
    """Return the words of the interval at position 2."""
    predicted = model.predict(level=level)
    return f"({100 * level:g} % interval {spell(predicted.lower[0, 1])} to {spell(predicted.upper[0, 1])})"


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_the_answer_has_the_interval_of_the_level(model: Propensities, level: float) -> None:
    assert interval(model, level) in answer(model, [], [], None, level)[0]
    assert interval(model, 0.5) != interval(model, 0.8) != interval(model, 0.95)


def test_the_level_of_the_command_line_reaches_the_answer(model: Propensities, run: Command, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    assert run("report model.safetensors --level 0.5 -o report.html")[0] == 0
    text = re.sub(r"\s+", " ", (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert interval(model, 0.5) in text
    assert interval(model, 0.95) not in text
