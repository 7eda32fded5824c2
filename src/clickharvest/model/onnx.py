"""Export to ONNX: a model's formula for runtimes without Python.

No curve is written a second time here: the steps of its trace become nodes, its parameters constants.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest import __version__
from clickharvest.extras import require
from clickharvest.files import atomic_path
from clickharvest.model.budget import STATES
from clickharvest.model.curves import Params
from clickharvest.model.trace import Program, Step, trace_curve
from clickharvest.model.typical import typical_context, varied_contexts

if TYPE_CHECKING:
    from clickharvest.model.propensities import Propensities

OPSET = 17
IR_VERSION = 8
"""Both are of 2022, so that runtimes of the last years read the file."""


def export_onnx(propensities: Propensities, path: str | Path) -> None:
    """Write a model to one ONNX file, whole or not at all.

    Input `x`, float [n, d]: the encoded features, as `ContextEncoder.transform` makes them ([n, 0] without context).
    Output `propensity`, float [n, K]: p_k(x) / p_anchor(x) at the supported positions. In between it computes in
    double precision, so that the result is that of `Propensities.predict` to float precision.
    The file's metadata holds, as JSON: `positions` [K], `anchor`, `feature_names` [d], `curve`, `clickharvest`, for
    places `places`, what the numbers mean, `state` [K], whether each position is usable, with care, or cannot tell,
    in the worst of the contexts that the model's summary lists, and `support`, what `Support.to_dict` returns: the file
    itself gives a number for any x and does not know which of them to rely on.

    Args:
        propensities: the model.
        path: file to write, usually `….onnx`.

    Raises:
        InputError: the package `onnx` is not installed.

    Example:
        >>> import tempfile
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> path = Path(tempfile.mkdtemp()) / "model.onnx"
        >>> export_onnx(Propensities(curve, {"b": np.log([0.5])}, None, shown=(1, 2)), path)
        >>> import onnxruntime
        >>> onnxruntime.InferenceSession(path).run(None, {"x": np.zeros((1, 0), dtype=np.float32)})[0]
        array([[1. , 0.5]], dtype=float32)
    """
    onnx = require("onnx", "onnx", "export to ONNX")
    curve = propensities.curve
    graph = _Graph()
    log_p = graph.add_program(
        trace_curve(curve), propensities.params, graph.add("Cast", "x", to=onnx.TensorProto.DOUBLE)
    )
    graph.add("Cast", graph.add("Exp", log_p), to=onnx.TensorProto.FLOAT, output="propensity")
    made = onnx.helper.make_graph(
        graph.nodes,
        "propensity",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", curve.n_features])],
        [onnx.helper.make_tensor_value_info("propensity", onnx.TensorProto.FLOAT, ["n", len(curve.positions)])],
        graph.constants,
    )
    model = onnx.helper.make_model(
        made,
        producer_name="clickharvest",
        producer_version=__version__,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    features = () if propensities.encoder is None else propensities.encoder.feature_names
    about = {
        "positions": [int(k) for k in curve.positions],
        "anchor": int(curve.anchor),
        **({} if propensities.places is None else {"places": propensities.places.to_dict()}),
        "feature_names": list(features),
        "curve": curve.spec,
        "clickharvest": __version__,
        "state": worst_states(propensities),
        "support": None if propensities.support is None else propensities.support.to_dict(),
    }
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(Path(path)) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))


def worst_states(propensities: Propensities) -> list[str]:
    """Return the state of each of the curve's positions in the worst of the typical context and those that vary it."""
    x = np.concatenate([typical_context(propensities), *(one.x for one in varied_contexts(propensities))])
    codes, _ = propensities.state_codes(x)
    of_curve = np.isin(propensities.shown, propensities.curve.positions)
    return [STATES[code] for code in codes.max(axis=0)[of_curve].tolist()]


NODES = {
    "abs": "Abs", "exp": "Exp", "log": "Log", "negative": "Neg", "sqrt": "Sqrt", "tanh": "Tanh",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
    "maximum": "Max", "minimum": "Min", "matmul": "MatMul", "transpose": "Transpose",
}  # fmt: skip
"""Operations of a program that are one node each."""


class _Graph:
    """Nodes and constants, tensors by name; all numbers are doubles."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add one node and return the name of its output."""
        from onnx import helper

        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, kind: type = np.float64) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add_program(self, program: Program, params: Params, x: str) -> str:
        """Add the nodes of a program and return the name of its result."""
        names: list[str] = []
        for step in program.steps:
            if step.op == "input":
                names.append(x)
            elif step.op in ("parameter", "constant"):
                names.append(
                    self.constant(params[step.about["name"]] if step.op == "parameter" else step.about["value"])
                )
            else:
                names.append(self._add_step(step, [names[i] for i in step.of]))
        return names[-1]

    def _add_step(self, step: Step, of: list[str]) -> str:
        if step.op in NODES:
            return self.add(NODES[step.op], *of)
        if step.op == "logaddexp":  # max + log(1 + e^{−|a − b|}); Softplus is not there in doubles everywhere
            distance = self.add("Neg", self.add("Abs", self.add("Sub", *of)))
            return self.add("Add", self.add("Max", *of), self._log1p(self.add("Exp", distance)))
        if step.op == "slice":
            axes, begin, end = (self.constant(part, np.int64) for part in zip(*step.about["ranges"], strict=True))
            return self.add("Slice", *of, begin, end, axes)
        others: dict[str, Callable[[], str]] = {
            "log1p": lambda: self._log1p(*of),
            "expm1": lambda: self.add("Sub", self.add("Exp", *of), self.constant(1.0)),
            "concatenate": lambda: self.add("Concat", *of, axis=-1),
            "squeeze": lambda: self.add("Squeeze", *of, self.constant(step.about["axes"], np.int64)),
            "expand": lambda: self.add("Unsqueeze", *of, self.constant(step.about["axes"], np.int64)),
            "full_like": lambda: self._full_like(of[0], step.about["fill"]),
            "sum": lambda: self.add("ReduceSum", *of, self.constant([-1], np.int64), keepdims=1),
            "max": lambda: self.add("ReduceMax", *of, axes=[-1], keepdims=1),
            "cumsum": lambda: self.add("CumSum", *of, self.constant(len(step.shape) - 1, np.int64)),
        }
        return others[step.op]()

    def _log1p(self, z: str) -> str:
        return self.add("Log", self.add("Add", z, self.constant(1.0)))

    def _full_like(self, z: str, fill: float) -> str:
        from onnx import TensorProto, helper

        value = helper.make_tensor("fill", TensorProto.DOUBLE, [1], [fill])
        return self.add("ConstantOfShape", self.add("Shape", z), value=value)
