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
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.soundness import check_info, check_numbers
from clickharvest.model.storage import read_file
from clickharvest.model.support import Support
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import Places
from clickharvest.words import clean_text, first_line


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
    """Return the propensities of a file's header and tensors, checked; whatever it raises, the file is not sound."""
    loaded = _from_header(header, tensors)
    check_info(loaded.info)
    with np.errstate(all="ignore"):
        log_p = loaded.curve.relative(loaded.params, typical_context(loaded))
    check_numbers(log_p, loaded.draws)
    return loaded


def _from_header(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Propensities:
    shape = dict(header["curve"])
    name = shape.pop("name")
    if not isinstance(name, str):
        raise InputError(f"its curve is {str(header['curve'])[:80]}; fit again")
    _check_types(tensors)
    encoder = None if header["encoder"] is None else ContextEncoder.from_dict(header["encoder"])
    origin = header["provenance"]
    support = header.get("support")
    return Propensities(
        make_curve(name, tuple(header["positions"]), header["anchor"], header["n_features"], **shape),
        {name.removeprefix("params/"): value for name, value in tensors.items() if name != "draws"},
        encoder,
        tuple(header["shown"]),
        tensors.get("draws"),
        header["draws_kind"],
        header["info"],
        None if origin is None else Provenance.from_dict(origin),
        None if support is None else Support.from_dict(support),
        Places.from_dict(header["places"]) if "places" in header else None,
    )


def _check_types(tensors: Mapping[str, NDArray[Any]]) -> None:
    for name, array in tensors.items():
        if name != "draws" and not name.startswith("params/"):
            raise InputError(f"it has a tensor {clean_text(name)!r}; expected params/… and draws")
        expected = np.dtype(np.float32 if name == "draws" else np.float64)
        if array.dtype != expected:
            raise InputError(f"its tensor {clean_text(name)!r} holds {array.dtype}; expected {expected}")
