"""What a check is.

A check asks one question of a log and a fitted curve. Where it can, it answers with an **effect**: how far the truth
lies beside the estimate, log p_k − log p̂_k relative to the anchor, and the standard error of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from clickharvest.checks.finding import NORMAL, Finding

if TYPE_CHECKING:
    from clickharvest.checks.evidence import Evidence

Array = NDArray[np.float64]
MATTERS = 0.05
"""An effect on log p that is surely larger is worth a sentence of its own."""


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


CHECKS: dict[str, Check] = {}
"""Every check by its name, in the order in which they are run."""
