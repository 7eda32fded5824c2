"""Findings: what a check says, in a number, a p-value and a plain sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "note", "warning", "blocking"]

ALARM = 0.001
"""p-values below this are called out: with several tests on large logs, .05 would cry wolf."""

WEAK = 0.05
"""p-values between `ALARM` and this are a weak sign: a note, neither an alarm nor nothing."""

MATTERS = 0.1
"""A power of the position that is wrong by so much is wrong enough: a fifth at position 8."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        name: what was checked.
        status: `ok`, `note` (good to know), `warning` (estimates may be off) or `blocking` (there are none).
        sentence: the outcome in words.
        value: the number behind it, if any.
        p_value: how likely at least such a number is when all is well, if that can be said.
    """

    name: str
    status: Status
    sentence: str
    value: float | None = None
    p_value: float | None = None


def sign_of(p_value: float) -> Status:
    """Return the status of a test: `ok` without a sign, `note` for a weak one, `warning` for a clear one.

    Example:
        >>> sign_of(0.4), sign_of(0.002), sign_of(1e-9)
        ('ok', 'note', 'warning')
    """
    return "warning" if p_value < ALARM else "note" if p_value < WEAK else "ok"


def spell_sign(p_value: float) -> str:
    """Return the beginning of a sentence on a test that raises no alarm.

    Example:
        >>> spell_sign(0.4), spell_sign(0.002)
        ('No sign', 'Weak sign')
    """
    return "Weak sign" if p_value < WEAK else "No sign"


def percent(share: float) -> str:
    """Return a share as people write it.

    Example:
        >>> percent(0.0307)
        '3.1 %'
    """
    return f"{100 * share:.1f} %"


def spell_p(p_value: float) -> str:
    """Return a p-value as people write it.

    Example:
        >>> spell_p(0.0307), spell_p(2e-9)
        ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
