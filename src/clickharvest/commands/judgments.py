"""The command `judgments`: from a log and a model to the relevance of every query and document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from clickharvest.commands.declaring import option, parse_numbers
from clickharvest.commands.options import JsonFlag, LevelOption, LogOptions, ModelPath, OutputPath, TrustOption
from clickharvest.commands.output import place_to_write, tell_json

_judging = partial(option, panel="The judgments")


@dataclass(frozen=True)
class JudgingOptions:
    """How judgments are graded and written."""

    to: str | None = _judging(
        "What to write: every column (CSV or Parquet), ratings for Quepid, TREC's qrels, or JSON for OpenSearch's "
        "Search Relevance Workbench; by default by the ending of FILE.",
        names=["table", "quepid", "qrels", "opensearch"],
    )
    rating: str = _judging(
        "What Quepid and OpenSearch get as rating.", default="grade", rare=True, names=["grade", "relevance"]
    )
    cutoffs: str = _judging("Least relevance of the grades 1, 2, 3.", "A,B,C", "0.5,1,2")
    scale: str = _judging(
        "What cut-offs are multiples of: mean relevance of the query's documents, of all, or 'rate': they are rates of "
        "clicks at the anchor.",
        default="query", names=["query", "corpus", "rate"],
    )  # fmt: skip
    keep_unsure: bool = _judging("Grade documents by their relevance where clicks are too few.", default=False)
    name: str = _judging("Name of the judgments in OpenSearch.", default="clickharvest", rare=True)


def judgments(
    log: LogOptions,
    model: ModelPath,
    judging: JudgingOptions,
    trust: TrustOption = "checked",
    output: OutputPath = None,
    level: LevelOption = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Judge the relevance of every query and document by its clicks.

    Clicks are divided by examination. Writes query, doc, relevance (the rate of clicks at the model's anchor) with its
    interval, grade, clicks, impressions and effective impressions; or just ratings, as Quepid, TREC's tools or
    OpenSearch read them. Where clicks do not tell the grade it is empty, and ratings leave the document out.

    Examples:

      clickharvest judgments clicks.parquet model.safetensors -o judgments.csv

      clickharvest judgments clicks.parquet model.safetensors --to quepid -o ratings.csv
    """
    from clickharvest.commands.rank import load_weighing_model
    from clickharvest.commands.tables import screen
    from clickharvest.judging import judge, write_judgments
    from clickharvest.judging.writing import check_format

    output = place_to_write(output, "the judgments", "judgments.csv", [*log.sources, model], endings=())
    writing: dict[str, Any] = {"format": judging.to, "rating": judging.rating}
    check_format(output, **writing)
    cutoffs = parse_numbers(judging.cutoffs, "--cutoffs", "numbers that ascend, such as 0.5,1,2")
    grading: dict[str, Any] = {"cutoffs": cutoffs, "scale": judging.scale, "keep_unsure": judging.keep_unsure}
    fitted = load_weighing_model(model)
    clicks = log.with_columns_of(fitted).read()
    judged = judge(clicks, fitted, level=level, trust=trust, **grading)  # type: ignore[arg-type]
    format = write_judgments(judged, output, name=judging.name, **writing)
    if as_json:
        tell_json({"file": str(output), "format": format, **judged.to_dict()})
    else:
        screen().print(f"{judged}\nSaved: {output} ({format})")
