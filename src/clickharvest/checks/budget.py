"""The budget: how far off can the curve be, by position and by cause?

With e the effect of a source on log p and σ its standard error, the truth may lie above the estimate by as much as

    U = √ Σ max(0, e + 1.96 σ)²,

in the kind of context where that is largest; below it likewise, with −e. What no column of the log can test is an
assumption: it is listed, and not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.parameters import TOLERANCE
from clickharvest.positions.places import name_places
from clickharvest.words import spell_times

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.harvesting.interventions import Interventions

Array = NDArray[np.float64]
Word = Literal["usable", "with care", "cannot tell"]

HOPELESS = 1.0
"""Beyond a factor of two the word is `cannot tell`."""
UNBOUNDED = float(np.log(1e6))
"""An error of log p that is as good as infinite."""
NOISE = "noise"
MOST_CONTEXTS = 500
"""Contexts of evenly spaced rows whose intervals are looked at where there are many."""
WIDE = 0.9
"""Where contexts are many, the share of them whose intervals are no wider than the one that counts."""


@dataclass(frozen=True)
class Budget:
    """How far off a curve can be.

    Attributes:
        positions: the positions that are asked for.
        up: by what fraction of the estimate the truth may lie above it, [positions].
        down: by what fraction below it.
        terms: of each source the larger of both, [positions] each, the largest source first.
        straight: by what fraction if all sources point the same way.
        untested: what is assumed, and the column that would test it.
        tolerance: how far off a usable curve may be.
        reason: why the word is `cannot tell`, whatever the numbers; empty where they count.
        folds: positions at which the page changes, as the user has said.
        noun: what a position is called.
        times: how many times this log brings noise within the tolerance, as `clickharvest plan` says; at most 1 where
            it is, infinite where more of the same queries never will.
    """

    positions: tuple[int, ...]
    up: tuple[float, ...]
    down: tuple[float, ...]
    terms: Mapping[str, tuple[float, ...]]
    straight: tuple[float, ...]
    untested: Mapping[str, str]
    tolerance: float = TOLERANCE
    reason: str = ""
    folds: tuple[int, ...] = ()
    noun: str = "position"
    times: float = 1.0

    @property
    def off(self) -> float:
        """How far off the curve can be at the worst position, as a fraction."""
        above = max(self.up, default=np.inf)
        below = max(self.down, default=1.0)
        return float(max(above, 1 / (1 - below) - 1 if below < 1 else np.inf))

    @property
    def word(self) -> Word:
        """Whether the curve can be used."""
        if self.reason or not self.positions or not self.off <= HOPELESS:
            return "cannot tell"
        return "usable" if self.off <= self.tolerance else "with care"

    def __str__(self) -> str:
        """Return the budget in one line.

        Example:
            >>> print(Budget((2,), (.1,), (.08,), {"noise": (.09,)}, (.1,), {}))
            usable: at most 10 % off at any position
        """
        if self.word == "cannot tell":
            return f"cannot tell: {self.reason or self._how_far()}"
        return f"{self.word}: {self._how_far()}"

    def _how_far(self) -> str:
        if not self.positions:
            return f"no {self.noun} can be compared with the anchor"
        if self.off > HOPELESS:
            factor = 1 + self.off
            return (
                f"it may be off by a factor of {factor:.1f}, mostly {self.largest}"
                if np.isfinite(factor)
                else (f"nothing bounds how far it is off, mostly {self.largest}")
            )
        return f"at most {percent(self.off)} off at any {self.noun}"

    @property
    def largest(self) -> str:
        """The source that contributes most."""
        return next(iter(self.terms), NOISE)

    def lines(self) -> list[str]:
        """Return the budget, its terms and what is assumed, in two or three lines."""
        told = [f"{name} {percent(size)}" for name, size in self.sizes().items() if 0.005 <= size < np.inf]
        lines = [str(self), ", ".join(told) if told else "no source of error has any size"]
        if np.isfinite(self.times) and self.times > 1:
            lines.append(f"{spell_times(self.times)} times this log would bring noise within {percent(self.tolerance)}")
        elif self.times > 1:
            lines.append(f"noise within {percent(self.tolerance)} takes other queries, not more clicks of these")
        if self.untested:
            lines.append("not tested: " + ", ".join(f"{name} ({needs})" for name, needs in self.untested.items()))
        else:
            lines.append("nothing left untested")
        return lines

    def sizes(self) -> dict[str, float]:
        """Return how far off each source can make the worst position."""
        return {name: max(sizes, default=0.0) for name, sizes in self.terms.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists."""

        def plain(values: Sequence[float]) -> list[float | None]:
            return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]

        return {
            "word": self.word,
            "off": plain([self.off])[0],
            "tolerance": self.tolerance,
            "times": plain([self.times])[0],
            "positions": list(self.positions),
            "up": plain(self.up),
            "down": plain(self.down),
            "terms": {name: plain(sizes) for name, sizes in self.terms.items()},
            "same_direction": plain(self.straight),
            "untested": dict(self.untested),
            "reason": self.reason,
            "folds": list(self.folds),
            "noun": self.noun,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Budget:
        """Return the budget that `to_dict` has written."""

        asked = len(plain["positions"])

        def whole(values: Sequence[float | None]) -> tuple[float, ...]:
            if len(values) != asked:
                raise ValueError(f"{len(values)} numbers of {asked} positions")
            return tuple(np.inf if value is None else float(value) for value in values)

        return cls(
            positions=tuple(int(k) for k in plain["positions"]),
            up=whole(plain["up"]),
            down=whole(plain["down"]),
            terms={str(name): whole(sizes) for name, sizes in plain["terms"].items()},
            straight=whole(plain["same_direction"]),
            untested={str(name): str(needs) for name, needs in plain["untested"].items()},
            tolerance=float(plain["tolerance"]),
            reason=str(plain["reason"]),
            folds=tuple(int(k) for k in plain["folds"]),
            noun=str(plain["noun"]),
            times=np.inf if plain["times"] is None else float(plain["times"]),
        )

    def to_arrow(self) -> pa.Table:
        """Return a table with a row of each position: `position`, `up`, `down` and a column of each source."""
        import pyarrow as pa

        columns = {"position": self.positions, "up": self.up, "down": self.down, **self.terms}
        return pa.table({name: list(values) for name, values in columns.items()})

    def to_frame(self) -> Any:
        """Return `to_arrow` as a DataFrame of pandas."""
        return self.to_arrow().to_pandas()


def percent(size: float) -> str:
    """Return a fraction as people write it.

    Example:
        >>> percent(0.184), percent(0.004), percent(7.5), percent(1e6)
        ('18 %', '0.4 %', '750 %', 'over 1,000 %')
    """
    if size > 10:
        return "over 1,000 %"
    return f"{100 * size:.0f} %" if size >= 0.01 else f"{100 * size:.1f} %"


def make_budget(
    evidence: Evidence,
    findings: Sequence[Finding],
    *,
    positions: Collection[int] = (),
    tolerance: float = TOLERANCE,
    interventions: Interventions | None = None,
) -> Budget:
    """Return the budget of a fit.

    Args:
        evidence: what was looked at.
        findings: what checks have found.
        positions: positions that are asked for; all that have an estimate without.
        tolerance: how far off a usable curve may be, as a fraction.
        interventions: what the model was fitted on, from which it is planned how much more data is needed.
    """
    down, up = noise(evidence)
    below, above = {NOISE: down}, {NOISE: up}
    for finding in findings:
        if finding.effect is not None:
            below[finding.kind], above[finding.kind] = finding.bounds
    asked = evidence.positions != evidence.model.curve.anchor
    if positions:
        asked &= np.isin(evidence.positions, sorted(positions))
    sums = [np.sqrt(sum(bound**2 for bound in side.values())).max(axis=0) for side in (above, below)]
    straight = np.maximum(*(np.sum(np.broadcast_arrays(*side.values()), axis=0).max(axis=0) for side in (above, below)))
    terms = {name: np.maximum(above[name].max(axis=0), below[name].max(axis=0))[asked] for name in above}
    order = sorted(terms, key=lambda name: -float(terms[name].max(initial=0)))
    decisive = [finding.sentence for finding in findings if finding.severity == "decisive"]
    if missing := sorted(set(positions) - set(evidence.positions.tolist())):
        decisive.append(f"there is no estimate at {name_places(missing, evidence.model.places)}")
    if evidence.model.draws is None:
        decisive.append("the fit has no intervals, so the size of the noise is unknown")
    times = float((terms[NOISE].max(initial=0) / np.log1p(tolerance)) ** 2)
    if times > 1 and interventions is not None:
        from clickharvest.planning.needs import times_needed

        anchor = int(evidence.model.curve.anchor)
        planned = times_needed(interventions, tolerance, evidence.positions[asked].tolist(), anchor=anchor)
        times = times if planned is None else planned
    return Budget(
        positions=tuple(int(k) for k in evidence.positions[asked]),
        up=_fractions(sums[0][asked]),
        down=tuple(-np.expm1(-sums[1])[asked]),
        terms={name: _fractions(terms[name]) for name in order},
        straight=_fractions(straight[asked]),
        untested={finding.kind: finding.needs for finding in findings if finding.needs},
        tolerance=tolerance,
        reason=decisive[0] if decisive else "",
        folds=evidence.folds,
        noun="position" if evidence.model.places is None else "place",
        times=times,
    )


def _fractions(logs: Array) -> tuple[float, ...]:
    """Return changes of log p as fractions of p, infinite ones beyond `UNBOUNDED`."""
    return tuple(np.where(logs < UNBOUNDED, np.expm1(np.minimum(logs, UNBOUNDED)), np.inf).tolist())


def noise(evidence: Evidence) -> tuple[Array, Array]:
    """Return how far below and above the estimate its interval reaches, in log p, [contexts or 1, K]."""
    first = np.unique(evidence.kind, return_index=True)[1]
    several = evidence.model.context and len(first) == 1
    if several:
        order = np.argsort(evidence.context, kind="stable")
        first = order[np.unique(np.linspace(0, len(order) - 1, MOST_CONTEXTS).astype(np.int64))]
    table = {name: evidence.displays.contexts[name][first] for name in evidence.model.context} or None
    found = evidence.model.predict(table)
    with np.errstate(divide="ignore", invalid="ignore"):
        down = np.log(found.propensity) - np.log(found.lower)
        up = np.log(found.upper) - np.log(found.propensity)
    estimated = np.isin(found.positions, evidence.positions)
    down, up = (np.where(np.isfinite(side) & found.supported, side, np.inf)[:, estimated] for side in (down, up))
    if several:
        down, up = (np.quantile(side, WIDE, axis=0, method="lower")[None] for side in (down, up))
    return down, up
