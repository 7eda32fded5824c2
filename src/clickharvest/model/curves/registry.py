"""The curves there are. This folder is the list of them: one module each, named like the curve."""

from __future__ import annotations

from typing import Any

from clickharvest.registry import Registry

CURVES: Registry[Any] = Registry("curve", __package__, besides=("base", "layers", "registry"))
"""The curves by name, listed without importing NumPy; a subclass of `Curve` with a `name` of its own adds itself."""
