"""Examination curves: how log p_k(x) depends on the position k and the context x.

A curve is one class, and nothing else: it adds itself to `CURVES` under its `name`, and from there it is fitted, saved,
loaded, scored, exported, drawn and offered on the command line. Its formula is written once, against a namespace `xp`
of array functions: `numpy` for scoring, `jax.numpy` for fitting, and a tracer (`clickharvest.model.trace`) for what
runs without Python.
"""

from clickharvest.model.curves.base import (
    CURVES,
    Curve,
    Params,
    flatten_params,
    half_squares,
    make_curve,
    unflatten_params,
)
from clickharvest.model.curves.lines import Constant, Linear, LowRank, Power
from clickharvest.model.curves.networks import (
    MLP,
    Position,
    Recurrent,
    hidden_layer,
    layers_penalty,
    log_sigmoid,
    sigmoid_layers,
)

__all__ = [
    "CURVES",
    "MLP",
    "Constant",
    "Curve",
    "Linear",
    "LowRank",
    "Params",
    "Position",
    "Power",
    "Recurrent",
    "flatten_params",
    "half_squares",
    "hidden_layer",
    "layers_penalty",
    "log_sigmoid",
    "make_curve",
    "sigmoid_layers",
    "unflatten_params",
]
