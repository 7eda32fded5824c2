"""scikit-learn's manners of parameters: what a constructor takes is kept, told and changed by name."""

from __future__ import annotations

import inspect
from typing import Any, Self

from clickharvest.errors import InputError


class Parameterised:
    """A class whose constructor keeps its arguments as attributes of the same names.

    Example:
        >>> class Learner(Parameterised):
        ...     def __init__(self, *, cost: float = 1.0, seed: int = 0) -> None:
        ...         self.cost, self.seed = cost, seed
        >>> Learner(cost=3.0).set_params(seed=0)
        Learner(cost=3.0)
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's parameters."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Set constructor parameters and return the object itself."""
        for name, value in params.items():
            if name not in self.get_params():
                raise InputError(f"{type(self).__name__} has no parameter {name!r}: {', '.join(self.get_params())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
