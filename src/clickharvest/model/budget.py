"""The error budget of a model, and the state of each number: usable, with care, or cannot tell.

`checks.make_budget` makes it. Let U be how far off the budget says a position can be in log p, in the kind of context
where that is largest, N the noise in it, o what all other sources can do together, and n the noise of a given context:
half the width of its 95 % interval of log p. Then log p may be off there by

    √(o² + n²), and by U at most where n ≤ N.

Up to the budget's tolerance the state is usable, up to a factor of two it is with care, and beyond it is cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.parameters import TOLERANCE
from clickharvest.words import spell_positions, spell_times

if TYPE_CHECKING:
    import pyarrow as pa

Array = NDArray[np.float64]
State = Literal["usable", "with care", "cannot tell"]
"""What is known of a number: that it is within the tolerance, within a factor of two, or neither."""
STATES: tuple[State, ...] = get_args(State)
USABLE, WITH_CARE, CANNOT_TELL = STATES

HOPELESS = 1.0
"""Relative error above which the state is `cannot tell`: a factor of two."""
NOISE = "noise"
BUDGET = "budget"
"""Where a model's `info` keeps it."""
ROUNDING = 1.001
"""Files keep four digits of a number."""


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
    def word(self) -> State:
        """Whether the curve can be used."""
        if self.reason or not self.positions or not self.off <= HOPELESS:
            return CANNOT_TELL
        return USABLE if self.off <= self.tolerance else WITH_CARE

    def __str__(self) -> str:
        """Return the budget in one line.

        Example:
            >>> print(Budget((2,), (.1,), (.08,), {"noise": (.09,)}, (.1,), {}))
            usable: at most 10 % off at any position
        """
        return f"{self.word}: {self.reason or self._how_far()}"

    def _how_far(self) -> str:
        if not self.positions:
            return f"no {self.noun} can be compared with the anchor"
        if not np.isfinite(self.off):
            ends = zip(self.positions, self.up, self.down, strict=False)
            unbounded = [k for k, up, down in ends if up == np.inf or down >= 1]
            where = f" at {self.noun} {spell_positions(unbounded)}" if len(unbounded) < len(self.positions) else ""
            return f"nothing bounds how far it is off{where}, mostly {self.largest}"
        if self.off > HOPELESS:
            return f"it may be off by a factor of {1 + self.off:.1f}, mostly {self.largest}"
        return f"at most {percent(self.off)} off at any {self.noun}"

    @property
    def largest(self) -> str:
        """The source that contributes most."""
        return next(iter(self.terms), NOISE)

    def most_noise(self, positions: Sequence[int], size: float) -> Array:
        """Return the most noise of log p with which positions are off by a fraction at most, [K].

        It is −1 where they are off by more even without noise. A position that the budget does not have counts as the
        nearest one that it has.
        """
        if self.reason:
            return np.full(len(positions), -1.0)
        if not self.positions:
            return np.full(len(positions), np.log1p(size))
        with np.errstate(divide="ignore"):
            whole = np.maximum(np.log1p(self.up), -np.log1p(-np.minimum(self.down, 1.0)))
        terms = {name: np.log1p(sizes) for name, sizes in self.terms.items()}
        noise = terms.pop(NOISE, np.zeros(len(whole)))
        rest = np.log1p(size) ** 2 - sum(term**2 for term in terms.values())
        most = np.where(rest >= 0, np.sqrt(np.maximum(rest, 0.0)), -1.0)
        most = np.where(whole <= np.log1p(size) * ROUNDING, np.maximum(most, noise * ROUNDING), most)
        nearest = np.abs(np.subtract.outer(positions, self.positions)).argmin(axis=1)
        return np.asarray(most[nearest])

    def lines(self) -> list[str]:
        """Return the budget, its terms and what is assumed, in two or three lines."""
        terms = [f"{name} {percent(size)}" for name, size in self.sizes().items() if 0.005 <= size < np.inf]
        lines = [str(self), ", ".join(terms) if terms else "no source of error has any size"]
        if np.isfinite(self.times) and self.times > 1:
            lines.append(f"{spell_times(self.times)} times this log would bring noise within {percent(self.tolerance)}")
        elif self.times > 1:
            lines.append(f"noise within {percent(self.tolerance)} takes other queries, not more clicks of these")
        untested = ", ".join(f"{name} ({needs})" for name, needs in self.untested.items())
        return [*lines, f"not tested: {untested}" if untested else "nothing left untested"]

    def sizes(self) -> dict[str, float]:
        """Return how far off each source can make the worst position."""
        return {name: max(sizes, default=0.0) for name, sizes in self.terms.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists; numbers have four digits."""

        def rounded(values: Sequence[float]) -> list[float | None]:
            return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]

        return {
            "word": self.word,
            "off": rounded([self.off])[0],
            "tolerance": self.tolerance,
            "times": rounded([self.times])[0],
            "positions": list(self.positions),
            "up": rounded(self.up),
            "down": rounded(self.down),
            "terms": {name: rounded(sizes) for name, sizes in self.terms.items()},
            "same_direction": rounded(self.straight),
            "untested": dict(self.untested),
            "reason": self.reason,
            "folds": list(self.folds),
            "noun": self.noun,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Budget:
        """Return the budget that `to_dict` has written."""
        positions = tuple(int(k) for k in saved["positions"])

        def numbers(values: Sequence[float | None]) -> tuple[float, ...]:
            if len(values) != len(positions):
                raise ValueError(f"{len(values)} numbers of {len(positions)} positions")
            return tuple(np.inf if value is None else float(value) for value in values)

        return cls(
            positions=positions,
            up=numbers(saved["up"]),
            down=numbers(saved["down"]),
            terms={str(name): numbers(sizes) for name, sizes in saved["terms"].items()},
            straight=numbers(saved["same_direction"]),
            untested={str(name): str(needs) for name, needs in saved["untested"].items()},
            tolerance=float(saved["tolerance"]),
            reason=str(saved["reason"]),
            folds=tuple(int(k) for k in saved["folds"]),
            noun=str(saved["noun"]),
            times=np.inf if saved["times"] is None else float(saved["times"]),
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


def budget_of(model: Any) -> Budget | None:
    """Return the budget that a model's file keeps; None where it was fitted without checks, or is damaged."""
    saved = model.info.get(BUDGET)
    try:
        return Budget.from_dict(saved) if isinstance(saved, Mapping) else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def most_noise(budget: Budget | None, positions: Sequence[int], anchor: int) -> Array:
    """Return the largest half widths of intervals of log p with which numbers are usable, and with care, [2, K].

    Without a budget nothing but the interval is known. The anchor is usable: it is 1.

    Example:
        At position 2 other sources than noise can make 20 %, so that less noise is left.

        >>> budget = Budget((2, 3), (0.3, 0.4), (0.2, 0.2), {"time": (0.2, 0.1), "noise": (0.1, 0.3)}, (0.3, 0.4), {})
        >>> np.expm1(most_noise(budget, (1, 2, 3), anchor=1)).round(2)
        array([[ inf, 0.21, 0.28],
               [ inf, 0.95, 0.99]])
    """
    known = budget or Budget((), (), (), {}, (), {})
    most = np.stack([known.most_noise(positions, size) for size in (known.tolerance, HOPELESS)])
    most[:, np.equal(positions, anchor)] = np.inf
    return most


def why_cannot_tell(budget: Budget | None) -> str:
    """Return why the state of a supported number is `cannot tell`."""
    return budget.reason if budget is not None and budget.reason else "may be off by more than a factor of two"
