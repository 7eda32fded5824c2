"""Loading: whichever click model a file holds."""

from __future__ import annotations

from pathlib import Path

from clickharvest.click_models.base import FittedModel
from clickharvest.click_models.registry import CLICK_MODELS, EXAMINATION
from clickharvest.errors import InputError
from clickharvest.model.storage import read_file
from clickharvest.words import clean_text, first_line


def load_model(path: str | Path) -> FittedModel:
    """Read a model file, of whichever click model.

    Raises:
        InputError: the file is no model, is damaged, or was written by a later version.

    Example:
        >>> import tempfile, numpy as np
        >>> from clickharvest.model import Propensities, make_curve
        >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, shown=(1, 2)).save(path)
        >>> load_model(path).predict().propensity
        array([[1. , 0.5]])
    """
    header, tensors = read_file(Path(path))
    name = header.get("model", EXAMINATION)
    if not isinstance(name, str) or name not in CLICK_MODELS:
        raise InputError(
            f"{path} holds a click model {clean_text(str(name), 40)!r}: expected {', '.join(CLICK_MODELS)}"
        )
    try:
        loaded: FittedModel = CLICK_MODELS[name].load(header, tensors)
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {first_line(error)}) Fit again.") from error
    return loaded
