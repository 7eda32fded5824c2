"""Checks and their findings.

A check asks one question of a log and a fitted curve. Where it can, it answers with an **effect**: how far the truth
lies from the estimate, log p_k − log p̂_k relative to the anchor, and the standard error of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

if TYPE_CHECKING:
    from clickharvest.checks.evidence import Evidence

Array = NDArray[np.float64]
Severity = Literal["ok", "untested", "note", "warning", "decisive"]
"""`decisive` makes every number of the log meaningless."""

TEXTS, NUMBERS = ("sentence", "advice", "needs", "details"), ("effect", "standard_error")
NORMAL = 1.96
"""Standard errors to either side of an estimate in a 95 % interval."""
ALARM, WEAK = 0.001, 0.05
"""p-values below which a test of the log warns, and is a note; more warnings of sound logs if they are larger."""
MATTERS = 0.05
"""An effect on log p that is surely larger is a warning; larger, and fewer checks warn."""
CHECKS: dict[str, Check] = {}
"""Every check by its name, in the order in which they run."""


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
        p: probability of such an effect, or a larger one, by chance.
        needs: the column that would answer the question, where the log lacks it.
        either_side: whether the effect has the other sign for other results, so that it counts on both sides.
        value: the number behind a sentence that is not an effect, such as a share.
        details: statistics for those who ask for more, such as a p-value and what it takes for independent.
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
    details: str = ""

    @property
    def bounds(self) -> tuple[Array, Array]:
        """How far below and above the estimate the truth may lie because of this, in log p, [contexts or 1, K]."""
        if self.effect is None or self.standard_error is None:
            return np.zeros((1, 1)), np.zeros((1, 1))
        margin = NORMAL * self.standard_error
        if self.either_side:
            return (margin + np.abs(self.effect),) * 2
        return np.maximum(0, margin - self.effect), np.maximum(0, margin + self.effect)

    @property
    def counsel(self) -> str:
        """The advice as a sentence of its own; empty without."""
        return f"{self.advice[:1].upper()}{self.advice[1:].removesuffix('.')}." if self.advice else ""

    @property
    def text(self) -> str:
        """The sentence, the advice and the details."""
        return " ".join(
            part for part in (self.sentence, self.counsel, f"({self.details})" * bool(self.details)) if part
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists."""
        texts = {name: getattr(self, name) for name in ("kind", "severity", *TEXTS)}
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
            known: dict[str, Any] = {name: str(plain.get(name, "")) for name in TEXTS}
            known |= {name: np.array(plain[name], dtype=np.float64) for name in NUMBERS if name in plain}
            known |= {name: float(plain[name]) for name in ("p", "value") if plain.get(name) is not None}
            severity: Any = plain["severity"] if plain["severity"] in get_args(Severity) else "note"
            return cls(str(plain["kind"]), severity, either_side=bool(plain.get("either_side")), **known)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


class Check(ABC):
    """One question about a log and a fit. Defining a subclass enters it into `CHECKS`.

    Attributes:
        kind: its name, in one or two words.
        question: what it asks.
        assumption: what holds if the answer is no, for logs that cannot answer.
    """

    kind: ClassVar[str]
    question: ClassVar[str]
    assumption: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        CHECKS[cls.kind] = cls()

    @abstractmethod
    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""

    def untested(self, needs: str) -> Finding:
        """Return that the log cannot answer, and the column that would."""
        return Finding(self.kind, "untested", f"Not tested, no {needs} column: {self.assumption}.", needs=needs)

    def unanswered(self, why: str, needs: str = "more clicks") -> Finding:
        """Return that the log has the columns but too little in them."""
        return Finding(self.kind, "untested", f"Not tested, {why}: {self.assumption}.", needs=needs)

    def passed(self, sentence: str, positions: int | None = None) -> Finding:
        """Return that all is well; with a number of positions, that the effect is 0 at each of them."""
        none = None if positions is None else np.zeros((1, positions))
        return Finding(self.kind, "ok", sentence, "", none, none)

    def found(
        self, effect: Array, standard_error: Array, no: str, yes: str, advice: str, *, either_side: bool = False
    ) -> Finding:
        """Return a finding of an effect, [K] or [contexts, K].

        Args:
            effect: log p_k less log p̂_k.
            standard_error: of that.
            no: the sentence where it may be 0 or does not matter.
            yes: the sentence where it matters, with {size} for the largest effect.
            advice: what to do where it matters.
            either_side: whether it counts on both sides.
        """
        effect, standard_error = np.atleast_2d(effect), np.atleast_2d(standard_error)
        sure = np.abs(effect) - NORMAL * standard_error
        at = np.unravel_index(int(np.argmax(sure)), sure.shape)
        largest = np.unravel_index(int(np.argmax(np.abs(effect))), effect.shape)
        p = None
        if standard_error[largest] > 0:
            p = float(2 * ndtr(-abs(effect[largest]) / standard_error[largest]))
        if sure[at] <= MATTERS:
            return Finding(self.kind, "ok", no, "", effect, standard_error, p, "", either_side)
        sentence = yes.format(size=spell_change(float(effect[at])))
        return Finding(self.kind, "warning", sentence, advice, effect, standard_error, p, "", either_side)


def spell_change(log_ratio: float) -> str:
    """Return how large a change of log p is, as people write it.

    Example:
        >>> spell_change(0.17), spell_change(-1.4)
        ('19 %', 'a factor of 4.1')
    """
    change = np.exp(abs(log_ratio))
    return f"{100 * (change - 1):.0f} %" if change < 2 else f"a factor of {change:.1f}"


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
