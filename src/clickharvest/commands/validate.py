"""The command `validate`: a curve beside an experiment that the log holds."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from clickharvest.commands.check_options import CheckOptions
from clickharvest.commands.harvest_options import HarvestOptions
from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import AnchorOption, ClusterOption, JsonFlag, LogOptions, OutputPath, option
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.threads import keep_to_one_thread
from clickharvest.errors import InputError

if TYPE_CHECKING:
    from clickharvest.checks.experiment_curve import CurveEstimate
    from clickharvest.checks.validating import Validation

TRUTH = "The experiment"
MOST_ROWS = 9
"""Positions of the table; the others are in --json, and all with --verbose."""


def validate(
    log: LogOptions,
    units: HarvestOptions,
    checks: CheckOptions,
    model: Annotated[
        Path | None,
        option(
            "Compare this, not the curve of ordinary pages: a model file, or a CSV of position,propensity.",
            "FILE",
            panel=TRUTH,
        ),
    ] = None,
    pages_with: Annotated[
        str | None,
        option("Keep pages of which a row has 1 here, such as booked.", "COLUMN", panel=TRUTH),
    ] = None,
    pool: Annotated[bool, option("Fit all pages together, unless the two kinds differ.", panel=TRUTH)] = False,
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
    keep_to_one_thread()
    from clickharvest.checks.validating import validate as compare
    from clickharvest.click_models.examination import Examination
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
    if output is not None and not (pool and output.suffix == ".safetensors"):
        raise InputError("-o writes the model of all pages: name a .safetensors file, and add --pool")
    if output is not None:
        refuse_overwriting(output, [*log.sources, model])
    asked = checks.arguments()
    given = None if model is None else load_curve(model)
    data = log.read(show_progress)
    at = find_anchor(anchor, data.places)
    fitting = Examination(anchor=at, progress=show_progress)
    with show_progress("Comparing"):
        found = compare(
            data, given, swap=design, pages_with=pages_with, unit=units.unit_kind, max_position=units.max_position,
            cluster=cluster or None, anchor=at, pool=pool, estimate=lambda clicks: fitting.within(clicks).fit(clicks),
            **asked,
        )  # fmt: skip
    if output is not None and found.pooled is not None:
        found.pooled.save(output)
    if as_json:
        tell(json.dumps(found.to_dict(), indent=2))
        return
    _print(found, checks.verbose)
    if found.parts is not None and found.parts.outcome:
        tell(f"next: clickharvest validate {shlex.join([*sys.argv[2:], '--pages-with', found.parts.outcome])}")
    if found.pooled is not None and output is not None:
        tell(f"saved: {output}")
    elif pool:
        tell("Not pooled: both kinds of pages must agree." if found.pooled is None else "To keep the model: -o FILE")


def _print(found: Validation, verbose: bool) -> None:
    """Print the two curves side by side, and what follows."""
    from clickharvest.checks import findings_of
    from clickharvest.commands.one_screen import every_finding, paragraph, wrapped
    from clickharvest.logs.parts import spell_part
    from clickharvest.positions.places import name_place

    parts = found.parts
    if parts is not None:
        tell(paragraph("ordinary", spell_part(parts.ordinary)))
        tell(paragraph("random", spell_part(parts.random)))
    places = None if found.model is None else found.model.places
    others = found.others
    if len(others) > MOST_ROWS and not verbose:
        step = (len(others) - 1) / (MOST_ROWS - 1)
        others = [others[round(step * i)] for i in range(MOST_ROWS)]
    curves = {"model": found.harvested, found.what: found.random, "click rates": found.rates}
    rows = [("", *curves)]
    rows += [(name_place(found.positions[i], places), *(_spell(curve, i) for curve in curves.values())) for i in others]
    if places is None:
        rows.append(("power of k", *(_spell_power(curve) for curve in curves.values())))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    tell(f"\nexamination relative to {name_place(found.anchor, places)}, 95 % interval")
    for row in rows:
        tell("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    tell("")
    if verbose and found.model is not None:
        findings = findings_of(found.model)
        tell(f"{found.model}\n" + (f"\n{every_finding(findings)}\n" if findings else ""))
    for sentence in found.sentences():
        tell("\n".join(wrapped(sentence, "  " if sentence.startswith("!") else "")))


def _spell(curve: CurveEstimate, i: int) -> str:
    from clickharvest.commands.one_screen import spell_share

    share, lower, upper = curve.interval(i)
    return spell_share(share, *((lower, upper) if curve.error[i] else (float("nan"),) * 2))


def _spell_power(curve: CurveEstimate) -> str:
    power, lower, upper = curve.power_interval
    texts = [f"{value:.2f}".removeprefix("0").replace("-0.", "-.") for value in (power, lower, upper)]
    return texts[0] + (f" ({texts[1]} to {texts[2]})" if curve.power_error else "")
