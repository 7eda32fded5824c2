"""The command `tally`: from the log of a day to its counts, which add up with those of other days."""

from __future__ import annotations

from typing import Annotated

from clickharvest.commands.declaring import option, split_list
from clickharvest.commands.options import JsonFlag, LogOptions, OutputPath
from clickharvest.commands.output import place_to_write, tell, tell_json
from clickharvest.words import count


def tally(
    log: LogOptions,
    keep: Annotated[
        list[str] | None,
        option("Further columns to keep apart, such as user for a later --cluster user.", "A,B,…"),
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
    from clickharvest.logs.tallies import write_tally

    output = place_to_write(output, "the tally", "tallies/2026-03-01.parquet", log.sources)
    clicks = log.read()
    rows = write_tally(clicks, output, keep=split_list(keep))
    assert clicks.facts is not None
    counts = {"impressions": clicks.facts.impressions, "clicks": clicks.facts.clicks}
    if as_json:
        tell_json({"file": str(output), "rows": rows, **counts})
        return
    written = f"{count(counts['impressions'], 'impression')}, {count(counts['clicks'], 'click')}"
    tell(f"{written}, in {count(rows, 'row')}: {output}")
