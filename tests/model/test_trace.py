"""Traces: a program computes what its curve does, and says by name what it cannot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.model.curves import CURVES, Curve, Params, make_curve
from clickharvest.model.trace import ROWS, trace_curve

Formula = Callable[[Params, Any, Any], Any]


@pytest.fixture
def trace_formula(monkeypatch: pytest.MonkeyPatch) -> Callable[[Formula], Any]:
    """Trace a formula of parameters `A` [3, 2] and `b` [2] and contexts x [n, 3] for two positions."""
    monkeypatch.setattr(CURVES, "things", dict(CURVES.things))

    def trace(formula: Formula) -> Any:
        @dataclass(frozen=True)
        class Strange(Curve):
            name: ClassVar[str] = "strange"

            def init(self, random: np.random.Generator) -> Params:
                return {"A": random.normal(size=(3, 2)), "b": random.normal(size=2)}

            def log_examination(self, params: Params, x: Any, xp: Any = np) -> Any:
                return formula(params, x, xp)

            def penalty(self, params: Params, xp: Any = np) -> Any:
                return 0.0

        return trace_curve(Strange((1, 2), 1, 3))

    return trace


@pytest.mark.parametrize("anchor", [1, 4])
@pytest.mark.parametrize("name", CURVES)
def test_a_program_computes_what_its_curve_does(name: str, anchor: int) -> None:
    random = np.random.default_rng(3)
    curve = make_curve(name, (1, 2, 4, 7), anchor, 3)
    params = {key: value + random.normal(size=value.shape) for key, value in curve.init(random).items()}
    x = random.normal(size=(6, 3))
    program = trace_curve(curve)
    np.testing.assert_allclose(program.run(params, x), curve.relative(params, x), rtol=1e-13, atol=1e-13)
    assert program.steps[-1].shape == (ROWS, 4)
    assert all(number < place for place, step in enumerate(program.steps) for number in step.of)
    assert json.loads(json.dumps(program.to_list(), allow_nan=False))[-1]["shape"] == [1, 4]


def test_equal_steps_are_noted_once_and_needless_ones_not(trace_formula: Any) -> None:
    def formula(p: Params, x: Any, xp: Any) -> Any:
        xp.exp(x)
        return x @ p["A"] + xp.tanh(x @ p["A"])

    ops = [step.op for step in trace_formula(formula).steps]
    assert ops.count("matmul") == 1
    assert "exp" not in ops
    assert "b" not in [step.about.get("name") for step in trace_formula(formula).steps]


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        (lambda p, x, xp: xp.where(x, x, 0.0), "uses xp.where, which a program does not have: expected operators"),
        (lambda p, x, xp: xp.linalg.norm(x), "uses xp.linalg"),
        (lambda p, x, xp: (x @ p["A"])[:, [0, 1]], "uses the index"),
        (lambda p, x, xp: (x @ p["A"])[:, ::2], "the index (slice(None, None, None), slice(None, None, 2)) of [n, 2]"),
        (lambda p, x, xp: (x @ p["A"])[:1], "the index slice(None, 1, None) of [n, 2]"),
        (lambda p, x, xp: (x @ p["A"])[0], "the index 0 of [n, 2]"),
        (lambda p, x, xp: p["b"][5], "the index 5 of [2]"),
        (lambda p, x, xp: p["b"][0, 0], "the index (0, 0) of [2]"),
        (lambda p, x, xp: x + p["A"], "add of [n, 3] and [3, 2]"),
        (lambda p, x, xp: x @ p["b"], "[n, 3] @ [2]"),
        (lambda p, x, xp: p["A"] @ x, "[3, 2] @ [n, 3]"),
        (lambda p, x, xp: x.T, "the transpose of [n, 3]"),
        (lambda p, x, xp: xp.sum(x), "xp.sum of [n, 3] along axis None"),
        (lambda p, x, xp: xp.sum(x, axis=0), "xp.sum of [n, 3] along axis 0"),
        (lambda p, x, xp: xp.concatenate([x, x]), "xp.concatenate of [n, 3] and [n, 3] on axis 0"),
        (lambda p, x, xp: x @ p["A"] + np.inf, "a constant that is not finite"),
        (lambda p, x, xp: x, "returns [n, 3]: expected [n, 2], a row for each context"),
        (lambda p, x, xp: p["b"][None], "returns [1, 2]: expected [n, 2]"),
    ],
)
def test_what_a_program_cannot_do_is_named(trace_formula: Any, formula: Formula, told: str) -> None:
    with pytest.raises(InputError, match=re.escape(told)) as raised:
        trace_formula(formula)
    assert str(raised.value).startswith("the curve 'strange'")
