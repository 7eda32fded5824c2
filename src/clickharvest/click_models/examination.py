"""Examination: a result is clicked if it is examined, which depends on position and context, and if it is relevant.

    Pr(click | unit u, position k, context x) = p_k(x) r_u

What is known are the propensities p_k(x) relative to an anchor: `PBM` where there is no context, `CPBM` where there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from clickharvest.click_models.base import ClickModel
from clickharvest.errors import InputError
from clickharvest.progress import Progress, silent

if TYPE_CHECKING:
    from clickharvest.estimation.estimators import CPBM, PBM
    from clickharvest.estimation.fitting import Intervals
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities
    from clickharvest.weights.summary import WeightReport
    from clickharvest.weights.weighing import Clip, Trust


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
        """Whether units without a click say something to the objective."""
        from clickharvest.estimation.objectives import OBJECTIVES

        return OBJECTIVES.find(self.objective).against_shown

    def estimator(self, with_context: bool) -> PBM | CPBM:
        """Return the estimator the options describe: a CPBM where there is context to depend on, or for a power law."""
        from clickharvest.estimation.estimators import CPBM, PBM

        begun = None if self.start is None else self.start.curve.name
        if not with_context and "power" not in (self.curve, begun):
            if self.start is not None and self.start.context:
                raise InputError(f"--start: the model depends on {', '.join(self.start.context)}, the data have none")
            if self.curve not in ("auto", "constant"):
                raise InputError(f"--curve {self.curve}: a curve that depends on context needs --context columns")
            if self.shape is not None:
                told = ",".join(f"{name}={value}" for name, value in self.shape.items())
                raise InputError(f"--shape {told}: the constant curve has no shape; name context and a curve")
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
        """Return the model with a curve that one query can tell: nothing is kept aside to choose one by."""
        if len(set(interventions.query.tolist())) > 1:
            return self
        return replace(self, curve="linear" if interventions.contexts else "constant")

    def fit(self, interventions: Interventions) -> Propensities:
        """Return the propensities."""
        with_context = bool(interventions.contexts) and self.curve != "constant"
        return self.estimator(with_context).fit(interventions).propensities_

    @classmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, Any]) -> Propensities:
        """Return the propensities of a file."""
        from clickharvest.model.loading import from_file

        return from_file(header, tensors)

    @classmethod
    def weigh(
        cls,
        log: ClickLog,
        fitted: Any,
        path: Path,
        *,
        clip: Clip,
        normalise: bool,
        policy_aware: bool,
        trust: Trust = "checked",
        **outcome: Any,
    ) -> WeightReport:
        """Write a log with propensities and inverse-propensity weights, see `weights.weigh_to_parquet`."""
        from clickharvest.weights.weighing import weigh_to_parquet

        return weigh_to_parquet(
            log, fitted, path, clip=clip, normalise=normalise, policy_aware=policy_aware, trust=trust, **outcome
        )
