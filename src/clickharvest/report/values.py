"""Values of the context columns that the report offers in menus, sliders and segments, and how sentences name them.

Values come from the encoder, and from encoded contexts where there are some: NumPy is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import Support
from clickharvest.model.typical import typical_context
from clickharvest.words import shorten

Array = NDArray[np.float64]

FEW = 12
"""Distinct values up to which numbers are shown one by one."""
MOST_CONTEXTS = 200_000
"""Context rows that are used at most, evenly spaced."""
MISSING = "missing"
"""Label of a missing value."""
TAIL = 0.1
"""Share of contexts below a low number, and above a high one."""
LONGEST = 30
"""Characters of a user's name or level inside a sentence."""


@dataclass(frozen=True)
class Choice:
    """One value of a column.

    Attributes:
        label: the value in words.
        features: its features, as the encoder gives them.
        share: its weight in comparisons of values, at least 0.
    """

    label: str
    features: tuple[float, ...]
    share: float


@dataclass(frozen=True)
class ColumnValues:
    """The values of one context column.

    Attributes:
        part: how the column is encoded.
        start: where its features begin in x.
        typical: the value in the typical context (`model.summary`).
        choices: the levels; of a number with many values, a low, a middle and a high one.
        range: the least and the largest value of a slider; None where the choices are all there is.
    """

    part: ContextColumn
    start: int
    typical: Choice
    choices: tuple[Choice, ...]
    range: tuple[float, float] | None

    @property
    def features(self) -> slice:
        """Where the column's features stand in x."""
        return slice(self.start, self.start + len(self.part.features))

    def is_missing(self, choice: Choice) -> bool:
        """Return whether a choice is a missing value, and no level of that name."""
        return self.part.missing and choice.label == MISSING and choice.features[-1] == 1


def encode_contexts(propensities: Propensities, contexts: Any) -> Array:
    """Return x [n, d] of a table of contexts; of a long one, evenly spaced rows."""
    if propensities.encoder is None:
        return np.zeros((0, 0))
    x = propensities.encoder.transform(contexts)
    return x if len(x) <= MOST_CONTEXTS else x[np.linspace(0, len(x) - 1, MOST_CONTEXTS).astype(int)]


def column_values(propensities: Propensities, x: Array | None = None) -> list[ColumnValues]:
    """Return the values of every context column, in the encoder's order.

    Args:
        propensities: the model; one without context has no columns.
        x: encoded contexts [n, d], for the values and their frequencies; without them numbers are taken to be normal,
            and levels equally frequent.

    Example:
        >>> from clickharvest.model.contexts import ContextEncoder
        >>> from clickharvest.model.curves import make_curve
        >>> table = {"device": ["phone", "desk", "phone"], "age": [20, 40, 30]}
        >>> encoder = ContextEncoder.fit(table)
        >>> curve = make_curve("power", (1, 2), 1, 4)
        >>> model = Propensities(curve, {"a": np.ones(1), "w": np.zeros((4, 1))}, encoder, (1, 2))
        >>> for column in column_values(model, encoder.transform(table)):
        ...     print(column.typical.label, [choice.label for choice in column.choices])
        phone ['phone', 'desk', 'other']
        30 ['20', '30', '40']
    """
    values_of_columns, start, typical = [], 0, typical_context(propensities)[0]
    for part in () if propensities.encoder is None else propensities.encoder.parts:
        width = len(part.features)
        features = None if x is None or not len(x) else x[:, start : start + width]
        values_of_columns.append(_values(part, start, features, typical[start : start + width]))
        start += width
    return values_of_columns


