"""Objectives: what a fit maximises. This folder is the list of them: a module `NAME.py` with a subclass of `Objective`
whose `name` is `NAME` is all that an objective needs. Names are listed without importing NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.registry import Registry

if TYPE_CHECKING:
    from clickharvest.estimation.objectives.base import Objective

OBJECTIVES: Registry[type[Objective]] = Registry("objective", __name__, besides=("base",))
"""The objectives by name; a module is imported when its objective is looked up."""

WEIGHTINGS = ("paper", "min", "harmonic")
"""The weights ω of a unit and pair in AllPairs, see `AllPairs`."""
RELEVANCE = {
    "constant": "a value for every pair of positions",
    "mlp": "a network of the context",
    "squares": "a sigmoid layer of the context and its squares",
    "free": "a value for every query, context and pair of positions",
}
"""The relevance models of AllPairs, in words."""
