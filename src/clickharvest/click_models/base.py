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
    from clickharvest.checks import Finding
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.weights.weighing import Clip


class FittedModel(Protocol):
    """What a fit gives: a frozen dataclass, so that `dataclasses.replace` changes it, which prints as its summary."""

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
    """

    name: ClassVar[str] = ""
    about: ClassVar[str] = ""
    needs_page: ClassVar[bool] = False

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

    def check(self, interventions: Interventions, fitted: Any = None) -> Sequence[Finding]:
        """Return what speaks for and against the model, where it has tests of its own.

        Args:
            interventions: what it was fitted to.
            fitted: what `fit` gave, so that tests know what contexts do; None where it is not at hand.
        """
        return ()

    @classmethod
    @abstractmethod
    def load(cls, header: Mapping[str, Any], tensors: Mapping[str, NDArray[np.generic]]) -> FittedModel:
        """Return the model of a file's header and tensors; whatever it raises, `load_model` makes a message of it."""

    @classmethod
    @abstractmethod
    def weigh(
        cls, log: ClickLog, fitted: Any, path: Path, *, clip: Clip, normalise: bool, policy_aware: bool
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
