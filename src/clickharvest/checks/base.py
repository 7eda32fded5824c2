"""What a check is, and what it finds.

A check asks one question of a log and a fitted curve. Where it can, it answers with an **effect**: how far the truth
lies beside the estimate, log p_k − log p̂_k relative to the anchor, and the standard error of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from clickharvest.checks.evidence import Evidence
from clickharvest.diagnosis.findings import Finding as Test

Array = NDArray[np.float64]
Severity = Literal["ok", "untested", "note", "warning", "decisive"]
"""`decisive` makes every number of the log meaningless."""

OF_DESIGN = ("design", "swap ranks")
"""Tests of a design: where it does not hold, exposures are wrong by any factor."""
NUMBERS = ("effect", "standard_error")
NORMAL = 1.96
"""Standard errors to either side of an estimate in a 95 % interval."""
MATTERS = 0.05
"""An effect on log p that is surely larger is worth a sentence of its own."""


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

    @property
    def bounds(self) -> tuple[Array, Array]:
        """How far below and above the estimate the truth may lie because of this, in log p, [contexts or 1, K]."""
        if self.effect is None or self.standard_error is None:
            return np.zeros((1, 1)), np.zeros((1, 1))
        reach = NORMAL * self.standard_error
        if self.either_side:
            return (reach + np.abs(self.effect),) * 2
        return np.maximum(0, reach - self.effect), np.maximum(0, reach + self.effect)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, strings and lists."""
        told = {
            "kind": self.kind,
            "severity": self.severity,
            "sentence": self.sentence,
            "advice": self.advice,
            "needs": self.needs,
        }
        plain: dict[str, Any] = {name: value for name, value in told.items() if value}
        if self.either_side:
            plain["either_side"] = True
        for name in NUMBERS:
            if (values := getattr(self, name)) is not None:
                plain[name] = np.round(values, 4).tolist()
        return plain | ({} if self.p is None else {"p": float(f"{self.p:.4g}")})

    @classmethod
    def from_dict(cls, told: Any) -> Finding | None:
        """Return the finding that `to_dict` has told; None where it does not look like one."""
        try:
            numbers = {name: np.array(told[name], dtype=np.float64) for name in NUMBERS if name in told}
            texts: dict[str, Any] = {name: str(told.get(name, "")) for name in ("sentence", "advice", "needs")}
            severity: Any = told["severity"] if told["severity"] in get_args(Severity) else "note"
            texts["either_side"] = bool(told.get("either_side"))
            known: dict[str, Any] = {**texts, **numbers, "p": None if told.get("p") is None else float(told["p"])}
            return cls(str(told["kind"]), severity, **known)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    @classmethod
    def of_test(cls, test: Test) -> Finding:
        """Return the outcome of a test of the log or its design, which has no size on the curve."""
        severity: Severity = "decisive" if test.status == "blocking" else test.status
        if test.name in OF_DESIGN and severity == "warning":
            severity = "decisive"
        return cls(test.name, severity, test.sentence, p=test.p_value)


class Check(ABC):
    """One question. A check is one class in a file of its own; defining it enters it into `CHECKS`.

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

    def unanswered(self, why: str) -> Finding:
        """Return that the log has the columns but too little in them."""
        return Finding(self.kind, "untested", f"Not tested, {why}: {self.assumption}.", needs="more clicks")

    def found(
        self, effect: Array, standard_error: Array, no: str, yes: str, advice: str, *, either_side: bool = False
    ) -> Finding:
        """Return a finding of an effect, [K] or [contexts, K]; `yes` has {size}, its largest.

        Args:
            effect: log p_k less log p̂_k.
            standard_error: of that.
            no: the sentence where it may be 0 or does not matter.
            yes: the sentence where it matters.
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
        told = yes.format(size=spell_change(float(effect[at])))
        return Finding(self.kind, "warning", told, advice, effect, standard_error, p, "", either_side)


def spell_change(log_ratio: float) -> str:
    """Return how large a change of log p is, as people write it.

    Example:
        >>> spell_change(0.17), spell_change(-1.4)
        ('19 %', 'a factor of 4.1')
    """
    change = np.exp(abs(log_ratio))
    return f"{100 * (change - 1):.0f} %" if change < 2 else f"a factor of {change:.1f}"


CHECKS: dict[str, Check] = {}
"""Every check by its name, in the order in which they are run."""
