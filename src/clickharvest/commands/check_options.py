"""The options of commands that check a fit: what is asked for, and how much of it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from clickharvest.commands.options import option
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Finding
    from clickharvest.harvesting.interventions import Interventions, UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

CHECKS = "Checks"
MOST_LISTED = 10_000
"""Positions that a list may name."""


_check = partial(option, panel=CHECKS)


@dataclass(frozen=True)
class CheckOptions:
    """What is asked of a fit, and how much is told."""

    tolerance: str | None = _check("How far off a usable curve may be (default: 30%).", "SHARE")
    positions: str | None = _check("What the answer is about, as 1-10 or 1,3 (default: all).", "LIST")
    fold: str | None = _check(
        "Positions at which the page changes, such as 6, the first below the fold of the screen.", "LIST", rare=True
    )
    verbose: bool = _check("Print every check, and how the curve was chosen.", default=False)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `check_fit`.

        Raises:
            InputError: an option cannot be read.
        """
        from clickharvest.checks import TOLERANCE

        tolerance = TOLERANCE if self.tolerance is None else parse_share("--tolerance", self.tolerance)
        return {
            "tolerance": tolerance,
            "positions": () if self.positions is None else parse_positions("--positions", self.positions),
            "folds": () if self.fold is None else parse_positions("--fold", self.fold),
        }

    def check(
        self,
        source: ClickLog | Interventions,
        model: Propensities,
        *,
        unit: UnitKind = "context",
        further: Sequence[Finding] = (),
        seed: int = 0,
        interventions: Interventions | None = None,
    ) -> Checked:
        """Return what checking a fit finds, see `check_fit`."""
        from clickharvest.checks import check_fit

        with show_progress("Checking"):
            asked: Any = {**self.arguments(), "interventions": interventions}
            return check_fit(source, model, unit=unit, **asked, further=further, seed=seed)


def parse_share(option: str, text: str) -> float:
    """Return a share as a number, from a fraction or a percentage.

    Example:
        >>> parse_share("--tolerance", "30%"), parse_share("--tolerance", "0.25")
        (0.3, 0.25)
    """
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise InputError(f"{option} {text}: expected a share such as 30% or 0.3, above 0 and at most 1")
    return share


def parse_positions(option: str, text: str) -> tuple[int, ...]:
    """Return the positions of a list of numbers and ranges.

    Example:
        >>> parse_positions("--positions", "1-3,7")
        (1, 2, 3, 7)
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        ends = (first, last or first)
        if not all(end.strip().isascii() and end.strip().isdigit() and len(end) < 10 for end in ends):
            raise InputError(f"{option} {text}: expected positions such as 1-10 or 1,3,5")
        low, high = map(int, ends)
        if not 1 <= low <= high < low + MOST_LISTED:
            raise InputError(f"{option} {text}: expected positions from 1 on, the smaller first, such as 1-10")
        found.update(range(low, high + 1))
    return tuple(sorted(found))
