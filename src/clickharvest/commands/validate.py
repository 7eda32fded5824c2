"""The command `validate`: a curve beside an experiment that the log holds."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from clickharvest.commands.declaring import option
from clickharvest.commands.options import (
    AnchorOption,
    CheckOptions,
    ClusterOption,
    HarvestOptions,
    JsonFlag,
    LogOptions,
    OutputPath,
)
from clickharvest.commands.output import refuse_overwriting, tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError

_experiment = partial(option, panel="The experiment")


def validate(
    log: LogOptions,
    units: HarvestOptions,
    checks: CheckOptions,
    model: Annotated[
        Path | None,
        _experiment(
            "Compare this, not the curve of ordinary pages: a model file, or a CSV of position,propensity.", "FILE"
        ),
    ] = None,
    pages_with: Annotated[
        str | None, _experiment("Keep pages of which a row has 1 here, such as booked.", "COLUMN")
    ] = None,
    pool: Annotated[bool, _experiment("Fit all pages together, unless the two kinds differ.")] = False,
    cluster: ClusterOption = "",
    anchor: AnchorOption = "1",
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Hold the curve of ordinary pages against an experiment: pages in random order, or swapped results.

    There, clicks by position are examination. With --random the log says which pages those are, with --swap and
    --original which results were swapped. Tells whether both agree within chance, how large a difference could hide,
    and whether the budget of the ordinary pages held. With --pool and -o, writes the model of all pages. Exit code 3:
    the ordinary pages, or the experiment, reveal nothing.

    Examples:

      clickharvest validate clicks.parquet --random ranker=random

      clickharvest validate clicks.parquet --swap 10 --original rank_before --model theirs.csv
    """
    from clickharvest.checks.validating import validate as compare
    from clickharvest.click_models.examination import Examination
    from clickharvest.commands.text import validation_lines
    from clickharvest.harvesting.designs import Swap
    from clickharvest.harvesting.reading import is_interventions
    from clickharvest.model.loading import load_curve
    from clickharvest.positions.places import find_anchor

    design = units.design(log.base)
    if is_interventions(log.source):
        raise InputError(f"{log.source} holds interventions: the experiment is in the log, give that")
    if design is not None and not isinstance(design, Swap):
        raise InputError("the experiment is --random or --swap: leave other designs out")
    if (log.random is None) == (design is None):
        raise InputError("name the experiment: --random COLUMN=VALUE for pages in random order, or --swap K --original")
    if output is not None:
        if not pool or output.suffix != ".safetensors":
            raise InputError("-o writes the model of all pages: name a .safetensors file, and add --pool")
        refuse_overwriting(output, [*log.sources, model])
    check_options = checks.arguments()
    curve = None if model is None else load_curve(model)
    clicks = log.read()
    at = find_anchor(anchor, clicks.places)
    examination = Examination(anchor=at, progress=show_progress)
    with show_progress("Comparing"):
        validation = compare(
            clicks, curve, swap=design, pages_with=pages_with, unit=units.unit_kind, max_position=units.max_position,
            cluster=cluster or None, anchor=at, pool=pool,
            estimate=lambda clicks: examination.within(clicks).fit(clicks), **check_options,
        )  # fmt: skip
    if output is not None and validation.pooled is not None:
        validation.pooled.save(output)
    if as_json:
        tell_json(validation.to_dict())
        return
    tell("\n".join(validation_lines(validation, verbose=checks.verbose)))
    if validation.parts is not None and validation.parts.outcome:
        tell(f"next: clickharvest validate {shlex.join([*sys.argv[2:], '--pages-with', validation.parts.outcome])}")
    if validation.pooled is not None and output is not None:
        tell(f"saved: {output}")
    elif pool:
        tell(
            "Not pooled: both kinds of pages must agree." if validation.pooled is None else "To keep the model: -o FILE"
        )
