"""Reranking: documents of a table in the order of a ranker, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clickharvest.errors import InputError
from clickharvest.files import atomic_path, remove_folder, temporary_folder
from clickharvest.rank.columns import FeatureColumns
from clickharvest.rank.rankers import TrainedRanker

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.logs.engines import Engine

ROWS = 50_000
"""Documents that are scored at a time."""


@dataclass(frozen=True)
class Reranked:
    """The size of a ranking.

    Attributes:
        documents: number of documents.
        queries: number of queries; None where the table has no queries and all documents are one list.
    """

    documents: int
    queries: int | None


def rerank(
    ranker: TrainedRanker,
    documents: Any,
    path: str | Path,
    *,
    query: str = "query",
    doc: str = "doc",
    engine: Engine | None = None,
) -> Reranked:
    """Score documents, rank those of each query, and write the ranking to a Parquet file.

    Documents are scored in batches and sorted inside the engine, which spills to disk. The file has the columns of
    queries and documents under their own names, `score` (higher is better) and `rank` (1 is the top), sorted by query
    and rank; documents of equal scores are in the order of their names.

    Args:
        ranker: the ranker.
        documents: a path or table with a column of documents and the columns that the ranker was trained on. With a
            column of queries, each query is ranked by itself; without, all documents are one list.
        path: Parquet file to write.
        query: column of queries.
        doc: column of documents.
        engine: where to read and sort; an embedded DuckDB by default.

    Raises:
        InputError: columns are missing or of another kind than in training.

    Example:
        >>> import tempfile
        >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
        >>> path = Path(tempfile.mkdtemp()) / "ranked.parquet"
        >>> shop = pa.table({"query": ["q", "q"], "doc": ["a", "b"], "stars": [3.0, 5.0]})
        >>> rerank(TrainedRanker("linear", ("stars",), {}, np.array([2.0])), shop, path)
        Reranked(documents=2, queries=1)
        >>> pq.read_table(path).to_pylist()[0]
        {'query': 'q', 'doc': 'b', 'score': 10.0, 'rank': 1}
    """
    import ibis

    from clickharvest.logs.engines import DuckDBEngine
    from clickharvest.logs.sources import open_source
    from clickharvest.words import spell_columns

    if query == doc:
        raise InputError(f"queries and documents are both in the column {doc!r}: name two (--query, --doc)")
    opened, engine = open_source(documents, engine, text={query, doc})
    name = str(documents) if isinstance(documents, str | Path) else "the table"
    keys = [column for column in (query, doc) if column in opened.columns]
    needed = [doc, *(ranker.columns or FeatureColumns(ranker.features)).columns]
    if missing := [column for column in needed if column not in opened.columns]:
        names = ", ".join(map(repr, missing[:5])) + (" …" if len(missing) > 5 else "")
        raise InputError(
            f"{name} lacks the column{'s' * (len(missing) > 1)} {names}: found {spell_columns(opened.columns)}"
        )
    if clash := [column for column in keys if column in ("score", "rank")]:
        raise InputError(f"{name} has keys in the column {clash[0]!r}, which the ranking has for its own: rename it")
    folder = temporary_folder()
    try:
        scored = folder / "scores.parquet"
        total = _write_scores(ranker, engine, opened.select(*dict.fromkeys([*keys, *needed])), keys, scored, name)
        sorter = engine if isinstance(engine, DuckDBEngine) else DuckDBEngine(progress=engine.progress)
        scores = sorter.backend.read_parquet(str(scored))
        by = [scores[column] for column in keys if column == query]
        order = [ibis.desc(scores.score), scores[doc]]
        rank = ibis.row_number().over(group_by=by, order_by=order) + 1
        ranked = scores.mutate(rank=rank)
        count = None
        if by:
            count = int(sorter.fetch(scores.aggregate(n=by[0].nunique()), task="Counting queries")["n"][0].as_py())
        metadata = {"what": "ranking", "learner": ranker.learner, "documents": total, "queries": count}
        with atomic_path(Path(path)) as partial:
            ordered = ranked.order_by([*(column for column in keys if column == query), "rank"])
            sorter.write_parquet(ordered, partial, metadata=metadata, task="Sorting")
    finally:
        remove_folder(folder)
    return Reranked(total, count)


def _write_scores(ranker: TrainedRanker, engine: Engine, table: Any, keys: list[str], path: Path, name: str) -> int:
    """Write keys and scores of all documents to a Parquet file, batch by batch, and return their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer, total = None, 0
    try:
        for batch in engine.stream(table, task="Scoring documents", rows=ROWS):
            try:
                score = ranker.score(batch, name)
            except InputError as error:
                raise InputError(_explain(error, batch, name)) from error
            columns = {key: batch[key] for key in keys} | {"score": pa.array(score)}
            part = pa.table(columns)
            writer = writer or pq.ParquetWriter(path, part.schema, compression="zstd")
            writer.write_table(part)
            total += part.num_rows
    finally:
        if writer is not None:
            writer.close()
    if not total:
        raise InputError(f"{name} has no rows: expected documents")
    return total


def _explain(error: InputError, batch: pa.RecordBatch, name: str) -> str:
    """Return why a ranker refuses documents, with the column if their values are the reason."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for column in batch.schema.names if str(error).startswith("features hold") else ():
        values = batch[column]
        if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values).fill_null(False)).as_py():
            what = "missing or infinite values, which this ranker does not take"
            return f"{name}, column {column!r} holds {what}: fill them in, or leave those documents out"
    return str(error)
