"""The command `show`: what a model is and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clickharvest.commands.options import JsonFlag, ModelPath
from clickharvest.commands.output import tell, tell_json

if TYPE_CHECKING:
    from clickharvest.click_models.base import FittedModel


def show(model: ModelPath, as_json: JsonFlag = False) -> None:
    """Tell what a model is, what it found and where it comes from.

    Example:

      clickharvest show model.safetensors
    """
    from clickharvest.checks import budget_of
    from clickharvest.click_models.base import load_model
    from clickharvest.commands.text import budget_lines, users_of, wrapped
    from clickharvest.model.summary import origin

    fitted = load_model(model)
    if as_json:
        tell_json(model_record(fitted))
        return
    users, budget = users_of(fitted.info), budget_of(fitted)
    parts = [str(fitted), "\n".join(wrapped(users)), "" if budget is None else "\n".join(budget_lines(budget))]
    tell("\n\n".join([*filter(None, parts), origin(fitted)]))


def model_record(fitted: FittedModel) -> dict[str, Any]:
    """Return what a model says of itself, with its budget and findings if it was checked, as JSON holds it."""
    return {name: fitted.info[name] for name in ("budget", "findings") if name in fitted.info} | fitted.describe()
