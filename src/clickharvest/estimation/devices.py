"""What JAX computes on, looked at before minutes are spent on reading a log."""

from __future__ import annotations

import os

from clickharvest.errors import EngineError
from clickharvest.words import first_line


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
