"""What click models have in common: how they are fitted, checked, saved, loaded and used for weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.registry import CLICK_MODELS, EXAMINATION
from clickharvest.errors import InputError
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import read_file, write_file
from clickharvest.progress import Progress, silent
from clickharvest.words import clean_text, first_line

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Finding
    from clickharvest.harvesting.interventions import Interventions, UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.weights.weighing import Clip, Trust

Array = NDArray[np.float64]
Header = Mapping[str, Any]
Tensors = Mapping[str, NDArray[Any]]


class FittedModel(Protocol):
    """What a fit gives: a frozen dataclass, so that `dataclasses.replace` changes it, which prints as its summary.

    One that is not `Propensities` is an `OtherModel`.
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
        """Return the summary as JSON holds it."""
        ...

    def sentences(self) -> list[str]:
        """Return the results of the fit besides the curve, in words."""
        ...


class OtherModel(ABC):
    """What fitted models that are not `Propensities` have in common; frozen dataclasses extend it."""

    kind: ClassVar[str]
    info: Mapping[str, Any]
    provenance: Provenance | None

    @property
    @abstractmethod
    def average(self) -> Propensities:
        """The average curve of the model by position, which is checked and drawn like any other curve."""

    @property
    def fit_info(self) -> FitInfo:
        """The known entries of `info`, typed."""
        return FitInfo.of(self.info)

    @property
    def listed(self) -> Propensities | None:
        """The propensities that `clickharvest propensities` lists; None where the model has none."""
        return None

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return the results of the fit in words."""

    @abstractmethod
    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the header and the tensors of a file."""

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all, that `load_model` reads."""
        header, tensors = self.to_file()
        write_file(Path(path), {"model": self.kind} | header, tensors)

    def origin(self) -> dict[str, Any]:
        """Return `info` and `provenance` as JSON holds them."""
        return {
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }


class WeighReport(Protocol):
    """A report on weighing a log; it prints as sentences."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        ...


@dataclass(frozen=True)
class ClickModel(ABC):
    """A model of how clicks come about, with the options of its fit: a dataclass whose fields are the options.

    A subclass is in `CLICK_MODELS` under its `name`. `fit --model NAME` makes it of those options of the command that
    are its fields, and refuses the others.

    Attributes:
        name: its name on the command line and in its files.
        about: what it says of clicks, in a line.
        needs_page: whether the log must have a column of pages.
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
        """Whether the fit uses units that were never clicked."""
        return True

    def harvest(self, log: ClickLog, **how: Any) -> Interventions:
        """Return the interventions that the fit needs; `how` are the arguments of `harvesting.harvest`."""
        from clickharvest.harvesting.collecting import harvest

        return harvest(log, **how, clicked_only=not self.needs_unclicked)

    @abstractmethod
    def fit(self, interventions: Interventions) -> FittedModel:
        """Return the model that fits the interventions.

        Raises:
            InputError: the options do not go with the interventions.
            NotIdentifiedError: the interventions do not identify the model.
        """

    def check(
        self,
        data: ClickLog | Interventions,
        interventions: Interventions,
        fitted: Any,
        *,
        unit: UnitKind = "context",
        further: Sequence[Finding] = (),
        **options: Any,
    ) -> Checked:
        """Return the findings of the checks on a fit, and its error budget; the default is for `Propensities`.

        Args:
            data: the log, or interventions.
            interventions: the data that the model was fitted to.
            fitted: the result of `fit`.
            unit: as in `harvest`.
            further: findings of other tests.
            options: `positions`, `folds` and `tolerance`, as in `check_fit`.
        """
        from clickharvest.checks import check_fit

        options |= {"interventions": interventions, "seed": getattr(self, "seed", 0)}
        return check_fit(data, fitted, unit=unit, further=further, **options)

    @classmethod
    @abstractmethod
    def load(cls, header: Header, tensors: Tensors) -> FittedModel:
        """Return the model of a file's header and tensors; `load_model` turns whatever it raises into a message."""

    @classmethod
    def place(cls, log: ClickLog, fitted: Any) -> tuple[ClickLog, Propensities]:
        """Return a log with the places of a fitted model for positions, and the propensities of these places."""
        return log, fitted

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
    ) -> WeighReport:
        """Write a log with the value of its clicks as further columns; the default is `weights.weigh_to_parquet`."""
        from clickharvest.weights.weighing import weigh_to_parquet

        placed, propensities = cls.place(log, fitted)
        options: dict[str, Any] = {"clip": clip, "normalise": normalise, "policy_aware": policy_aware, "trust": trust}
        return weigh_to_parquet(placed, propensities, path, **options, **outcome)


@dataclass(frozen=True)
class PageModel(ClickModel):
    """A model in which examination depends on what users did further up on the page, estimated by click shares.

    Attributes:
        intervals: the method for error bars; None for none.
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
        """Units without a click do not matter to click shares."""
        return False

    def check(
        self,
        data: ClickLog | Interventions,
        interventions: Interventions,
        fitted: Any,
        *,
        unit: UnitKind = "context",
        further: Sequence[Finding] = (),
        **options: Any,
    ) -> Checked:
        """Return the findings of the checks by place, averaged by position, and whether clicks above matter at all."""
        from clickharvest.checks import Evidence, Finding, read_displays
        from clickharvest.checks.clicks_above import held_out_gain
        from clickharvest.click_models.average import check_average

        log: Any = data
        average = fitted.average
        gain = held_out_gain(Evidence(read_displays(log, unit), average, seed=self.seed))
        if gain is not None:
            advice = "" if gain.is_clear else "fit --model examination is simpler"
            further = [*further, Finding(self.name, "ok" if gain.is_clear else "note", gain.sentence, advice)]
        displays = read_displays(self.place(log, fitted)[0], unit)
        return check_average(displays, average, places=fitted.listed, further=further, seed=self.seed, **options)


def load_model(path: str | Path) -> FittedModel:
    """Read a model file, of whichever click model.

    Raises:
        InputError: the file is no model, is damaged, or was written by a later version.

    Example:
        >>> import tempfile, numpy as np
        >>> from clickharvest.model import Propensities, make_curve
        >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, shown=(1, 2)).save(path)
        >>> load_model(path).predict().propensity
        array([[1. , 0.5]])
    """
    header, tensors = read_file(Path(path))
    name = header.get("model", EXAMINATION)
    if not isinstance(name, str) or name not in CLICK_MODELS:
        raise InputError(
            f"{path} holds a click model {clean_text(str(name), 40)!r}: expected {', '.join(CLICK_MODELS)}"
        )
    try:
        loaded: FittedModel = CLICK_MODELS[name].load(header, tensors)
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from error
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {first_line(error)}) Fit again.") from error
    return loaded
