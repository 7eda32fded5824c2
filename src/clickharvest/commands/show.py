"""The command `show`: what a model is and what it found."""

from __future__ import annotations

import json
import textwrap

from clickharvest.commands.options import JsonFlag, ModelPath
from clickharvest.commands.output import tell


def show(model: ModelPath, as_json: JsonFlag = False) -> None:
    """Tell what a model is, what it found and where it comes from.

    Example:

      clickharvest show model.safetensors
    """
    from clickharvest.model.propensities import load_propensities
    from clickharvest.model.summary import WIDTH, describe_model, origin
    from clickharvest.report.verdict import judge

    loaded = load_propensities(model)
    verdict = judge(loaded)
    if as_json:
        tell(json.dumps(describe_model(loaded) | {"verdict": verdict.to_dict()}, indent=2))
        return
    tell(f"{loaded}\n\n{textwrap.fill(f'Verdict: {verdict}', WIDTH)}\n\n{origin(loaded)}")
