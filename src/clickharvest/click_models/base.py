"""What a click model says of itself, so that it can be fitted, saved, loaded, shown and used for weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.registry import CLICK_MODELS
from clickharvest.model.provenance import Provenance
from clickharvest.progress import Progress, silent

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Finding
    from clickharvest.harvesting.interventions import Interventions, UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.weights.weighing import Clip, Trust


class FittedModel(Protocol):
    """What a fit gives: a frozen dataclass, so that `dataclasses.replace` changes it, which prints as its summary.

    One that is not `Propensities` has an `average`, its curve by position.
    """

    @property
    def kind(self) -> str:
        """The name of its click model in `CLICK_MODELS`."""
        ...

    @property
    def context(self) -> tuple[str, ...]:
        """The context columns that it depends on."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """Whatever a reader may ask for, as JSON holds it."""
        ...

    @property
    def provenance(self) -> Provenance | None:
        """Where it comes from."""
        ...

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all, that `load_model` reads."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return all that the summary tells, as JSON holds it."""
        ...

    def sentences(self) -> list[str]:
        """Return what was found besides the curve, in words."""
        ...


class WeighReport(Protocol):
    """What weighing a log says it did; it prints as sentences."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        ...


@dataclass(frozen=True)
class ClickModel(ABC):
    """How clicks come about, with the options of its fit: a dataclass whose fields are the options it takes.

    A subclass is in `CLICK_MODELS` under its `name`. `fit --model NAME` makes it of those options of the command that
    are its fields, and refuses the others.

    Attributes:
        name: what it is called on the command line, and in its files.
        about: what it says of clicks, in a line.
        needs_page: whether the log must tell the pages that results stood on.
        weighs_outcomes: whether `weigh` takes the column of an outcome, and its model after the click.
    """

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""
    needs_page: ClassVar[bool] = False
    weighs_outcomes: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            CLICK_MODELS.add(cls.name, cls)

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """Return the names of the options that its fit takes."""
        return tuple(field.name for field in fields(cls))

    @property
    def needs_unclicked(self) -> bool:
        """Whether units that were never clicked say something to the fit."""
        return True

    def harvest(self, log: ClickLog, **how: Any) -> Interventions:
        """Return what the fit needs of a log; `how` are the arguments of `harvesting.harvest`."""
        from clickharvest.harvesting.collecting import harvest

        return harvest(log, **how, clicked_only=not self.needs_unclicked)

    @abstractmethod
    def fit(self, interventions: Interventions) -> FittedModel:
        """Return the model that fits the interventions.

        Raises:
            InputError: the options do not go with the interventions.
            NotIdentifiedError: the interventions do not tell.
        """

    def check(
        self,
        data: ClickLog | Interventions,
        interventions: Interventions,
        fitted: Any,
        *,
        unit: UnitKind = "context",
        further: Sequence[Finding] = (),
        **asked: Any,
    ) -> Checked:
        """Return what checks find of a fit, and how far off it can be; as it stands, of `Propensities`.

        Args:
            data: the log, or interventions.
            interventions: what the model was fitted to.
            fitted: what `fit` gave.
            unit: as in `harvest`.
            further: findings of other tests.
            asked: `positions`, `folds` and `tolerance`, as in `check_fit`.
        """
        from clickharvest.checks import check_fit

        asked |= {"interventions": interventions, "seed": getattr(self, "seed", 0)}
        return check_fit(data, fitted, unit=unit, further=further, **asked)

    @classmethod
    @abstractmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, NDArray[np.generic]]) -> FittedModel:
        """Return the model of a file's header and tensors; whatever it raises, `load_model` makes a message of it."""

    @classmethod
    @abstractmethod
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
    ) -> WeighReport:
        """Write a log with what its clicks are worth as further columns, and tell what was done."""


@dataclass(frozen=True)
class PageModel(ClickModel):
    """A model of what users did further up on the page, estimated by click shares.

    Attributes:
        intervals: where error bars come from; None for none.
        anchor: the position that others are relative to.
        seed: seed of all randomness.
        progress: shows what is being done.
    """

    needs_page: ClassVar[bool] = True

    intervals: Any = "auto"
    anchor: int = 1
    seed: int = 0
    progress: Progress = silent

    @property
    def needs_unclicked(self) -> bool:
        """Units without a click say nothing to click shares."""
        return False

    @abstractmethod
    def places(self, log: ClickLog, fitted: Any) -> ClickLog:
        """Return the log with the places of a fitted model for its positions."""

    def check(
        self,
        data: ClickLog | Interventions,
        interventions: Interventions,
        fitted: Any,
        *,
        unit: UnitKind = "context",
        further: Sequence[Finding] = (),
        **asked: Any,
    ) -> Checked:
        """Return what checks find of a fit by place, averaged by position, and whether clicks above matter at all."""
        from clickharvest.checks import Evidence, Finding, read_displays
        from clickharvest.checks.clicks_above import held_out_gain
        from clickharvest.click_models.average import check_average

        log: Any = data
        gain = held_out_gain(Evidence(read_displays(log, unit), fitted.average, seed=self.seed))
        if gain is not None:
            advice = "" if gain.is_clear else "fit --model examination is simpler"
            own = Finding(self.name, "ok" if gain.is_clear else "note", gain.sentence, advice)
            further = [*further, own]
        displays = read_displays(self.places(log, fitted), unit)
        return check_average(displays, fitted.average, places=fitted.listed, further=further, seed=self.seed, **asked)
