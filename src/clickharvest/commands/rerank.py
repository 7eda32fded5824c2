"""The command `rerank`: documents in the order that a ranker gives them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from clickharvest.commands.inputs import place_to_write
from clickharvest.commands.options import JsonFlag, OutputPath, RankerPath, argument, option
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.words import count

COLUMNS = "Columns of the documents"


def rerank(
    ranker: RankerPath,
    documents: Annotated[
        str,
        argument(
            "Table of documents with the columns that the ranker was trained on: Parquet, CSV, TSV, JSONL.", "DOCUMENTS"
        ),
    ],
    query: Annotated[str, option("Queries; without them, one list.", "COLUMN", panel=COLUMNS)] = "query",
    doc: Annotated[str, option("Documents.", "COLUMN", panel=COLUMNS)] = "doc",
    memory_limit: Annotated[str | None, option("Memory of DuckDB, such as 2GB.", "SIZE")] = None,
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
    from clickharvest.rank.rankers import load_ranker
    from clickharvest.rank.reranking import rerank as write_ranking

    output = place_to_write(output, "the ranking", "ranked.parquet", [documents, ranker])
    loaded = load_ranker(ranker)
    engine = DuckDBEngine(memory_limit=memory_limit, progress=show_progress)
    found = write_ranking(loaded, documents, output, query=query, doc=doc, engine=engine)
    if as_json:
        tell(json.dumps({"file": str(output), **asdict(found)}))
        return
    of = "one list" if found.queries is None else count(found.queries, "query", "queries")
    tell(f"Ranked {count(found.documents, 'document')} of {of}: {output}")
