"""The command `export`: a ranker as the file that a search engine loads."""

from __future__ import annotations

from typing import Annotated

from clickharvest.commands.declaring import option, registered
from clickharvest.commands.options import OutputPath, RankerPath
from clickharvest.commands.output import place_to_write, tell
from clickharvest.words import count


def export(
    ranker: RankerPath,
    to: Annotated[str, option("What loads the file.", names=registered("rank.exports", "EXPORTS"))],
    name: Annotated[str, option("Name of the model in the engine.", "NAME")] = "ranker",
    output: OutputPath = None,
) -> None:
    """Write a ranker for a search engine: scores there are those of rerank.

    Linear rankers go to elasticsearch, opensearch, solr and onnx; trees of lightgbm and xgboost to these and to vespa.
    lightgbm and xgboost are the libraries' own files. The engine must compute the features under their names.

    Examples:

      clickharvest export ranker.json --to solr --name shop -o model.json

      clickharvest export ranker.json --to onnx -o ranker.onnx
    """
    from clickharvest.rank.exports import export_ranker
    from clickharvest.rank.rankers import load_ranker

    example = f"model{'.onnx' if to == 'onnx' else '.json'}"
    output = place_to_write(output, "the model", example, [ranker], endings=())
    loaded = load_ranker(ranker)
    export_ranker(loaded, to, output, name=name)
    tell(f"Wrote a model for {to} with {count(len(loaded.features), 'feature')}: {output}")
