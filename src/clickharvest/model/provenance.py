"""Provenance: where a model comes from, so that whoever finds its file can judge it and make it again.

`record_provenance` notes versions, parameters and time while a model is made, `data_fingerprint` the data it is fitted
on. The file keeps both; `clickharvest show` and the report print them. Nothing that a file says of its origin is
trusted or executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest import __version__
from clickharvest.errors import InputError
from clickharvest.harvesting.numbering import run_starts

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions

LIBRARIES = ("numpy", "scipy", "duckdb", "ibis", "pyspark")
"""Libraries whose version can change a number."""
SECRETS = re.compile(r"(?<=://)[^/@\s]+(?=@)|(?<=\?)[^?]*=.*")
"""In an address: user and password, and a query, which may hold a signature."""
ROWS_AT_ONCE = 1_000_000
"""Rows of a fingerprint that are hashed at once."""


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from; `record_provenance` makes it.

    Attributes:
        versions: of clickharvest, Python, and the libraries that were loaded when the model was made.
        estimator: the class or function that made it.
        parameters: the constructor's parameters, kept as JSON holds them; None where they are not known.
        made: when, in UTC, such as `"2026-01-31T12:00:00Z"`.
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
            ("versions", isinstance(self.versions, Mapping) and _are_texts(*self.versions.items()), "texts by name"),
            ("estimator", isinstance(self.estimator, str | None), "a name"),
            ("parameters", isinstance(self.parameters, Mapping | None), "values by name"),
            ("made", self.made is None or _is_time(self.made), "a time in UTC, such as 2026-01-31T12:00:00Z"),
            ("command", self.command is None or _are_texts(self.command), "texts"),
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
    """Return a value as JSON holds it, and the text or class of what JSON cannot hold."""
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


def _are_texts(*tuples: Any) -> bool:
    return all(isinstance(texts, tuple) and all(isinstance(text, str) for text in texts) for texts in tuples)


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.endswith("Z") and datetime.fromisoformat(value) is not None
    except ValueError:
        return False


def data_fingerprint(interventions: Interventions) -> str:
    """Return a SHA-256 of all columns, the same however rows are ordered, units numbered and clicks clustered.

    Example:
        >>> from clickharvest.harvesting.interventions import Interventions
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]),
        ...     exposure=np.ones(2), clicks=np.array([1, 0]), impressions=np.ones(2, dtype=int))
        >>> data_fingerprint(interventions) == data_fingerprint(interventions.take(np.array([1, 0])))
        True
    """
    interventions = interventions.undivided()
    counted = ("query", "position", "exposure", "clicks", "impressions")
    columns = [*((name, getattr(interventions, name)) for name in counted), *sorted(interventions.contexts.items())]
    digest = hashlib.sha256(json.dumps([name for name, _ in columns]).encode())
    digest.update(f"{interventions.exposure_kind} {interventions.unit_kind}".encode())
    if interventions.places is not None:
        digest.update(json.dumps(interventions.places.to_dict()).encode())
    row = np.zeros(len(interventions), dtype=np.uint64)
    for _, column in columns:
        texts: dict[str, int] = {}
        for some in (slice(begin, begin + ROWS_AT_ONCE) for begin in range(0, len(row), ROWS_AT_ONCE)):
            row[some] = _mix(row[some] ^ _codes(column[some], texts))
    # Sums do not depend on the order of a unit's rows, nor on that of the units.
    unit = interventions.unit
    if np.any(unit[1:] < unit[:-1]):
        order = np.argsort(unit, kind="stable")
        unit, row = unit[order], row[order]
    sums = np.add.reduceat(row, np.flatnonzero(run_starts([unit], len(unit)))) if len(row) else row
    digest.update(np.array([len(row), _mix(sums).sum(), _mix(~sums).sum()], dtype=np.uint64).tobytes())
    return digest.hexdigest()


def fitted_fingerprints(interventions: Interventions) -> set[str]:
    """Return the fingerprints that a model fitted on the interventions may have: of all units, or of the clicked."""
    return {data_fingerprint(interventions), data_fingerprint(interventions.clicked())}


def _codes(column: NDArray[Any], texts: dict[str, int]) -> NDArray[np.uint64]:
    """Return the bits of numbers, and of anything else those of a hash of its text, which `texts` keeps."""
    if column.dtype.kind in "biuf":
        numbers = column.astype(np.float64)
        return np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    values = [str(value) for value in column.tolist()]
    for text in set(values) - texts.keys():
        texts[text] = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "little")
    return np.array([texts[text] for text in values], dtype=np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers evenly (the finaliser of SplitMix64)."""
    bits = (bits + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
