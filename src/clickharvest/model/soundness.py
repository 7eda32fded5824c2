"""Whether what a model file tells can be used: shapes of `info`, and propensities that are numbers.

A digest shows damage, but whoever writes a file can compute it: everything in it is looked at before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.words import clean_text

LONGEST = 8192
"""Most positions, features or hidden units, so that a forged file cannot ask for all of the memory."""
MOST_DRAWS = 10_000
"""Most draws, as many as `fit --bootstrap` takes: each costs a tenth of a millisecond with every use."""
LARGEST_LOG = 700.0
"""Of a propensity relative to the anchor, in absolute value: exp(710) is infinite, exp(-745) is 0."""
LARGEST_DRAW = 1e6
"""Of a draw of a parameter, in absolute value; the bound of parameters themselves."""


def check_numbers(log_p: NDArray[np.float64], draws: NDArray[np.float32] | None) -> None:
    """See that propensities, as logarithms in a typical context, and draws of parameters are of a size to use.

    Raises:
        InputError: they are not.
    """
    if not (np.abs(log_p) <= LARGEST_LOG).all():
        raise InputError("its propensities are infinite, 0 or no numbers in a typical context; fit again")
    if draws is not None and np.abs(draws).max() > LARGEST_DRAW:
        raise InputError(f"its draws reach {np.abs(draws).max():.2g}; expected {LARGEST_DRAW:g} at most; fit again")


def check_info(info: Mapping[str, Any]) -> None:
    """See that what `info` tells is of the kind that readers of a model expect; what they do not know is let be.

    Example:
        >>> check_info({"clicks": 3, "selection": [{"curve": "linear", "score": None}], "note": ["of any", "shape"]})
        >>> check_info({"clicks": "many"})
        Traceback (most recent call last):
        clickharvest.errors.InputError: its info has clicks 'many'; expected a whole number
    """
    for key, (fits, expected) in KNOWN.items():
        if key in info and not fits(info[key]):
            raise InputError(f"its info has {key} {clean_text(repr(info[key]))}; expected {expected}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) < math.inf and abs(value) < 1e300)


def _is_size(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value < 2**63)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_candidate(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    curve = value.get("curve")
    named = isinstance(curve, str) or (
        isinstance(curve, Mapping) and all(isinstance(part, str | int) for part in curve.values())
    )
    return named and all(_is_number(value.get(key)) for key in ("penalty", "score", "se"))


def _is_finding(value: Any) -> bool:
    texts = ("kind", "severity", "sentence")
    return isinstance(value, Mapping) and all(isinstance(value.get(key), str) for key in texts)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _are_numbers(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and all(map(_is_number, value.values())))


def _are_lists_of_positions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_list(_is_count), value.values()))


Fits = Callable[[Any], bool]
KNOWN: dict[str, tuple[Fits, str]] = {
    **dict.fromkeys(
        ("estimator", "objective", "relevance", "weighting", "status", "data", "outcome", "users"), (_is_text, "a text")
    ),
    **dict.fromkeys(("units", "clicks", "queries"), (_is_count, "a whole number")),
    **dict.fromkeys(("penalty", "log_likelihood", "seed"), (_is_number, "a number")),
    **dict.fromkeys(("effective_queries", "anchor_rate"), (_is_size, "a number from 0")),
    "pooled": (_are_numbers, "numbers by name"),
    "odd": (_is_list(_is_count), "a list of positions"),
    "odd_in": (_are_lists_of_positions, "lists of positions by the name of a feature"),
    "by_folds": (_is_flag, "true or false"),
    "shrunk": (_is_list(_is_number), "a list of numbers"),
    "selection": (_is_list(_is_candidate), "a list of curves with their scores"),
    "findings": (_is_list(_is_finding), "a list of findings"),
    "budget": (_is_mapping, "a budget"),
}
"""What readers of a model ask for, by key."""
