"""FitInfo: what a fit tells of itself beside its numbers, by name and type.

A model keeps it as `info`, a mapping that may hold more. Whoever writes a model file can write anything there, so each
entry is checked before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from clickharvest.errors import InputError
from clickharvest.words import clean_text, cluster_nouns

Size = float
Numbers = Mapping[str, float | None]
Positions = list[int]
PositionsByFeature = Mapping[str, list[int]]
Candidates = list[Mapping[str, Any]]
Findings = list[Mapping[str, Any]]


@dataclass(frozen=True)
class FitInfo:
    """The entries of `info` that readers of a model ask for; None where a model does not have one.

    Example:
        >>> FitInfo.of({"clicks": 3, "queries": "many", "note": ["of any", "shape"]}).clicks
        3
        >>> FitInfo.check({"clicks": "many"})
        Traceback (most recent call last):
        clickharvest.errors.InputError: its info has clicks 'many'; expected a whole number
    """

    estimator: str | None = None
    objective: str | None = None
    relevance: str | None = None
    weighting: str | None = None
    status: str | None = None
    data: str | None = None
    outcome: str | None = None
    users: str | None = None
    clustered_by: str | None = None
    units: int | None = None
    clicks: int | None = None
    queries: int | None = None
    clusters: int | None = None
    thinned_from: int | None = None
    chosen_on: int | None = None
    max_clicks: int | None = None
    penalty: float | None = None
    log_likelihood: float | None = None
    seed: float | None = None
    effective_queries: Size | None = None
    anchor_rate: Size | None = None
    by_folds: bool | None = None
    pooled: Numbers | None = None
    shrunk: list[float | None] | None = None
    odd: Positions | None = None
    odd_in: PositionsByFeature | None = None
    selection: Candidates | None = None
    findings: Findings | None = None
    budget: Mapping[str, Any] | None = None
    clustered: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        """Return the entries that are of the expected type."""
        known = {entry.name: info[entry.name] for entry in fields(cls) if entry.name in info}
        return cls(**{name: value for name, value in known.items() if not _unexpected(name, value)})

    @classmethod
    def check(cls, info: Mapping[str, Any]) -> None:
        """Raise an InputError where an entry is of another type than expected; None counts as no entry."""
        for entry in fields(cls):
            if expected := _unexpected(entry.name, info.get(entry.name)):
                raise InputError(f"its info has {entry.name} {clean_text(repr(info[entry.name]))}; expected {expected}")

    @property
    def cluster_column(self) -> str | None:
        """What clusters the clicks, where that is not queries."""
        return None if self.clustered_by == "query" else self.clustered_by

    def best_candidates(self) -> dict[str, Mapping[str, Any]]:
        """Return the best penalty of each curve that was tried, the chosen one first among equals, by curve.

        Example:
            >>> tried = [{"curve": {"name": "mlp", "width": 2}, "score": score} for score in (-2.0, None, -1.5)]
            >>> FitInfo.of({"selection": tried}).best_candidates()["mlp 2"]["score"]
            -1.5
        """
        best: dict[str, Mapping[str, Any]] = {}
        for candidate in self.selection or ():
            curve = candidate["curve"]
            name = curve if isinstance(curve, str) else " ".join(map(str, curve.values()))
            if name not in best or _rank(candidate) > _rank(best[name]):
                best[name] = candidate
        return best

    @property
    def cluster_nouns(self) -> tuple[str, str]:
        """What to call one of what clusters the clicks, and several."""
        return cluster_nouns(self.cluster_column or "query")


def _rank(candidate: Mapping[str, Any]) -> tuple[bool, float]:
    score = candidate.get("score")
    return bool(candidate.get("chosen")), -math.inf if score is None else score


def _unexpected(name: str, value: Any) -> str:
    """Return what was expected of an entry; empty where it is that, or None."""
    fits, expected = EXPECTED[TYPES[name]]
    return "" if value is None or fits(value) else expected


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) < math.inf and abs(value) < 1e300)


def _is_list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(of, value))


def _is_by_name(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(of, value.values()))


def _is_candidate(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    curve = value.get("curve")
    named = _is_text(curve) or _is_by_name(lambda part: isinstance(part, str | int))(curve)
    return named and all(_is_number(value.get(key)) for key in ("penalty", "score", "se"))


def _is_finding(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_text(value.get(key)) for key in ("kind", "severity", "sentence"))


TYPES = {entry.name: str(entry.type).removesuffix(" | None") for entry in fields(FitInfo)}
EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (_is_text, "a text"),
    "int": (_is_count, "a whole number"),
    "float": (_is_number, "a number"),
    "Size": (lambda value: type(value) in (int, float) and 0 <= value < 2**63, "a number from 0"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "Numbers": (_is_by_name(_is_number), "numbers by name"),
    "list[float | None]": (_is_list(_is_number), "a list of numbers"),
    "Positions": (_is_list(_is_count), "a list of positions"),
    "PositionsByFeature": (_is_by_name(_is_list(_is_count)), "lists of positions by the name of a feature"),
    "Candidates": (_is_list(_is_candidate), "a list of curves with their scores"),
    "Findings": (_is_list(_is_finding), "a list of findings"),
    "Mapping[str, Any]": (lambda value: isinstance(value, Mapping), "values by name"),
}
"""What an entry of a type must be, and how a message says that."""
