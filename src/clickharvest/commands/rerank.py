"""The command `rerank`: documents in the order that a ranker gives them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from clickharvest.commands.declaring import argument, option
from clickharvest.commands.options import JsonFlag, OutputPath, RankerPath
from clickharvest.commands.output import place_to_write, tell, tell_json
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
    engine = DuckDBEngine(memory_limit=memory_limit, progress=show_progress)
    ranked = write_ranking(load_ranker(ranker), documents, output, query=query, doc=doc, engine=engine)
    if as_json:
        tell_json({"file": str(output), **asdict(ranked)})
        return
    of = "one list" if ranked.queries is None else count(ranked.queries, "query", "queries")
    tell(f"Ranked {count(ranked.documents, 'document')} of {of}: {output}")