def value_doubts(propensities: Propensities, index: int, features: Array) -> list[list[dict[str, Any]]]:
    """Return the doubts about each value of one column: why, and at which positions.

    The doubts about a context are those about its values, and about values that were never together.

    Args:
        propensities: the model.
        index: which of the encoder's columns.
        features: the values' features, [n, features of the column].

    Example:
        >>> from clickharvest.model.contexts import ContextEncoder
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.support import ColumnSupport, Support
        >>> encoder = ContextEncoder.fit({"device": ["desk", "phone"]})
        >>> support = Support((ColumnSupport(((1, 2), (1,))),), (None, 40.0))
        >>> curve = make_curve("power", (1, 2), 1, 3)
        >>> model = Propensities(curve, {"a": np.ones(1), "w": np.zeros((3, 1))}, encoder, (1, 2), support=support)
        >>> desk, phone, other = value_doubts(model, 0, np.eye(3))
        >>> desk, phone[0]["at"], other
        ([], [2], [{'why': 'device: a value that training never had', 'at': [1, 2]}])
    """
    if propensities.support is None or propensities.encoder is None:
        return [[] for _ in features]
    alone = Support((propensities.support.columns[index],), propensities.support.queries)
    shown = np.array(propensities.shown)
    encoder = ContextEncoder((propensities.encoder.parts[index],))
    doubts: list[list[dict[str, Any]]] = [[] for _ in features]
    for doubt in alone.doubts(encoder, features, propensities.shown, clusters=propensities.fit_info.cluster_nouns[1]):
        for i, where in enumerate(np.broadcast_to(doubt.where, (len(features), len(shown)))):
            if where.any():
                doubts[i].append({"why": doubt.why, "at": shown[where].tolist()})
    return doubts


def _values(part: ContextColumn, start: int, x: Array | None, typical_features: Array) -> ColumnValues:
    if part.kind == "categorical":
        labels = (*part.levels, "other", *((MISSING,) if part.missing else ()))
        named = [*(1.0 for _ in part.levels), 0.0, *((float(typical_features[-1]),) if part.missing else ())]
        shares = named if x is None else x.mean(axis=0).tolist()
        hot = np.eye(len(labels)).tolist()
        choices = tuple(Choice(*each) for each in zip(labels, map(tuple, hot), shares, strict=True))
        return ColumnValues(part, start, choices[int(np.argmax(typical_features))], choices, None)
    missing: tuple[Choice, ...] = ()
    if part.missing:
        # Without contexts, a missing value counts only where it is the typical one.
        missing = (Choice(MISSING, (0.0, 1.0), float(typical_features[1] if x is None else x[:, 1].mean())),)
    is_missing = part.missing and typical_features[1] == 1
    if part.kind == "boolean":
        yes = part.mean if x is None else float(x[:, 0].mean())
        known = tuple(_choice(part, word, i, share) for i, (word, share) in enumerate([("no", 1 - yes), ("yes", yes)]))
        average = _choice(part, f"yes in {part.mean:.0%}", part.mean, 0.0)
        return ColumnValues(part, start, missing[0] if is_missing else average, known + missing, None)
    typical = missing[0] if is_missing else _choice(part, f"{part.mean:.4g}", 0.0, 0.0)
    present = None if x is None else x[x[:, 1] == 0, 0] if part.missing else x[:, 0]
    if present is None or not len(present):
        low = NormalDist().inv_cdf(TAIL)
        ends = (part.mean - 2.5 * part.sd, part.mean + 2.5 * part.sd)
        return ColumnValues(part, start, typical, _spread(part, low, 0.0, -low) + missing, ends)
    distinct, counts = np.unique(present, return_counts=True)
    if len(distinct) <= FEW:
        each = zip(distinct.tolist(), (counts / len(x if x is not None else counts)).tolist(), strict=True)
        known = tuple(_choice(part, f"{part.mean + part.sd * v:.4g}", v, share) for v, share in each)
        return ColumnValues(part, start, typical, known + missing, None)
    low, middle, high, least, largest = np.quantile(present, [TAIL, 0.5, 1 - TAIL, 0.01, 0.99]).tolist()
    ends = (part.mean + part.sd * least, part.mean + part.sd * largest)
    return ColumnValues(part, start, typical, _spread(part, low, middle, high) + missing, ends)


