"""The command `show`: what a model is and what it found."""

from __future__ import annotations

import json

from clickharvest.commands.options import JsonFlag, ModelPath
from clickharvest.commands.output import tell


def show(model: ModelPath, as_json: JsonFlag = False) -> None:
    """Tell what a model is, what it found and where it comes from.

    Example:

      clickharvest show model.safetensors
    """
    from clickharvest.model.propensities import load_propensities
    from clickharvest.model.summary import describe_model, origin

    loaded = load_propensities(model)
    tell(json.dumps(describe_model(loaded), indent=2) if as_json else f"{loaded}\n\n{origin(loaded)}")
