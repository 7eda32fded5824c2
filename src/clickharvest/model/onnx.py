"""Export to ONNX: a model's formula for runtimes without Python.

No curve is written a second time here. A curve computes with whatever array functions it is given; `_Trace` gives it
ones that note every step as an ONNX node instead of doing it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest import __version__
from clickharvest.extras import require
from clickharvest.files import atomic_path

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
    The file's metadata holds, as JSON: `positions` [K], `anchor`, `feature_names` [d], `curve`, `clickharvest`.

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
    trace = _Trace()
    x = trace.node("Cast", trace.tensor("x"), to=onnx.TensorProto.DOUBLE)
    p = trace.exp(curve.relative(propensities.params, x, xp=trace))
    trace.node("Cast", p, to=onnx.TensorProto.FLOAT, output="propensity")
    graph = onnx.helper.make_graph(
        trace.nodes,
        "propensity",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", curve.n_features])],
        [onnx.helper.make_tensor_value_info("propensity", onnx.TensorProto.FLOAT, ["n", len(curve.positions)])],
        trace.constants,
    )
    model = onnx.helper.make_model(
        graph,
        producer_name="clickharvest",
        producer_version=__version__,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    features = () if propensities.encoder is None else propensities.encoder.feature_names
    about = {
        "positions": [int(k) for k in curve.positions],
        "anchor": int(curve.anchor),
        "feature_names": list(features),
        "curve": curve.spec,
        "clickharvest": __version__,
    }
    onnx.helper.set_model_props(model, {key: json.dumps(value) for key, value in about.items()})
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(Path(path)) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))


class _Tensor:
    """A double tensor that will be there when the graph runs; arithmetic on it adds nodes."""

    __array_ufunc__ = None  # so that NumPy leaves `array + tensor` to the tensor

    def __init__(self, trace: _Trace, name: str) -> None:
        self.trace, self.name = trace, name

    def __add__(self, other: Any) -> _Tensor:
        return self.trace.node("Add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> _Tensor:
        return self.trace.node("Sub", self, other)

    def __mul__(self, other: Any) -> _Tensor:
        return self.trace.node("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> _Tensor:
        return self.trace.node("Div", self, other)

    def __neg__(self) -> _Tensor:
        return self.trace.node("Neg", self)

    def __matmul__(self, other: Any) -> _Tensor:
        return self.trace.node("MatMul", self, other)

    def __getitem__(self, index: tuple[Any, ...]) -> _Tensor:
        """Cut the last axis, `[..., begin:end]` or `[:, begin:end]`."""
        *others, cut = index
        if not all(other is Ellipsis or other == slice(None) for other in others):
            raise IndexError(f"only the last axis can be cut, not {index}")
        ends = [0 if cut.start is None else cut.start, np.iinfo(np.int64).max if cut.stop is None else cut.stop]
        return self.trace.node("Slice", self, *(np.array([i], dtype=np.int64) for i in (*ends, -1)))


class _Trace:
    """The array functions that curves use, and the nodes and constants noted so far."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def tensor(self, name: str) -> _Tensor:
        return _Tensor(self, name)

    def node(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> _Tensor:
        """Add one node; inputs that are not tensors become constants."""
        from onnx import helper

        names = [value.name if isinstance(value, _Tensor) else self._constant(value) for value in inputs]
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [output], **attributes))
        return _Tensor(self, output)

    def _constant(self, value: Any) -> str:
        from onnx import numpy_helper

        is_index = isinstance(value, np.ndarray) and value.dtype == np.int64
        array = value if is_index else np.asarray(value, dtype=np.float64)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def exp(self, z: _Tensor) -> _Tensor:
        return self.node("Exp", z)

    def tanh(self, z: _Tensor) -> _Tensor:
        return self.node("Tanh", z)

    def logaddexp(self, a: _Tensor, b: Any) -> _Tensor:
        """Return max(a, b) + log(1 + e^{−|a − b|}); ONNX's Softplus is not there in double precision everywhere."""
        distance = self.node("Abs", a - b)
        return self.node("Max", a, b) + self.node("Log", self.exp(-distance) + 1.0)

    def zeros_like(self, z: _Tensor) -> _Tensor:
        from onnx import TensorProto, helper

        zero = helper.make_tensor("zero", TensorProto.DOUBLE, [1], [0.0])
        return self.node("ConstantOfShape", self.node("Shape", z), value=zero)

    def concatenate(self, parts: Sequence[_Tensor], axis: int) -> _Tensor:
        return self.node("Concat", *parts, axis=axis)
