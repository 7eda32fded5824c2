"""A fitted reading model: a browsing model, and the propensities of places that tell what was skipped above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.model.browsing import BrowsingPropensities
from clickharvest.model.loading import from_file
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import Provenance
from clickharvest.model.storage import write_file
from clickharvest.model.summary import spell_fitted, wrap
from clickharvest.model.typical import typical_context

COLUMNS = ("position", "distance", "skipped", "served")
"""What makes a place: rank, positions to the last click (0 for none), what was skipped since (0, hardly anything, to 4,
what nearly all click), and how attractive the last click was (1 to 4, 0 for none)."""
MANY_LEFT = 0.9
"""How often users look on, of the usual, below which they are said to have left."""
BASE = "base/"
"""What the tensors of the browsing model begin with."""


@dataclass(frozen=True, eq=False)
class ReadingPropensities:
    """Examination propensities of places, known relative to the top of the page.

    Attributes:
        base: the browsing model, with which documents get their attraction.
        places_model: the propensities of places, whose columns are `COLUMNS`.
        info: whatever else a reader may ask for, as JSON holds it.
        provenance: where it comes from; None where nothing tells.
    """

    base: BrowsingPropensities
    places_model: Propensities
    info: Mapping[str, Any] = field(default_factory=dict)
    provenance: Provenance | None = None

    kind: ClassVar[str] = "reading"

    def __post_init__(self) -> None:
        places = self.places_model.places
        if places is None or places.columns != COLUMNS:
            raise InputError(f"a reading model has places by {', '.join(COLUMNS)}: this has others; fit again")
        if self.base.context != self.places_model.context:
            raise InputError("the two parts of a reading model depend on different contexts: fit again")

    def __str__(self) -> str:
        title = "Examination propensities of readers: position, last click, and what was skipped above"
        parts = [wrap(title), spell_fitted(self.info), *(wrap(sentence) for sentence in self.sentences())]
        return "\n\n".join([*parts, "Its first step, without what was skipped:", str(self.base)])

    @property
    def context(self) -> tuple[str, ...]:
        """The context columns that the model depends on."""
        return self.base.context

    @property
    def listed(self) -> Propensities:
        """What `clickharvest propensities` lists."""
        return self.places_model

    def steps(self, column: str, first: int) -> dict[int, float]:
        """Return how many times as often results are looked at in each step of a column as in its first one.

        Geometric means, over places that differ in nothing else and have a supported number, in a typical context.
        """
        model = self.places_model
        assert model.places is not None
        predicted = model.predict_encoded(typical_context(model))
        value = dict(zip(predicted.positions, np.log(predicted.propensity[0]), strict=True))
        usable = {k for k, own in zip(predicted.positions, predicted.supported[0], strict=True) if own}
        at = COLUMNS.index(column)
        number = {label: k for k, label in enumerate(model.places.labels, 1) if k in usable}
        apart: dict[int, list[float]] = {}
        for label, k in number.items():
            like = number.get((*label[:at], first, *label[at + 1 :]))
            if like is not None and label[at] > first:  # type: ignore[operator]
                apart.setdefault(int(label[at]), []).append(value[k] - value[like])
        return {step: float(np.exp(np.mean(own))) for step, own in sorted(apart.items())}

    def sentences(self) -> list[str]:
        """Return what skipping and being served change, in words."""
        told = []
        skipped, served = self.steps("skipped", 0), self.steps("served", 1)
        if skipped:
            last = max(skipped)
            left = ": they have left" if skipped[last] < MANY_LEFT else ""
            told.append(
                f"Where users skipped what most others click (step {last}), they look at a result {skipped[last]:.2f} "
                f"times as often as where they skipped hardly anything{left}."
            )
        if served:
            last = max(served)
            told.append(
                f"Below a click on what attracts most (step {last}), they look on {served[last]:.2f} times as often as "
                "below one on what attracts least."
            )
        return told

    def describe(self) -> dict[str, Any]:
        """Return what the model says of itself, as JSON holds it."""
        return {
            "model": self.kind,
            "anchor": 1,
            "context": list(self.context),
            "intervals": self.places_model.draws_kind,
            "skipped": self.steps("skipped", 0),
            "served": self.steps("served", 1),
            "base": self.base.describe(),
            "places": self.places_model.predict_encoded(typical_context(self.places_model)).to_arrow().to_pylist(),
            "info": dict(self.info),
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
        }

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file, whole or not at all, that `load_model` reads."""
        header, tensors = replace(self.places_model, info=dict(self.info), provenance=self.provenance).to_file()
        states = replace(self.base.states, info=dict(self.base.info))
        own, more = states.to_file()
        own |= {"leaning": list(states.leaning), "format": 0}
        tensors |= {BASE + name: values for name, values in more.items()}
        write_file(Path(path), {"model": self.kind, "base": own} | header, tensors)

    @classmethod
    def from_file(cls, header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> ReadingPropensities:
        """Return the model of a file's header and tensors; whatever it raises, the file is not sound."""
        own = {name.removeprefix(BASE): values for name, values in tensors.items() if name.startswith(BASE)}
        base = BrowsingPropensities.from_file(header["base"], own)
        read = from_file(header, {name: values for name, values in tensors.items() if not name.startswith(BASE)})
        return cls(base, replace(read, info={}, provenance=None), read.info, read.provenance)
