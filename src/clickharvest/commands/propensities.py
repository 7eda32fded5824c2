"""The commands that use a fitted model: `propensities` scores contexts with it, `show` tells what it is."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from rich.table import Table

from clickharvest.commands.terminal import screen
from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.logs.sources import open_source
from clickharvest.model.prediction import RESULTS
from clickharvest.model.propensities import Propensities, load_propensities
from clickharvest.model.summary import describe_model, gaps, origin
from clickharvest.progress import Monitor, silent
from clickharvest.words import clean_text, first_line

WRITERS: dict[str, Any] = {".parquet": pq.ParquetWriter, ".csv": pyarrow.csv.CSVWriter}
ROWS_AT_ONCE = 50_000
"""Context rows scored and written at a time."""
MOST_ROWS = 20
MOST_COLUMNS = 3


def print_model(model: Path, *, as_json: bool = False) -> None:
    """Print what a model is and where it comes from: `clickharvest show MODEL`."""
    loaded = load_propensities(model)
    print(json.dumps(describe_model(loaded), indent=2) if as_json else f"{loaded}\n\n{origin(loaded)}")


def score_contexts(
    model: Path,
    contexts: str | None = None,
    output: Path | None = None,
    *,
    level: float = 0.95,
    simultaneous: bool = False,
    table: str | None = None,
    as_json: bool = False,
    monitor: Monitor = silent,
) -> None:
    """Write or print the propensities of contexts: `clickharvest propensities MODEL [CONTEXTS] -o out.parquet`.

    Args:
        model: the model's file.
        contexts: a file with the model's context columns; all its columns are carried along. None is for models
            without context.
        output: Parquet or CSV file to write; None prints the first rows, or all of them as JSON.
        level: level of the intervals.
        simultaneous: whether they cover all positions of a context together.
        table: the table of a DuckDB file that holds more than one.
        as_json: whether to print JSON.
        monitor: what shows progress.

    Raises:
        InputError: the model needs contexts, they lack columns, or a file cannot be read or written.
    """
    loaded = load_propensities(model)
    if output is not None and output.suffix.lower() not in WRITERS:
        raise InputError(f"propensities are written as {' or '.join(WRITERS)}: -o {output} ends in neither")
    if contexts is None and loaded.encoder is not None:
        needed = ", ".join(loaded.encoder.columns)
        raise InputError(f"{model} depends on context: name a file with the columns {needed} after it")
    rows = None if contexts is None else _read_contexts(loaded, contexts, table, monitor)
    options: dict[str, Any] = {"level": level, "simultaneous": simultaneous}
    about = {"anchor": loaded.curve.anchor, "intervals": loaded.draws_kind, **options}
    if output is not None:
        _write(loaded, rows, output, options, about, monitor)
        n = 1 if rows is None else rows.num_rows
        counts = {"rows": n * len(loaded.shown), "contexts": n, "positions": len(loaded.shown)}
        if as_json:
            print(json.dumps({"file": str(output), **counts, "unsupported": list(loaded.unsupported), **about}))
            return
        print(f"{counts['rows']:,} rows, {n:,} contexts at {len(loaded.shown):,} positions: {output}")
    elif as_json:
        scored = loaded.predict(rows, **options).to_arrow(rows)
        records = [{name: _plain(value) for name, value in row.items()} for row in scored.to_pylist()]
        print(json.dumps({**about, "rows": records}, default=str))
        return
    else:
        _print_rows(loaded, rows, options)
    for sentence in (gaps(loaded), "" if loaded.draws is not None else "No intervals: the model was fitted without."):
        if sentence:
            print(sentence)


def _read_contexts(model: Propensities, source: str, table: str | None, monitor: Monitor) -> pa.Table:
    parts = () if model.encoder is None else model.encoder.parts
    text = {part.name for part in parts if part.kind == "categorical"}
    opened, engine = open_source(source, DuckDBEngine(monitor=monitor), table=table, text=text)
    if missing := [part.name for part in parts if part.name not in opened.columns]:
        found = ", ".join(opened.columns[:12])
        raise InputError(f"{source} lacks the context columns {', '.join(missing)} of the model: found {found}")
    return engine.fetch(opened, task="Reading the contexts")


def _write(
    model: Propensities,
    contexts: pa.Table | None,
    output: Path,
    options: dict[str, Any],
    about: dict[str, Any],
    monitor: Monitor,
) -> None:
    """Score and write part by part, so that memory holds one part's result at a time."""
    n = 1 if contexts is None else contexts.num_rows
    done = 0
    metadata = {"clickharvest": json.dumps({"what": "propensities", **about})}
    with atomic_path(output) as partial, monitor("Scoring", lambda: done / max(n, 1)), ExitStack() as stack:
        writer: Any = None
        for begin in range(0, max(n, 1), ROWS_AT_ONCE):
            part = None if contexts is None else contexts.slice(begin, ROWS_AT_ONCE)
            scored = model.predict(part, **options).to_arrow(part).replace_schema_metadata(metadata)
            try:
                if writer is None:
                    writer = stack.enter_context(WRITERS[output.suffix.lower()](partial, scored.schema))
                writer.write_table(scored)
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"cannot write {output}: {first_line(error)}") from error
            done = min(n, begin + ROWS_AT_ONCE)


def _print_rows(model: Propensities, contexts: pa.Table | None, options: dict[str, Any]) -> None:
    n = 1 if contexts is None else contexts.num_rows
    first = None if contexts is None else contexts.slice(0, math.ceil(MOST_ROWS / len(model.shown)))
    columns = [] if model.encoder is None else list(model.encoder.columns[:MOST_COLUMNS])
    scored = model.predict(first, **options).to_arrow(first).select([*columns, *RESULTS])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in scored.column_names:
        table.add_column(clean_text(name, 16), justify="right")
    # One page with all its positions may be longer than the limit, and is worth showing whole where it stands alone.
    shown = scored if n == 1 else scored.slice(0, MOST_ROWS)
    for row in shown.to_pylist():
        table.add_row(*(_cell(value) for value in row.values()))
    screen().print(table)
    if (more := n * len(model.shown) - shown.num_rows) > 0:
        print(f"… {more:,} more rows: write them all with -o propensities.parquet")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else clean_text(value, 16)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
