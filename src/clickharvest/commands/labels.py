"""The command `labels`: what clicks say about every document, for trainers of other makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from clickharvest.commands.declaring import option
from clickharvest.commands.options import JsonFlag, LevelOption, LogOptions, OutputPath
from clickharvest.commands.output import place_to_write, tell, tell_json
from clickharvest.words import count


def labels(
    log: LogOptions,
    model: Annotated[
        Path | None,
        option(
            "Model file, as fit writes it. Without it, LOG must have a column propensity, as weigh writes it.", "MODEL"
        ),
    ] = None,
    level: LevelOption = 0.95,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Write what clicks say about every query and document: labels for other trainers, such as PyTorch, allRank.

    Columns query, doc, clicks, exposure (how often the document was examined), pages of the query, policy_propensity
    (exposure / pages), relevance (clicks / exposure), and its interval from lower to upper. Of a model of fit --model
    affine also shift, and relevance is (clicks - shift) / exposure, which may be below 0.

    Example:

      clickharvest labels clicks.parquet --model model.safetensors -o labels.parquet
    """
    import pyarrow.parquet as pq

    from clickharvest.commands.rank import open_log
    from clickharvest.files import atomic_path
    from clickharvest.rank.labels import relevance_labels

    output = place_to_write(output, "the labels", "labels.parquet", [*log.sources, model])
    opened, propensities = open_log(log, model)
    table = relevance_labels(opened, propensities, level=level)
    about = json.dumps({"what": "labels", "documents": table.num_rows, "level": level})
    with atomic_path(output) as partial:
        pq.write_table(table.replace_schema_metadata({"clickharvest": about}), partial, compression="zstd")
    if as_json:
        tell_json({"file": str(output), "documents": table.num_rows})
        return
    tell(f"Labels of {count(table.num_rows, 'document')}: {output}")
