"""Model files: arrays and JSON in one safetensors file, and a digest that shows damage.

Nothing in such a file can run. The metadata hold one key, `clickharvest` (safetensors writes several in any order, and
equal models give equal bytes). It is a JSON object with the model's header and

- `format`: the version of the format;
- `model`: the click model, where it is not that of examination (`clickharvest.click_models`);
- `sha256`: SHA-256 over the other keys, sorted, and over all tensors, their names, types, shapes and bytes.

The digest shows a flipped bit, a copy that broke off, or an edit by hand. It is no signature: whoever writes a file can
compute it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.words import first_line

FORMAT = 5
"""Version of the file format; a file of another one is refused."""
KEY = "clickharvest"

Tensors = Mapping[str, NDArray[Any]]


def write_file(path: Path, header: Mapping[str, Any], tensors: Tensors) -> None:
    """Write a header and tensors, whole or not at all; equal input gives equal bytes.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> write_file(path, {"anchor": 1}, {"b": np.zeros(2)})
        >>> read_file(path)
        ({'format': 5, 'anchor': 1}, {'b': array([0., 0.])})
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    whole = {"format": FORMAT} | dict(header)
    text = json.dumps(whole | {"sha256": digest(whole, tensors)})
    with atomic_path(path) as partial:
        try:
            save_file(dict(tensors), partial, metadata={KEY: text})
        except SafetensorError as error:  # such as a full disk
            raise OSError(first_line(error)) from error


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the tensors of a file, once its digest is found right.

    Raises:
        InputError: the file is not one of a model, is damaged, or was written by another version.
    """
    from safetensors import safe_open

    if not path.is_file():
        raise InputError(f"no file {path}: expected a model, as clickharvest fit writes it")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY)
            tensors = {} if text is None else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors raises a class of its own, OSError, TypeError, …
        raise InputError(f"{path} cannot be read as a safetensors file: {first_line(error)}") from error
    if text is None:
        raise InputError(f"{path} is a safetensors file, but no model of clickharvest: expected one that fit wrote")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: its header is no JSON; copy it again, or fit again") from error
    if not isinstance(header, dict) or type(header.get("format")) is not int:
        raise InputError(f"{path} cannot be used: its header is not that of a model; fit again")
    if (version := header["format"]) != FORMAT:
        what = "upgrade clickharvest" if version > FORMAT else "fit again"
        raise InputError(f"{path} has the format {str(version)[:20]}, this version reads {FORMAT}; {what}")
    try:
        is_whole = header.pop("sha256", None) == digest(header, tensors)
    except (ValueError, RecursionError):
        is_whole = False
    if not is_whole:
        raise InputError(f"{path} is damaged: its contents are not those of its digest; copy it again, or fit again")
    return header, tensors


def digest(header: Mapping[str, Any], tensors: Tensors) -> str:
    """Return the SHA-256 of a header and tensors, however either is ordered.

    Example:
        >>> b = np.array([0.0])
        >>> digest({"anchor": 1}, {"b": b}) == digest({"anchor": 1}, {"b": -b})
        False
    """
    named = sorted(tensors.items())
    shapes = [[name, array.dtype.name, array.shape] for name, array in named]
    sha256 = hashlib.sha256(json.dumps([header, shapes], sort_keys=True).encode())
    for _, array in named:
        sha256.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    return sha256.hexdigest()
