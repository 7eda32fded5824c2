"""What JAX computes on, looked at before minutes are spent on reading a log, and how many threads NumPy has."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from threadpoolctl import threadpool_limits

from clickharvest.errors import EngineError
from clickharvest.words import first_line

Function = TypeVar("Function", bound=Callable[..., Any])


def on_one_thread(function: Function) -> Function:
    """Let linear algebra run on one thread while a function runs.

    Matrices of a fit are small. More threads gain nothing on them, and wait for each other by spinning: of 16 cores a
    fit took ten times the CPU time it needed.
    """

    @wraps(function)
    def on_one(*arguments: Any, **options: Any) -> Any:
        with threadpool_limits(limits=1, user_api="blas"):
            return function(*arguments, **options)

    return cast(Function, on_one)


def require_device() -> None:
    """See that JAX finds the platform that the variable JAX_PLATFORMS names, where it names one.

    Raises:
        EngineError: it does not.
    """
    if not os.environ.get("JAX_PLATFORMS"):
        return
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        asked = f"JAX_PLATFORMS={os.environ['JAX_PLATFORMS']}"
        raise EngineError(f"{asked} does not work here: {first_line(error)} Unset the variable, or set cpu.") from error
