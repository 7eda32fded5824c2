"""The command `export`: a ranker as the file that a search engine loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clickharvest.commands.choices import choice, export_names
from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import OutputPath
from clickharvest.commands.output import tell
from clickharvest.errors import InputError
from clickharvest.words import count


def export(
    ranker: Annotated[
        Path, typer.Argument(metavar="RANKER", help="Ranker file, as rank writes it.", show_default=False)
    ],
    to: Annotated[str, choice("--to", export_names, help="What loads the file.", show_default=False)],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the model in the engine.")] = "ranker",
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

    if output is None:
        raise InputError(f"nowhere to write the model: name a file with -o model{'.onnx' if to == 'onnx' else '.json'}")
    refuse_overwriting(output, [ranker])
    loaded = load_ranker(ranker)
    export_ranker(loaded, to, output, name=name)
    tell(f"Wrote a model for {to} with {count(len(loaded.features), 'feature')}: {output}")
