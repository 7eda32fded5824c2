"""The command `judgments`: from a log and a model to the relevance of every query and document."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from clickharvest.commands.inputs import refuse_overwriting, require_output
from clickharvest.commands.options import (
    JsonFlag,
    LevelOption,
    LogOptions,
    ModelPath,
    OutputPath,
    TrustName,
    TrustOption,
    option,
)
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.weigh import context_of, place_of
from clickharvest.errors import InputError

JUDGED = "The judgments"


class FormatName(StrEnum):
    """What judgments can be written as."""

    table = "table"
    quepid = "quepid"
    qrels = "qrels"
    opensearch = "opensearch"


class ScaleName(StrEnum):
    """What cut-offs are multiples of."""

    query = "query"
    corpus = "corpus"
    rate = "rate"


class RatingName(StrEnum):
    """What tools get as their rating."""

    grade = "grade"
    relevance = "relevance"


_judging = partial(option, panel=JUDGED)


@dataclass(frozen=True)
class JudgingOptions:
    """How judgments are graded and written."""

    to: FormatName | None = _judging(
        "What to write: every column (CSV or Parquet), ratings for Quepid, TREC's qrels, or JSON for OpenSearch's "
        "Search Relevance Workbench; by default by the ending of FILE."
    )
    rating: RatingName = _judging("What Quepid and OpenSearch get as rating.", default=RatingName.grade, rare=True)
    cutoffs: str = _judging("Least relevance of the grades 1, 2, 3.", "A,B,C", "0.5,1,2")
    scale: ScaleName = _judging(
        "What cut-offs are multiples of: mean relevance of the query's documents, of all, or 'rate': they are rates of "
        "clicks at the anchor.",
        default=ScaleName.query,
    )
    keep_unsure: bool = _judging("Grade documents by their relevance where clicks are too few.", default=False)
    name: str = _judging("Name of the judgments in OpenSearch.", default="clickharvest", rare=True)

    @property
    def least(self) -> list[float]:
        """The cut-offs, read."""
        try:
            return [float(part) for part in self.cutoffs.split(",")]
        except ValueError:
            raise InputError(f"--cutoffs {self.cutoffs}: expected numbers that ascend, such as 0.5,1,2") from None


def judgments(
    log: LogOptions,
    model: ModelPath,
    judging: JudgingOptions,
    trust: TrustOption = TrustName.checked,
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
    from clickharvest.commands.terminal import screen
    from clickharvest.judging import judge, write_judgments
    from clickharvest.judging.writing import check_format

    output = require_output(output, "the judgments", "judgments.csv")
    refuse_overwriting(output, [*log.sources, model])
    asked: dict[str, Any] = {"format": judging.to and judging.to.value, "rating": judging.rating.value}
    check_format(output, **asked)
    propensities = load_weighing_model(model)
    log = replace(log, context=context_of(log, propensities), place=place_of(log, propensities))
    clicks = log.read(show_progress)
    found = judge(
        clicks,
        propensities,
        level=level,
        cutoffs=judging.least,
        scale=judging.scale.value,
        keep_unsure=judging.keep_unsure,
        trust=trust.value,
    )
    written = write_judgments(found, output, name=judging.name, **asked)
    if as_json:
        tell(json.dumps({"file": str(output), "format": written, **found.to_dict()}))
    else:
        screen().print(f"{found}\nSaved: {output} ({written})")
