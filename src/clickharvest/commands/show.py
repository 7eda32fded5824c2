"""The command `show`: what a model is and what it found."""

from __future__ import annotations

import json
import textwrap

from clickharvest.commands.options import JsonFlag, ModelPath
from clickharvest.commands.output import tell
from clickharvest.commands.telling import described, users_of


def show(model: ModelPath, as_json: JsonFlag = False) -> None:
    """Tell what a model is, what it found and where it comes from.

    Example:

      clickharvest show model.safetensors
    """
    from clickharvest.checks import budget_of
    from clickharvest.click_models.loading import load_model
    from clickharvest.commands.one_screen import spell_budget
    from clickharvest.model.summary import WIDTH, origin

    loaded = load_model(model)
    if as_json:
        tell(json.dumps(described(loaded), indent=2))
        return
    users = users_of(loaded)
    shown = "" if users is None else f"{textwrap.fill(users, WIDTH)}\n\n"
    budget = budget_of(loaded)
    told = "" if budget is None else "\n".join([*spell_budget(budget), "", ""])
    tell(f"{loaded}\n\n{shown}{told}{origin(loaded)}")
