"""Loading: examination propensities from a file, checked before anybody uses them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import make_curve
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.propensities import LARGEST, Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import read_file
from clickharvest.model.support import Support
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import Places
from clickharvest.words import clean_text, first_line

LARGEST_LOG = 700.0
"""Largest log propensity relative to the anchor, in absolute value: exp(710) is infinite, exp(-745) is 0."""


def load_propensities(path: str | Path) -> Propensities:
    """Read what `Propensities.save` wrote.

    Raises:
        InputError: the file is not such a model, is damaged, or was written by another version.
    """
    header, tensors = read_file(Path(path))
    if (kind := header.get("model")) is not None:
        raise InputError(
            f"{path} holds a click model of the kind {clean_text(str(kind), 40)!r}, which is no examination "
            "propensities: use it with show, weigh or report, or fit with --model examination"
        )
    try:
        return from_file(header, tensors)
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {first_line(error)}) Fit again.") from error


def load_curve(path: str | Path) -> Propensities:
    """Return the propensities of a model file, or of a CSV of `position,propensity` that came from elsewhere.

    Numbers of a CSV are relative to the first position, have no intervals and hold in every context.

    Raises:
        InputError: the file holds neither.
    """
    if Path(path).suffix == ".safetensors":
        return load_propensities(path)
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [
                {(name or "").strip().lower(): value for name, value in row.items()} for row in csv.DictReader(file)
            ]
        numbers = [(int(row["position"]), float(row["propensity"])) for row in rows]
        if len(dict(numbers)) < len(numbers):
            raise InputError("a position has several numbers; expected one")
        return curve_of_numbers(dict(numbers))
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        problem = str(error) if isinstance(error, InputError) else "expected numbers under position and propensity"
        raise InputError(f"{path} is no table of propensities: {problem}") from None


def curve_of_numbers(propensity: Mapping[int, float]) -> Propensities:
    """Return propensities by position as a model without contexts and intervals, relative to the first position.

    Example:
        >>> curve_of_numbers({1: 0.8, 2: 0.4, 5: 0.2}).predict().propensity.round(2)
        array([[1.  , 0.5 , 0.25]])
    """
    positions = tuple(sorted(propensity))
    numbers = np.array([propensity[k] for k in positions], dtype=np.float64)
    if len(positions) < 2 or positions[0] < 1 or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise InputError("expected two positions or more, from 1 on, with numbers above 0")
    curve = make_curve("constant", positions, positions[0], 0)
    return Propensities(curve, {"b": np.log(numbers[1:] / numbers[0])}, None, positions)


def from_file(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Propensities:
    """Return the propensities of a file's header and tensors, as `Propensities.to_file` makes them.

    A digest shows damage, but whoever writes a file can compute it: everything is checked before it is used. Whatever
    this function raises, the file is not sound.
    """
    shape = dict(header["curve"])
    name = shape.pop("name")
    if not isinstance(name, str):
        raise InputError(f"its curve is {str(header['curve'])[:80]}; fit again")
    for tensor, array in tensors.items():
        if tensor != "draws" and not tensor.startswith("params/"):
            raise InputError(f"it has a tensor {clean_text(tensor)!r}; expected params/… and draws")
        expected = np.dtype(np.float32 if tensor == "draws" else np.float64)
        if array.dtype != expected:
            raise InputError(f"its tensor {clean_text(tensor)!r} holds {array.dtype}; expected {expected}")
    encoder, provenance, support = header["encoder"], header["provenance"], header.get("support")
    model = Propensities(
        make_curve(name, tuple(header["positions"]), header["anchor"], header["n_features"], **shape),
        {key.removeprefix("params/"): value for key, value in tensors.items() if key != "draws"},
        None if encoder is None else ContextEncoder.from_dict(encoder),
        tuple(header["shown"]),
        tensors.get("draws"),
        header["draws_kind"],
        header["info"],
        None if provenance is None else Provenance.from_dict(provenance),
        None if support is None else Support.from_dict(support),
        Places.from_dict(header["places"]) if "places" in header else None,
    )
    FitInfo.check(model.info)
    with np.errstate(all="ignore"):
        log_p = model.curve.relative(model.params, typical_context(model))
    if not (np.abs(log_p) <= LARGEST_LOG).all():
        raise InputError("its propensities are infinite, 0 or no numbers in a typical context; fit again")
    if model.draws is not None and (largest := np.abs(model.draws).max()) > LARGEST:
        raise InputError(f"its draws reach {largest:.2g}; expected {LARGEST:g} at most; fit again")
    return model
