"""The command `propensities`: a model's propensities for contexts, printed or written."""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.declaring import argument, option
from clickharvest.commands.options import JsonFlag, LevelOption, ModelPath, OutputPath
from clickharvest.commands.output import place_to_write, tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.words import FORMULA, clean_text, count, first_line, json_value, name_columns, not_a_formula

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.model.prediction import Prediction
    from clickharvest.model.propensities import Propensities

ENDINGS = (".parquet", ".csv")
ROWS_AT_ONCE = 50_000
"""Context rows scored and written at a time."""
MOST_ROWS = 20
MOST_COLUMNS = 3


def propensities(
    model: ModelPath,
    contexts: Annotated[str | None, argument("File with the model's context columns.", "CONTEXTS")] = None,
    output: OutputPath = None,
    level: LevelOption = 0.95,
    simultaneous: Annotated[bool, option("Intervals that cover all positions of a context together.")] = False,
    table: Annotated[str | None, option("Table of a DuckDB file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the propensities of contexts, one row per context and position.

    Columns: those of CONTEXTS, then position, propensity, lower, upper, propensity_state; propensities are relative to
    the model's anchor. The state is usable, with care or cannot tell, as the model's budget has it for the context;
    --json says why, as note. Where the data do not speak of a context at a position there is no interval, and no number
    either if nothing links the position. Places have their own columns, such as row and column, beside position, which
    is their number; a browsing model has a row for every position and last_click above it, 0 for none, a reading model
    for every place.

    Example:

      clickharvest propensities model.safetensors contexts.csv -o propensities.parquet
    """
    from clickharvest.click_models.average import listed_propensities
    from clickharvest.click_models.base import load_model
    from clickharvest.model.cautions import few_queries, gaps

    loaded = listed_propensities(load_model(model))
    if contexts is None and loaded.encoder is not None:
        needed = name_columns(loaded.encoder.columns)
        raise InputError(f"{model} depends on context: name a file with the {needed} after it")
    if output is not None:
        place_to_write(output, "the propensities", "propensities.parquet", [model, contexts], ENDINGS)
    rows = None if contexts is None else _read_contexts(loaded, contexts, table)
    options: dict[str, Any] = {"level": level, "simultaneous": simultaneous}
    about = {"anchor": loaded.curve.anchor, "intervals": loaded.draws_kind, **options}
    if output is not None:
        doubts = _write(loaded, rows, output, options, about)
        n, positions = 1 if rows is None else rows.num_rows, len(loaded.shown)
        if as_json:
            counts = {"rows": n * positions, "contexts": n, "positions": positions}
            unsupported = {"unsupported": list(loaded.unsupported), "doubts": doubts}
            tell_json({"file": str(output), **counts, **unsupported, **about})
            return
        where = count(positions, "position" if loaded.places is None else "place")
        tell(f"{count(n * positions, 'row')}, {count(n, 'context')} at {where}: {output}")
    elif as_json:
        predicted = loaded.predict(rows, **options)
        records = json_value(predicted.to_arrow(rows).to_pylist())
        for record, note in zip(records, predicted.notes().ravel(), strict=True):
            record.setdefault("note", note)  # contexts may have a column of this name, which is the user's
        tell_json({**about, "rows": records})
        return
    else:
        doubts = _print_rows(loaded, rows, options)
    if rows is not None and not rows.num_rows:
        tell(f"{contexts} has no rows: there was nothing to score.")
        return
    for why, n in doubts.items():
        tell(f"{count(n, 'row')}: {why.removesuffix('.')}.")
    without = "" if loaded.draws is not None else "No intervals: the model was fitted without."
    for sentence in filter(None, (gaps(loaded), few_queries(loaded), without)):
        tell(sentence)


def _read_contexts(model: Propensities, source: str, table: str | None) -> pa.Table:
    from clickharvest.logs.engines import DuckDBEngine
    from clickharvest.logs.sources import open_source

    parts = () if model.encoder is None else model.encoder.parts
    text = {part.name for part in parts if part.kind == "categorical"}
    opened, engine = open_source(source, DuckDBEngine(progress=show_progress), table=table, text=text)
    if missing := [part.name for part in parts if part.name not in opened.columns]:
        columns = ", ".join(opened.columns[:12])
        raise InputError(f"{source} lacks the context {name_columns(missing)} of the model: found {columns}")
    return engine.fetch(opened, task="Reading the contexts")


def _write(
    model: Propensities,
    contexts: pa.Table | None,
    output: Path,
    options: dict[str, Any],
    about: dict[str, Any],
) -> Counter[str]:
    """Score and write part by part, so that memory holds one part; return rows that cannot be told, by why."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    ending = output.suffix.lower()
    writers = {".parquet": pyarrow.parquet.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}
    n = 1 if contexts is None else contexts.num_rows
    metadata = {"clickharvest": json.dumps({"what": "propensities", **about})}
    doubts: Counter[str] = Counter()
    with atomic_path(output) as partial, show_progress("Scoring") as update, ExitStack() as stack:
        writer: Any = None
        for begin in range(0, max(n, 1), ROWS_AT_ONCE):
            part = None if contexts is None else contexts.slice(begin, ROWS_AT_ONCE)
            predicted = model.predict(part, **options)
            doubts.update(_reasons(predicted))
            scored = predicted.to_arrow(part).replace_schema_metadata(metadata)
            scored = _without_formulas(scored) if ending == ".csv" else scored
            try:
                if writer is None:
                    writer = stack.enter_context(writers[ending](partial, scored.schema))
                writer.write_table(scored)
            except pa.ArrowException as error:
                raise InputError(f"cannot write {output}: {first_line(error)}") from error
            update(min(n, begin + ROWS_AT_ONCE) / max(n, 1))
    return doubts


def _without_formulas(table: pa.Table) -> pa.Table:
    """Return a table with an apostrophe before names and texts that a spreadsheet would take for a formula."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.replace_substring_regex(column, pattern=f"^({FORMULA})", replacement=r"'\1")
        columns.append(column)
    return pa.table(columns, names=[not_a_formula(name) for name in table.column_names])


def _print_rows(model: Propensities, contexts: pa.Table | None, options: dict[str, Any]) -> Counter[str]:
    """Print the first rows; return those of them that cannot be told, by why."""
    from clickharvest.commands.tables import plain_table, screen
    from clickharvest.positions.places import RESULTS

    n = 1 if contexts is None else contexts.num_rows
    first = None if contexts is None else contexts.slice(0, math.ceil(MOST_ROWS / len(model.shown)))
    columns = [] if model.encoder is None else list(model.encoder.columns[:MOST_COLUMNS])
    predicted = model.predict(first, **options)
    scored = predicted.to_arrow(first).select([*columns, *predicted.where, *RESULTS])
    # One page with all its positions may be longer than the limit, and is worth showing whole where it stands alone.
    shown = scored if n == 1 else scored.slice(0, MOST_ROWS)
    rows = ([_cell(value) for value in row.values()] for row in shown.to_pylist())
    screen().print(plain_table([clean_text(name, 16) for name in scored.column_names], rows, left=0))
    if (more := n * len(model.shown) - shown.num_rows) > 0:
        tell(f"… {more:,} more rows: write them all with -o propensities.parquet")
    return _reasons(predicted, shown.num_rows)


def _reasons(predicted: Prediction, most: int | None = None) -> Counter[str]:
    """Return how many of the first numbers are `cannot tell`, by the reason; gaps count apart."""
    import numpy as np

    wrong = predicted.cannot_tell & np.isfinite(predicted.propensity)
    return Counter(predicted.notes().ravel()[:most][wrong.ravel()[:most]])


def _cell(value: Any) -> str:
    from clickharvest.model.summary import spell_end

    return spell_end(value, ".4g") if value is None or isinstance(value, float) else clean_text(value, 16)
