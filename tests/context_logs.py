"""A log with contexts of all types, and a model of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.propensities import Propensities

CONTEXT = ["device", "length", "age", "pays"]
NAN = float("nan")


def context_log(rows: int = 400, seed: int = 3) -> pa.Table:
    """Text, floats (with NaN and both zeros), integers and booleans as contexts, each also empty."""
    random = np.random.default_rng(seed)
    columns: dict[str, tuple[list[Any], pa.DataType]] = {
        "device": (["phone", "desk", "", "it's", None], pa.string()),
        "length": ([0.1, 0.1 + 0.2, 0.0, -0.0, 1e300**0.2, NAN, None], pa.float64()),
        "age": ([0, 7, 2**53 + 1, None], pa.int64()),
        "pays": ([True, False, None], pa.bool_()),
    }
    position = random.integers(1, 8, rows)
    return pa.table(
        {
            "q": [f"q{i % 9}" for i in range(rows)],
            "doc": [f"d{i}" for i in range(rows)],
            "rank": pa.array(position, pa.int16()),
            "click": random.random(rows) < 0.4,
            "note": [{"a": i} if i % 3 else None for i in range(rows)],
            **{
                name: pa.array([values[i] for i in random.integers(0, len(values), rows)], kind)
                for name, (values, kind) in columns.items()
            },
        }
    )


def context_model(table: pa.Table, positions: tuple[int, ...] = (1, 2, 3, 5)) -> Propensities:
    encoder = ContextEncoder.fit(table, names=CONTEXT, kinds={"age": "categorical"})
    curve = make_curve("linear", positions, 1, len(encoder.feature_names))
    random = np.random.default_rng(0)
    params = {key: value + 0.3 * random.normal(size=np.shape(value)) for key, value in curve.init(random).items()}
    return Propensities(curve, params, encoder, (1, 2, 3, 4, 5))
