"""Choices: options whose values are the names of a registry, read when a command runs and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.models import OptionInfo

Names = Callable[[], Iterable[str]]


class Choice(OptionInfo):
    """An option that shows the names there are, and refuses others."""

    def __init__(self, flag: str, names: Names, **about: Any) -> None:
        self.names = names
        super().__init__(default=flag, parser=self.parse, **about)  # Typer takes the flag as the first argument

    @property
    def metavar(self) -> str:
        """The names, as the help shows them: Typer asks for them when it builds a command."""
        return f"<{'|'.join(self.names())}>"

    @metavar.setter
    def metavar(self, _: str | None) -> None:
        """Typer's constructor sets what is never given."""

    def parse(self, value: str) -> str:
        """Return a name as it is, or tell which there are."""
        known = list(self.names())
        if value not in known:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, known))}.")
        return value


def curve_names() -> list[str]:
    """Return the curves that can be fitted, and their selection."""
    from clickharvest.model.curves.registry import CURVES

    return ["auto", *CURVES]


def model_names() -> list[str]:
    """Return the click models that can be fitted, and their selection."""
    from clickharvest.click_models.registry import AUTO, CLICK_MODELS

    return [AUTO, *CLICK_MODELS]


def objective_names() -> list[str]:
    """Return the objectives."""
    from clickharvest.estimation.objectives import OBJECTIVES

    return list(OBJECTIVES)


def relevance_names() -> list[str]:
    """Return the relevance models of AllPairs, and their selection."""
    from clickharvest.estimation.objectives import RELEVANCE

    return ["auto", *RELEVANCE]


def weighting_names() -> list[str]:
    """Return the weights of AllPairs."""
    from clickharvest.estimation.objectives import WEIGHTINGS

    return list(WEIGHTINGS)


def format_names() -> list[str]:
    """Return the known exports of click logs."""
    from clickharvest.logs.formats import FORMATS

    return list(FORMATS)


def learner_names() -> list[str]:
    """Return what can learn a ranker."""
    from clickharvest.rank.learners import LEARNERS

    return [*LEARNERS, "auto"]


def export_names() -> list[str]:
    """Return what rankers can be written for."""
    from clickharvest.rank.exports import EXPORTS

    return list(EXPORTS)


def examination_names() -> list[str]:
    """Return the true curves of simulations."""
    from clickharvest.simulate.names import CURVES

    return list(CURVES)


def click_model_names() -> list[str]:
    """Return the click models of simulations."""
    from clickharvest.simulate.names import USER_KINDS

    return list(USER_KINDS)


def repetition_names() -> list[str]:
    """Return how queries repeat in simulations."""
    from clickharvest.simulate.names import REPETITIONS

    return list(REPETITIONS)


def deployment_names() -> list[str]:
    """Return how rankers are deployed in simulations."""
    from clickharvest.simulate.names import DEPLOYMENTS

    return list(DEPLOYMENTS)
