"""scikit-learn's manners, without scikit-learn: parameters by name, and one error before `fit`.

A constructor keeps its arguments as they are; `get_params` and `repr` show them, `set_params` changes them; `fit`
checks them, learns, and returns the object itself. Names of learned attributes end in an underscore. Where scikit-learn
is installed, its `clone`, `check_is_fitted`, `get_tags` and `ParameterGrid` work on such objects, and one may be the
last step of a `Pipeline`. Its `GridSearchCV` and `cross_val_score` do not: they split arrays by row, while
interventions and lists are to be split by query, as `CPBM` and `PropensitySVMRankCV` do themselves.
"""

from __future__ import annotations

import inspect
import math
import operator
from typing import TYPE_CHECKING, Any, Self

from clickharvest.errors import InputError, NotFittedError


class Parameterised:
    """A class whose constructor keeps its arguments as attributes of the same names.

    Example:
        >>> class Learner(Parameterised):
        ...     def __init__(self, *, cost: float = 1.0, seed: int = 0) -> None:
        ...         self.cost, self.seed = cost, seed
        >>> Learner(cost=3.0).set_params(seed=0)
        Learner(cost=3.0)
        >>> Learner().coef_
        Traceback (most recent call last):
        ...
        clickharvest.errors.NotFittedError: this Learner is not fitted yet, so it has no coef_: call fit first
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters; `deep` changes nothing, as none holds another such object."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters and return the object itself; with an unknown name, none is set."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}: expected {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        # Texts are compared, because == of arrays is an array.
        changed = [
            f"{name}={value!r}" for name, value in self.get_params().items() if repr(value) != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_is_fitted__(self) -> bool:
        return any(_is_learned(name) for name in vars(self))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False)
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), no_validation=True, input_tags=inputs)

    if not TYPE_CHECKING:  # for a type checker, every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            """Raise `NotFittedError` for an attribute that `fit` learns, if `fit` was not called."""
            kind = type(self).__name__
            if _is_learned(name) and not self.__sklearn_is_fitted__():
                raise NotFittedError(f"this {kind} is not fitted yet, so it has no {name}: call fit first")
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)


MOST_CLICKS = 10_000_000
"""Clicks of a harvest in memory: a fit of as many takes some 6 GB."""
TOLERANCE = 0.3
"""Error that a usable curve may have, as measured by `benchmarks/tolerance.py`; the half-width that plans aim at."""


def _is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def require_whole(name: str, value: Any, least: int) -> None:
    """Raise `InputError` unless a parameter is a whole number, `least` or more.

    Example:
        >>> require_whole("folds", 1, 2)
        Traceback (most recent call last):
        clickharvest.errors.InputError: folds is 1: expected a whole number, 2 or more
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < least:
        raise InputError(f"{name} is {value!r}: expected a whole number, {least} or more")


def require_number(name: str, value: Any, least: float) -> None:
    """Raise `InputError` unless a parameter is a finite number, `least` or more.

    Example:
        >>> require_number("penalty", -1.0, 0.0)
        Traceback (most recent call last):
        clickharvest.errors.InputError: penalty is -1.0: expected a number, 0 or more
    """
    number = hasattr(value, "__float__") and not isinstance(value, bool)
    if not number or not least <= float(value) < math.inf:
        raise InputError(f"{name} is {value!r}: expected a number, {least:g} or more")


ROUNDING = 1e-12
"""Relative difference of two numbers up to which they differ by rounding alone."""


def alike(one: float, other: float) -> bool:
    """Return whether two numbers are equal up to rounding; whole numbers must be equal.

    Example:
        >>> alike(0.3, 0.1 + 0.2), alike(0.3, 0.30001), alike(10**15, 10**15 + 1)
        (True, False, False)
    """
    if one == other or (float(one).is_integer() and float(other).is_integer()):
        return one == other
    return abs(one - other) <= ROUNDING * max(abs(one), abs(other))
