"""Examination: a result is clicked if it is examined, which depends on position and context, and if it is relevant.

    Pr(click | unit u, position k, context x) = p_k(x) r_u

The fit estimates the propensities p_k(x) relative to an anchor: `PBM` without context, `CPBM` with context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from clickharvest.click_models.base import ClickModel, Header, Tensors
from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent

if TYPE_CHECKING:
    from clickharvest.estimation.estimators import CPBM, PBM
    from clickharvest.estimation.fitting import Intervals
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.model.propensities import Propensities


@dataclass(frozen=True)
class Examination(ClickModel):
    """The position-based model, contextual where there is context; fields are those of `PBM` and `CPBM`."""

    name: ClassVar[str] = "examination"
    about: ClassVar[str] = "a result is clicked if it is examined and relevant"
    weighs_outcomes: ClassVar[bool] = True

    objective: str = "clickshare"
    curve: str = "auto"
    shape: Mapping[str, int] | None = None
    penalty: float | None = None
    relevance: str | None = None
    weighting: str = "paper"
    intervals: Intervals | None = "auto"
    replicates: int = 1_000
    start: Propensities | None = None
    anchor: int = 1
    seed: int = 0
    progress: Progress = silent

    @property
    def needs_unclicked(self) -> bool:
        """Whether the objective uses units without a click."""
        from clickharvest.estimation.objectives import OBJECTIVES

        return OBJECTIVES.find(self.objective).against_shown

    def estimator(self, with_context: bool) -> PBM | CPBM:
        """Return the estimator the options describe: a CPBM where there is context to depend on, or for a power law."""
        from clickharvest.estimation.estimators import CPBM, PBM

        start_curve = None if self.start is None else self.start.curve.name
        if not with_context and "power" not in (self.curve, start_curve):
            if self.start is not None and self.start.context:
                raise InputError(f"--start: the model depends on {', '.join(self.start.context)}, the data have none")
            if self.curve not in ("auto", "constant"):
                raise InputError(f"--curve {self.curve}: a curve that depends on context needs --context columns")
            if self.shape is not None:
                shape = ",".join(f"{name}={value}" for name, value in self.shape.items())
                raise InputError(f"--shape {shape}: the constant curve has no shape; name context and a curve")
            return PBM(
                objective=self.objective, anchor=self.anchor, weighting=self.weighting, intervals=self.intervals,
                replicates=self.replicates, seed=self.seed, progress=self.progress,
            )  # fmt: skip
        return CPBM(
            curve=self.curve, shape=self.shape, objective=self.objective, anchor=self.anchor,
            penalty="auto" if self.penalty is None else self.penalty, relevance=self.relevance,
            weighting=self.weighting, intervals=self.intervals, replicates=self.replicates, start=self.start,
            seed=self.seed, progress=self.progress,
        )  # fmt: skip

    def within(self, interventions: Interventions) -> Examination:
        """Return the model with a curve that needs no choice where there is one query: none can be held out for it."""
        if len(set(interventions.query.tolist())) > 1:
            return self
        return replace(self, curve="linear" if interventions.contexts else "constant")

    def fit(self, interventions: Interventions) -> Propensities:
        """Return the propensities."""
        with_context = bool(interventions.contexts) and self.curve != "constant"
        return self.estimator(with_context).fit(interventions).propensities_

    @classmethod
    def load(cls, header: Header, tensors: Tensors) -> Propensities:
        """Return the propensities of a file."""
        from clickharvest.model.loading import from_file

        return from_file(header, tensors)
