"""The command `tally`: from the log of a day to its counts, which add up with those of other days."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import JsonFlag, LogOptions, OutputPath, with_options
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.words import count


@with_options
def tally(
    log: LogOptions,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="A,B,…",
            help="Further columns to keep apart, such as user for a later --cluster user.",
            show_default=False,
        ),
    ] = None,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Keep the counts of a day, to be read with those of other days as one log.

    Writes one row per query, context, document and position (and ranker and original position, where LOG has them).
    harvest, check and fit read a folder of tallies as they read a log. Tests by page, and by user unless it is kept,
    need the log itself.

    Examples:

      clickharvest tally clicks-2026-03-01.parquet --context device -o tallies/2026-03-01.parquet

      clickharvest fit tallies --context device -o model.safetensors
    """
    from clickharvest.logs.sources import file_format
    from clickharvest.logs.tallies import write_tally

    if output is None:
        raise InputError("nowhere to write the tally: name a file with -o tallies/2026-03-01.parquet")
    if file_format(output.name) != "parquet":
        raise InputError(f"a tally is written as Parquet: -o {output} should end in .parquet")
    refuse_overwriting(output, log.sources)
    clicks = log.read(show_progress)
    columns = [part.strip() for text in keep or () for part in text.split(",") if part.strip()]
    rows = write_tally(clicks, output, keep=columns)
    assert clicks.facts is not None
    counts = {"impressions": clicks.facts.impressions, "clicks": clicks.facts.clicks}
    if as_json:
        tell(json.dumps({"file": str(output), "rows": rows, **counts}))
    else:
        told = f"{count(counts['impressions'], 'impression')}, {count(counts['clicks'], 'click')}"
        tell(f"{told}, in {count(rows, 'row')}: {output}")
