"""Provenance: where a model comes from, so that whoever finds its file can judge it and make it again.

`record_provenance` notes it while a model is made; the file keeps it, `clickharvest show` and the report print it. It
tells what was, in the words of whoever wrote the file: nothing of it is trusted, and nothing of it is executed.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from reprlib import repr as short
from typing import Any, Self

import numpy as np

from clickharvest import __version__
from clickharvest.errors import InputError

LIBRARIES = ("numpy", "scipy", "duckdb", "ibis", "pyspark")
"""Libraries whose version can change a number."""
SECRETS = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=\?)[^?]*=.*")
"""In an address: user and password, and a query, which may hold a signature."""


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from; `record_provenance` makes it.

    Attributes:
        versions: of clickharvest, Python, and the libraries that were loaded when the model was made: DuckDB and Ibis
            are among them where that process harvested.
        estimator: the class or function that made it.
        parameters: the constructor's parameters, kept as JSON holds them; None where they are not known.
        made: when, in UTC, such as `"2026-01-31T12:00:00Z"`; None leaves it untold.
        command: the words typed after `clickharvest`, where a command made it.

    Example:
        >>> one = Provenance({"clickharvest": "1.0", "numpy": "2.4"}, "PBM", {"seed": 3}, command=("fit", "my log.csv"))
        >>> for label, text in one.rows():
        ...     print(f"{label}: {text}")
        Made with: clickharvest 1.0, numpy 2.4
        Made by: PBM(seed=3)
        Command: clickharvest fit 'my log.csv'
        >>> Provenance.from_dict(one.to_dict()) == one
        True
    """

    versions: Mapping[str, str]
    estimator: str | None = None
    parameters: Mapping[str, Any] | None = None
    made: str | None = None
    command: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name, is_valid, expected in (
            ("versions", _are_texts(self.versions), "texts by name"),
            ("estimator", isinstance(self.estimator, str | None), "a name"),
            ("parameters", isinstance(self.parameters, Mapping | None), "values by name"),
            ("made", _is_time(self.made), "a time in UTC, such as 2026-01-31T12:00:00Z"),
            ("command", _are_words(self.command), "texts"),
        ):
            if not is_valid:
                raise InputError(f"provenance has {name} {short(getattr(self, name))}; expected {expected}")
        if self.parameters is not None:
            object.__setattr__(self, "parameters", _plain(self.parameters))

    def with_command(self, words: Sequence[str]) -> Self:
        """Return the same, made by these words after `clickharvest`; secrets in addresses are left out.

        Example:
            >>> Provenance({}).with_command(["fit", "s3://key:secret@bucket/log.csv?X-Signature=1"]).command
            ('fit', 's3://…@bucket/log.csv?…')
        """
        return replace(self, command=tuple(SECRETS.sub("…", word) if "://" in word else word for word in words))

    def rows(self) -> list[tuple[str, str]]:
        """Return what is known as pairs of label and text, made neither safe to print nor short."""
        rows = [
            ("Made", None if self.made is None else self.made.replace("T", " ").replace("Z", " UTC")),
            ("Made with", ", ".join(f"{name} {version}" for name, version in self.versions.items())),
            ("Made by", self._call()),
            ("Command", self.command_line),
        ]
        return [(label, text) for label, text in rows if text]

    @property
    def command_line(self) -> str | None:
        """The command as a shell takes it: always one call of clickharvest, whatever the words hold."""
        return None if self.command is None else shlex.join(["clickharvest", *self.command])

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it; `from_dict` reads it back."""
        return asdict(self) | {"command": None if self.command is None else list(self.command)}

    @classmethod
    def from_dict(cls, saved: Any) -> Self:
        """Read what `to_dict` wrote; anything else is an InputError."""
        keys = [field.name for field in fields(cls)]
        if not isinstance(saved, dict) or saved.keys() != set(keys):
            raise InputError(f"provenance is {short(saved)}; expected {', '.join(keys)}")
        command = saved["command"]
        return cls(**saved | {"command": tuple(command) if isinstance(command, list) else command})

    def _call(self) -> str | None:
        if self.estimator is None or self.parameters is None:
            return self.estimator
        return f"{self.estimator}({', '.join(f'{name}={value!r}' for name, value in self.parameters.items())})"


def record_provenance(estimator: str, parameters: Mapping[str, Any] | None = None) -> Provenance:
    """Return the provenance of a model that is being made here and now.

    The time is that of the environment variable `SOURCE_DATE_EPOCH` (seconds since 1970) where it is set, so that
    equal input gives files of equal bytes; `replace(provenance, made=None)` leaves it out.

    Args:
        estimator: the class or function that makes the model.
        parameters: the constructor's parameters.

    Raises:
        InputError: `SOURCE_DATE_EPOCH` is not a number of seconds.

    Example:
        >>> made = record_provenance("PBM", {"seed": 3})
        >>> made.estimator, made.parameters, made.versions["clickharvest"] == __version__
        ('PBM', {'seed': 3}, True)
    """
    versions = {"clickharvest": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        if version := getattr(sys.modules.get(name), "__version__", None):
            versions[name] = str(version)
    return Provenance(versions, estimator, parameters, _now())


def _now() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        now = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"SOURCE_DATE_EPOCH is {short(epoch)}; expected seconds since 1970, or unset it") from error
    return now.isoformat(timespec="seconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it; what JSON cannot hold is told by its text or its class."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    return value if isinstance(value, int | None) else type(value).__name__


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(part, str) for pair in value.items() for part in pair)


def _are_words(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and all(isinstance(word, str) for word in value))


def _is_time(value: Any) -> bool:
    if value is None:
        return True
    try:
        return isinstance(value, str) and value.endswith("Z") and datetime.fromisoformat(value) is not None
    except ValueError:
        return False
