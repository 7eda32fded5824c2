"""Contexts: the columns that describe a query, user or device, as the matrix x of an examination model.

`ContextEncoder.fit` learns from the training log what each column is; `transform` turns any later table with these
columns into x. Both need NumPy only.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from numbers import Real
from reprlib import repr as short
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.words import count

KINDS = ("numeric", "boolean", "categorical")
NUMBERS = "biuf"
"""NumPy's letters for booleans, integers and floats."""

LARGEST = 1e100
"""Largest number of a column. Squares, sums over a billion rows and quotients by the least sd (its inverse) stay
finite."""


class Table(Protocol):
    """Columns by name: a dict of arrays or lists, a pandas or Polars DataFrame, an Arrow table."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class ContextColumn:
    """How one column fills its features of x; `kind` is one of `KINDS`.

    - numeric: (value - mean) / sd;
    - boolean: 1 if true, 0 if false; `mean` is the share of true;
    - categorical: one-hot of `levels`, most frequent first, then of `other`: every rarer or unseen level.

    `missing` says that values were missing in training, so that a last feature, 0 or 1, tells where they are.
    `missing_rank` says how often: how many values had as many rows or more, of a category those of `levels`, of a
    number or yes/no all of them as one. None where none was missing, or in an older file.
    """

    name: str
    kind: str
    missing: bool
    mean: float = 0.0
    sd: float = 1.0
    levels: tuple[str, ...] = ()
    missing_rank: int | None = None

    def __post_init__(self) -> None:
        most = len(self.levels) if self.kind == "categorical" else 1
        is_rank = isinstance(self.missing_rank, int) and not isinstance(self.missing_rank, bool)
        is_mean = _is_finite(self.mean) and (self.kind != "boolean" or 0 <= self.mean <= 1)
        are_texts = all(isinstance(level, str) for level in self.levels)
        for field, is_valid, expected in (
            ("name", isinstance(self.name, str), "text"),
            ("kind", self.kind in KINDS, f"one of {KINDS}"),
            ("missing", isinstance(self.missing, bool), "True or False"),
            ("mean", is_mean, "a finite number, from 0 to 1 if boolean"),
            ("sd", _is_finite(self.sd) and self.sd >= 1 / LARGEST, "a finite number above 0"),
            ("levels", are_texts and len(set(self.levels)) == len(self.levels), "texts that all differ"),
            (
                "missing_rank",
                self.missing_rank is None or (self.missing and is_rank and 0 <= self.missing_rank <= most),
                f"a whole number from 0 to {most} where values were missing, or None",
            ),
        ):
            if not is_valid:
                value = short(getattr(self, field))
                raise InputError(f"context column {short(self.name)} has the {field} {value}; expected {expected}")

    @property
    def features(self) -> list[str]:
        """The names of the features, in order."""
        names = [self.name]
        if self.kind == "categorical":
            names = [f"{self.name}={level}" for level in (*self.levels, "other")]
        return [*names, f"{self.name} is missing"] if self.missing else names

    def fill(self, x: NDArray[np.float64], values: NDArray[Any]) -> NDArray[np.bool_]:
        """Write the features of `values` [n] into `x` [n, len(features)], which holds zeros.

        Returns:
            Where a value is missing that never was in training, [n]; a category counts it as *other* instead.
        """
        if self.kind == "categorical":
            distinct, codes = _distinct(self.name, values)
            feature = {level: i for i, level in enumerate(self.levels)}
            other = len(self.levels)
            if_missing = other + self.missing
            hot = [if_missing if _is_missing(v) else feature.get(_text(v), other) for v in distinct]
            x[np.arange(len(x)), np.array(hot, dtype=np.intp)[codes]] = 1
            return np.zeros(len(x), dtype=bool)
        numbers = _numbers(self.name, self.kind, values)
        is_missing = np.isnan(numbers)
        if self.kind == "numeric":
            x[:, 0] = np.where(is_missing, 0, (numbers - self.mean) / self.sd)
        else:
            x[:, 0] = np.where(is_missing, 0 if self.missing else self.mean, numbers)
        if self.missing:
            x[:, 1] = is_missing
            return np.zeros(len(x), dtype=bool)
        return is_missing


@dataclass(frozen=True)
class ContextEncoder:
    """Columns of a click log → x, a float64 matrix [n rows, d features]; made by `fit`, not changed after.

    | kind | features in x | a missing value | missing, but never in training |
    |---|---|---|---|
    | numeric | (value - mean) / sd | 0, and `name is missing` is 1 | 0, the mean |
    | boolean | 0 or 1 | 0, and `name is missing` is 1 | the training share of true |
    | categorical | one-hot: `name=level`, `name=other` | only `name is missing` is 1 | `name=other` is 1 |

    >>> log = {"device": ["phone", "desk", "phone", None], "age": [20, 40, 30, 30], "pays": [True, False] * 2}
    >>> encoder = ContextEncoder.fit(log)
    >>> encoder.feature_names
    ('device=phone', 'device=desk', 'device=other', 'device is missing', 'age', 'pays')
    >>> encoder.transform({"device": ["desk", "watch"], "age": [40, 30], "pays": [True, None]}).round(2)
    array([[0.  , 1.  , 0.  , 0.  , 1.41, 1.  ],
           [0.  , 0.  , 1.  , 0.  , 0.  , 0.5 ]])
    """

    parts: tuple[ContextColumn, ...]

    def __post_init__(self) -> None:
        if not self.parts or len(set(self.columns)) < len(self.parts):
            raise InputError(f"context columns are {list(self.columns)}; expected one or more, each once")

    @classmethod
    def fit(
        cls,
        columns: Table,
        *,
        names: Iterable[str] | None = None,
        kinds: Mapping[str, str] | None = None,
        max_levels: int = 20,
        min_count: int = 1,
    ) -> Self:
        """Learn the encoding of a table of one or more rows.

        `names` are the columns to encode, in this order (all when None). `kinds` states the kind of a column
        where its values suggest another, as integer codes do; levels compare as text, so that 3, "3" and 3.0
        are one. The `max_levels` most frequent levels with `min_count` rows or more, ties going by name, have
        a feature of their own.
        """
        chosen = tuple(column_names(columns) if names is None else names)
        kinds = dict(kinds or {})
        if wrong := {name: kind for name, kind in kinds.items() if name not in chosen or kind not in KINDS}:
            raise InputError(f"kinds has {wrong}; expected columns of {list(chosen)} and kinds of {KINDS}")
        if min(max_levels, min_count) < 1:
            raise InputError(f"found {max_levels=} and {min_count=}; expected 1 or more for both")
        parts = []
        table = _read(columns, chosen)
        for name in chosen:
            values = table[name]
            if not values.size:
                raise InputError(f"context column {name!r} has no rows; expected one or more to fit on")
            known = None if values.dtype.kind in NUMBERS else _distinct(name, values)
            kind = kinds.get(name) or _kind(values, known)
            if kind == "categorical":
                parts.append(_fit_levels(name, *(known or _distinct(name, values)), max_levels, min_count))
            else:
                parts.append(_fit_moments(name, kind, values))
        return cls(tuple(parts))

    def transform(self, columns: Table) -> NDArray[np.float64]:
        """The matrix x [n, d] of a table of n rows that has the columns of training, in any order."""
        return self.encode(columns)[0]

    def encode(self, columns: Table) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The matrix x, and where a number or yes/no is missing that never was in training, [n, columns]."""
        table = _read(columns, self.columns)
        x = np.zeros((len(table[self.columns[0]]), len(self.feature_names)))
        lacking = np.zeros((len(x), len(self.parts)), dtype=bool)
        start = 0
        for i, part in enumerate(self.parts):
            stop = start + len(part.features)
            lacking[:, i] = part.fill(x[:, start:stop], table[part.name])
            start = stop
        return x, lacking

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the input columns."""
        return tuple(part.name for part in self.parts)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the d features, all different: if a level is called `other`, the rest is `name=other…`."""
        taken: dict[str, None] = {}
        for part in self.parts:
            for feature in part.features:
                while feature in taken:
                    feature += "…"
                taken[feature] = None
        return tuple(taken)

    def to_dict(self) -> dict[str, Any]:
        """The encoder as JSON holds it; `from_dict` reads it back to an equal encoder."""
        return {"columns": [asdict(part) | {"levels": list(part.levels)} for part in self.parts]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; anything else is an InputError."""
        columns = saved.get("columns") if isinstance(saved, Mapping) and len(saved) == 1 else None
        if not isinstance(columns, list):
            raise InputError(f"saved contexts are {short(saved)}; expected what to_dict() returns")
        keys = [field.name for field in fields(ContextColumn)]
        parts = []
        for entry in columns:
            # Files of older versions do not tell how often values were missing.
            whole = {"missing_rank": None} | entry if isinstance(entry, dict) else entry
            levels = entry["levels"] if isinstance(entry, dict) and set(whole) == set(keys) else None
            if not isinstance(levels, list):
                raise InputError(f"saved context column is {short(entry)}; expected {keys} (levels a list)")
            parts.append(ContextColumn(**{**entry, "levels": tuple(levels)}))
        return cls(tuple(parts))


def _fit_levels(
    name: str, distinct: list[Any], codes: NDArray[np.intp], max_levels: int, min_count: int
) -> ContextColumn:
    rows: Counter[str] = Counter()
    missing = 0
    for value, times in zip(distinct, np.bincount(codes).tolist(), strict=True):
        if _is_missing(value):
            missing += times
        else:
            rows[_text(value)] += times
    ranked = sorted((-times, level) for level, times in rows.items() if times >= min_count)
    levels = tuple(level for _, level in ranked[:max_levels])
    before = sum(rows[level] >= missing for level in levels) if missing else None
    return ContextColumn(name, "categorical", missing > 0, levels=levels, missing_rank=before)


def _fit_moments(name: str, kind: str, values: NDArray[Any]) -> ContextColumn:
    numbers = _numbers(name, kind, values)
    is_missing = np.isnan(numbers)
    before = None
    if missing := bool(is_missing.any()):
        numbers = numbers[~is_missing]
        before = int(2 * len(numbers) >= len(is_missing))
    if not numbers.size:
        return ContextColumn(name, kind, missing=True, missing_rank=0)
    # Distinct values ascend, so that sums are the same in whatever order rows come.
    distinct, times = np.unique(numbers, return_counts=True)
    if len(distinct) == 1:
        return ContextColumn(name, kind, missing, float(distinct[0]) + 0.0, missing_rank=before)  # never −0
    mean = float(np.average(distinct, weights=times))
    sd = math.sqrt(np.average((distinct - mean) ** 2, weights=times))
    is_scaled = kind == "numeric" and sd >= 1 / LARGEST
    return ContextColumn(name, kind, missing, mean, sd if is_scaled else 1.0, missing_rank=before)


def column_names(table: Any) -> list[str]:
    """Return the column names of an Arrow table, a DataFrame or a mapping."""
    return list(getattr(table, "column_names", getattr(table, "columns", table)))


def _read(table: Any, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the columns `names` as arrays [n]."""
    available = column_names(table)
    read = {}
    for name in names:
        if (times := available.count(name)) != 1:
            raise InputError(f"context column {name!r} is there {times} times; expected it once among {available}")
        column = table[name]
        if hasattr(column, "combine_chunks"):  # in chunks, Arrow's dictionaries turn null into some level
            column = column.combine_chunks()
        if np.ma.isMaskedArray(column) and column.mask.any():
            column = column.tolist()
        # A list as objects, because NumPy turns ["a", nan] into the texts "a" and "nan".
        read[name] = values = np.asarray(column, dtype=object if isinstance(column, list | tuple) else None)
        if values.ndim != 1:
            raise InputError(f"context column {name!r} has shape {values.shape}; expected one value per row")
    rows = {name: len(values) for name, values in read.items()}
    if len(set(rows.values())) > 1:
        raise InputError(f"context columns have different numbers of rows, {rows}; expected the same number")
    return read


def _kind(values: NDArray[Any], known: tuple[list[Any], NDArray[np.intp]] | None) -> str:
    """The kind that the dtype suggests, or else the distinct values."""
    if known is None:
        return "boolean" if values.dtype.kind == "b" else "numeric"
    present = [value for value in known[0] if not _is_missing(value)]
    if not present or not all(map(_is_number, present)):
        return "categorical"
    return "boolean" if all(isinstance(value, bool | np.bool_) for value in present) else "numeric"


def _numbers(name: str, kind: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """The `values` [n] of a numeric or boolean column as numbers, NaN where missing."""
    if values.dtype.kind in NUMBERS:
        numbers, wrong = values.astype(np.float64, copy=False), []
    else:
        distinct, codes = _distinct(name, values)
        numbers = np.array([_number(value) for value in distinct], dtype=np.float64)[codes]
        wrong = [value for value in distinct if not _is_missing(value) and not _is_number(value)]
    if kind == "boolean" and not wrong:
        wrong = numbers[~(np.isnan(numbers) | (numbers == 0) | (numbers == 1))].tolist()
    if wrong:
        expected = "numbers" if kind == "numeric" else "True, False, 1, 0"
        raise InputError(
            f"context column {name!r} is {kind} but holds {short(wrong[0])}; expected {expected} or missing "
            f"values: convert the column, or fit with kinds={{{name!r}: 'categorical'}}"
        )
    if infinite := int(np.count_nonzero((numbers > LARGEST) | (numbers < -LARGEST))):
        raise InputError(
            f"context column {name!r} holds {count(infinite, 'infinite number')} (beyond ±{LARGEST:g}); expected "
            "finite ones: clip or drop them"
        )
    return numbers


def _distinct(name: str, values: NDArray[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """The distinct values, and for each row [n] the index of its value among them."""
    if values.dtype.kind in "mM" and np.datetime_data(values.dtype)[0] == "ns":
        values = values.astype(f"{values.dtype.kind}8[us]")  # tolist() would make integers of nanoseconds
    heads, run = _runs(values)
    rows = heads.tolist()
    index: defaultdict[Any, int] = defaultdict()
    index.default_factory = index.__len__
    # Keyed with the type where it varies, because True == 1 and yet they are two levels.
    is_mixed = len({*map(type, rows)} - {type(None)}) > 1
    keys: Iterable[Any] = zip(map(type, rows), rows, strict=True) if is_mixed else rows
    try:
        codes = np.fromiter(map(index.__getitem__, keys), np.intp, len(rows))
    except TypeError:
        raise InputError(f"context column {name!r} holds lists; expected one value per row") from None
    return [value for _, value in index] if is_mixed else [*index], codes if run is None else codes[run]


def _runs(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp] | None]:
    """The first of every run of equal values, and for each row [n] its run; all values, and None, where none repeat.

    Rows of a query stand together, and to compare neighbours takes a fraction of the time to look each up.
    """
    try:
        starts = np.append(True, np.asarray(values[1:] != values[:-1], dtype=bool))
    except TypeError:  # pandas.NA has no truth value
        return values, None
    heads = values[starts[: len(values)]]
    # Objects may be equal and yet two levels, as True and 1 are, but not where they are texts.
    if len(heads) == len(values) or (values.dtype.kind == "O" and not {*map(type, heads)} <= {str, type(None)}):
        return values, None
    run = np.cumsum(starts, dtype=np.intp)
    run -= 1
    return heads, run


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal | np.bool_)


def _is_finite(value: Any) -> bool:
    """Whether a saved mean or sd is sound; that of numbers within the bound may round to just beyond it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2 * LARGEST


def _number(value: Any) -> float:
    if not _is_number(value) or _is_missing(value):
        return math.nan
    # Compared before it is converted, because float(10**400) overflows.
    return math.inf if abs(value) > LARGEST else float(value)


def _text(value: Any) -> str:
    """The level that a value belongs to."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    # Integer codes come as floats as soon as one of them is missing.
    if isinstance(value, float | np.floating | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)
