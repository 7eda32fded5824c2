"""Optional packages: the extras of pyproject.toml, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from clickharvest.errors import ClickharvestError, InputError


def require(package: str, extra: str, use: str, *, error: type[ClickharvestError] = InputError) -> Any:
    """Return a package of an extra, or raise an error that says how to install it.

    Args:
        package: the module to import.
        extra: the extra of clickharvest that installs it.
        use: what needs the package, the beginning of a sentence.
        error: the class of the error.

    Raises:
        ClickharvestError: the package is not installed; of the class `error`.

    Example:
        >>> require("json", "plots", "a chart").dumps([])
        '[]'
        >>> require("no_such_package", "plots", "a chart")
        Traceback (most recent call last):
        clickharvest.errors.InputError: a chart needs no_such_package: pip install 'clickharvest[plots]'
    """
    try:
        return import_module(package)
    except ImportError as missing:
        raise error(f"{use} needs {package}: pip install 'clickharvest[{extra}]'") from missing
