"""The answer of a check: a sentence, and where it has a size, an effect on the curve with its standard error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Severity = Literal["ok", "untested", "note", "warning", "decisive"]
"""`decisive` makes every number of the log meaningless."""

NUMBERS = ("effect", "standard_error")
NORMAL = 1.96
"""Standard errors to either side of an estimate in a 95 % interval."""
ALARM, WEAK = 0.001, 0.05
"""p-values below which a test of the log warns, and is a note; more warnings of sound logs if they are larger."""


@dataclass(frozen=True, eq=False)
class Finding:
    """The answer to one question.

    Attributes:
        kind: name of the check.
        severity: how serious it is.
        sentence: what was found.
        advice: what to do about it; empty where nothing is to be done.
        effect: log p_k less log p̂_k, of every kind of context or of all alike, [contexts or 1, K]; None without size.
        standard_error: of the effect, of the same shape.
        p: how likely at least such an effect is where there is none.
        needs: the column that would answer the question, where the log lacks it.
        either_side: whether the effect has the other sign for other results, so that it counts on both sides.
        value: the number behind a sentence that is not an effect, such as a share.
    """

    kind: str
    severity: Severity
    sentence: str
    advice: str = ""
    effect: Array | None = None
    standard_error: Array | None = None
    p: float | None = None
    needs: str = ""
    either_side: bool = False
    value: float | None = None

    @property
    def bounds(self) -> tuple[Array, Array]:
        """How far below and above the estimate the truth may lie because of this, in log p, [contexts or 1, K]."""
        if self.effect is None or self.standard_error is None:
            return np.zeros((1, 1)), np.zeros((1, 1))
        reach = NORMAL * self.standard_error
        if self.either_side:
            return (reach + np.abs(self.effect),) * 2
        return np.maximum(0, reach - self.effect), np.maximum(0, reach + self.effect)

    @property
    def counsel(self) -> str:
        """The advice as a sentence of its own; empty without."""
        return f"{self.advice[:1].upper()}{self.advice[1:].removesuffix('.')}." if self.advice else ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists."""
        texts = {
            "kind": self.kind,
            "severity": self.severity,
            "sentence": self.sentence,
            "advice": self.advice,
            "needs": self.needs,
        }
        plain: dict[str, Any] = {name: text for name, text in texts.items() if text}
        if self.either_side:
            plain["either_side"] = True
        for name in NUMBERS:
            if (values := getattr(self, name)) is not None:
                plain[name] = np.round(values, 4).tolist()
        if self.value is not None:
            plain["value"] = float(f"{self.value:.12g}")
        return plain | ({} if self.p is None else {"p": float(f"{self.p:.4g}")})

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Finding | None:
        """Return the finding that `to_dict` has written; None where it does not look like one."""
        try:
            known: dict[str, Any] = {name: str(plain.get(name, "")) for name in ("sentence", "advice", "needs")}
            known |= {name: np.array(plain[name], dtype=np.float64) for name in NUMBERS if name in plain}
            known |= {name: float(plain[name]) for name in ("p", "value") if plain.get(name) is not None}
            severity: Any = plain["severity"] if plain["severity"] in get_args(Severity) else "note"
            return cls(str(plain["kind"]), severity, either_side=bool(plain.get("either_side")), **known)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def sign_of(p: float) -> Severity:
    """Return the severity of a test: `ok` without a sign, `note` for a weak one, `warning` for a clear one.

    Example:
        >>> sign_of(0.4), sign_of(0.002), sign_of(1e-9)
        ('ok', 'note', 'warning')
    """
    return "warning" if p < ALARM else "note" if p < WEAK else "ok"


def spell_sign(p: float) -> str:
    """Return the beginning of a sentence on a test that raises no alarm.

    Example:
        >>> spell_sign(0.4), spell_sign(0.002)
        ('No sign', 'Weak sign')
    """
    return "Weak sign" if p < WEAK else "No sign"


def spell_percent(share: float) -> str:
    """Return a share as people write it.

    Example:
        >>> spell_percent(0.0307)
        '3.1 %'
    """
    return f"{100 * share:.1f} %"


def spell_p(p: float) -> str:
    """Return a p-value as people write it.

    Example:
        >>> spell_p(0.0307), spell_p(2e-9)
        ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
