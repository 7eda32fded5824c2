"""The command `rerank`: documents in the order that a ranker gives them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import JsonFlag, OutputPath
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.words import count

COLUMNS = "Columns of the documents"


def rerank(
    ranker: Annotated[
        Path, typer.Argument(metavar="RANKER", help="Ranker file, as rank writes it.", show_default=False)
    ],
    documents: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENTS",
            help="Table of documents with the columns that the ranker was trained on: Parquet, CSV, TSV, JSONL.",
            show_default=False,
        ),
    ],
    query: Annotated[
        str,
        typer.Option("--query", metavar="COLUMN", help="Queries; without them, one list.", rich_help_panel=COLUMNS),
    ] = "query",
    doc: Annotated[str, typer.Option("--doc", metavar="COLUMN", help="Documents.", rich_help_panel=COLUMNS)] = "doc",
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", metavar="SIZE", help="Memory of DuckDB, such as 2GB.", show_default=False),
    ] = None,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Score documents with a ranker and rank those of each query.

    Writes the columns of queries and documents, score (higher is better) and rank (1 is the top). Documents are read in
    batches and sorted on disk where memory is short: any number will do.

    Example:

      clickharvest rerank ranker.json documents.parquet -o ranked.parquet
    """
    from clickharvest.logs.engines import DuckDBEngine
    from clickharvest.logs.sources import file_format
    from clickharvest.rank.rankers import load_ranker
    from clickharvest.rank.reranking import rerank as write_ranking

    if output is None:
        raise InputError("nowhere to write the ranking: name a file with -o ranked.parquet")
    if file_format(output.name) != "parquet":
        raise InputError(f"the ranking is written as Parquet: -o {output} should end in .parquet")
    refuse_overwriting(output, [documents, ranker])
    loaded = load_ranker(ranker)
    engine = DuckDBEngine(memory_limit=memory_limit, progress=show_progress)
    found = write_ranking(loaded, documents, output, query=query, doc=doc, engine=engine)
    if as_json:
        tell(json.dumps({"file": str(output), **asdict(found)}))
        return
    of = "one list" if found.queries is None else count(found.queries, "query", "queries")
    tell(f"Ranked {count(found.documents, 'document')} of {of}: {output}")