def _choice(part: ContextColumn, label: str, feature: float, share: float) -> Choice:
    return Choice(label, (float(feature), 0.0)[: len(part.features)], share)


def _spread(part: ContextColumn, *features: float) -> tuple[Choice, ...]:
    """Return a low, a middle and a high number; the middle one does not count in comparisons."""
    shares = (0.5, 0.0, 0.5)
    return tuple(
        _choice(part, f"{part.mean + part.sd * v:.4g}", v, share) for v, share in zip(features, shares, strict=True)
    )


def spell(value: float) -> str:
    """Return a propensity with two significant digits, or two decimals.

    Example:
        >>> spell(1.234), spell(0.4321), spell(0.08), spell(0.00049)
        ('1.23', '0.43', '0.080', '0.00049')
    """
    return f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"


def name_queries(column: ColumnValues, choice: Choice) -> str:
    """Return a plain phrase for the queries with one value of a column.

    Example:
        >>> from clickharvest.model.contexts import ContextColumn
        >>> def say(name, kind, label):
        ...     part = ContextColumn(name, kind, True)
        ...     choice = Choice(label, (1.0,), 1.0)
        ...     return name_queries(ColumnValues(part, 0, choice, (choice,), None), choice)
        >>> say("complex", "boolean", "yes"), say("is_mobile", "boolean", "no"), say("has_image", "boolean", "yes")
        ('complex queries', 'queries that are not mobile', 'queries with image')
        >>> say("device", "categorical", "phone"), say("device", "categorical", "missing")
        ('queries with device phone', 'queries without a known device')
    """
    name, label = _short_name(column.part.name), shorten(choice.label, LONGEST)
    if column.is_missing(choice):
        return f"queries without a known {name}"
    if column.part.kind == "categorical" and choice.label == "other" and "other" not in column.part.levels:
        return f"queries with another {name}"
    if column.part.kind != "boolean":
        return f"queries with {name} {label}"
    yes = choice.label == "yes"
    if (adjective := _without(name, "has")) is not None:
        return f"queries {'with' if yes else 'without'} {adjective}"
    adjective = _without(name, "is") or name
    return f"{adjective} queries" if yes else f"queries that are not {adjective}"


def typical_query(columns: list[ColumnValues], most: int = 3) -> str:
    """Return the typical context in a few words: shares of yes, means, most frequent levels.

    Example:
        >>> from clickharvest.model.contexts import ContextColumn
        >>> part = ContextColumn("is_complex", "boolean", False, mean=0.28)
        >>> columns = [ColumnValues(part, 0, Choice("yes in 28%", (0.28,), 0.0), (), None)]
        >>> device = ContextColumn("device", "categorical", True, levels=("phone",))
        >>> typical_query([*columns, ColumnValues(device, 1, Choice("missing", (0.0, 0.0, 1.0), 1.0), (), None)])
        '28 % complex, without a known device'
    """
    words = []
    for column in columns[:most]:
        part, name = column.part, _short_name(column.part.name)
        if column.is_missing(column.typical):
            words.append(f"without a known {name}")
        elif part.kind == "boolean":
            having = _without(name, "has")
            phrase = f"with {having}" if having is not None else _without(name, "is") or name
            words.append(f"{100 * part.mean:.0f} % {phrase}")
        else:
            words.append(f"{name} {shorten(column.typical.label, LONGEST)}")
    return ", ".join(words) + (", …" if len(columns) > most else "")


def _short_name(name: str) -> str:
    return shorten(name.replace("_", " ").strip(), LONGEST)


def _without(name: str, prefix: str) -> str | None:
    """Return a name without its first word, if it is this one and something is left."""
    first, _, rest = name.partition(" ")
    return rest if first.lower() == prefix and rest else None
