"""The command `rank`: from a log, propensities and document features to a ranker, and what it is worth."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clickharvest.commands.bounds import SEED, between, whole
from clickharvest.commands.choices import choice, learner_names
from clickharvest.commands.inputs import refuse_overwriting
from clickharvest.commands.options import JsonFlag, LogOptions, OutputPath, with_options
from clickharvest.commands.output import tell
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.rank.endings import LEARNERS, LOSSES
from clickharvest.words import clean_text, count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities
    from clickharvest.rank.comparison import Comparison
    from clickharvest.rank.data import RankingData
    from clickharvest.rank.estimates import Estimate
    from clickharvest.rank.features import Array
    from clickharvest.rank.rankers import TrainedRanker
    from clickharvest.rank.tables import Clicks

RANKER = "The ranker"
LEAST, MOST = 1e-9, 1e9
"""Of costs and clips: beyond them, training would leave the range of numbers."""
BY_QUERY = ("ndcg@10", "map")
TEST_CLIP = 0.0
"""Least propensity of held-out clicks: none, as a clip would be a bias that no number of clicks takes away."""
DATA = ("train", "effective_clicks", "unsupported_clicks", "dropped_clicks")
"""What the ranker's file tells of its data."""
VERDICT = "dcg@10"
"""The metric that the verdict goes by."""


class MissingName(StrEnum):
    """What becomes of clicks on documents without features."""

    error = "error"
    drop = "drop"


@dataclass(frozen=True)
class RankOptions:
    """Where propensities come from, what learns, and how it is judged."""

    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="Model file, as fit writes it. Without it, LOG must have a column propensity, as weigh writes it.",
            rich_help_panel=RANKER,
            show_default=False,
        ),
    ] = None
    learner: Annotated[
        str,
        choice("--learner", learner_names, help="A linear model, Propensity SVM-Rank, or boosted trees.", panel=RANKER),
    ] = "svm"
    loss: Annotated[
        str | None,
        typer.Option(
            "--loss",
            metavar="LOSS",
            help="What is minimised. pairwise and lambda of trees divide clicks by propensities; softmax and poisson "
            "(trees, linear) know examination as an offset. The learner's first by default.",
            rich_help_panel=RANKER,
            show_default=False,
        ),
    ] = None
    clip: Annotated[
        str,
        typer.Option(
            "--clip",
            metavar="P",
            help="Least propensity to divide by. auto: by cross-validation (svm), or 1 / √clicks, whose bias vanishes "
            "as clicks grow in number.",
            rich_help_panel=RANKER,
        ),
    ] = "auto"
    cost: Annotated[
        str,
        typer.Option(
            "--C", metavar="C", help="Cost of errors of svm. auto: by cross-validation.", rich_help_panel=RANKER
        ),
    ] = "auto"
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            metavar="A,B,…",
            help="Columns of FEATURES to learn from; all but query and doc by default.",
            rich_help_panel=RANKER,
            show_default=False,
        ),
    ] = None
    missing: Annotated[
        MissingName,
        typer.Option(
            "--missing", help="Clicks on documents that are not in FEATURES: refuse or drop.", rich_help_panel=RANKER
        ),
    ] = MissingName.error
    test_share: Annotated[
        float,
        typer.Option(
            "--test-share",
            help="Share of the queries held out to judge.",
            rich_help_panel=RANKER,
            callback=between(0, 1, ends=False),
        ),
    ] = 0.2
    judgements: Annotated[
        str | None,
        typer.Option(
            "--judgements",
            metavar="FILE",
            help="Table of query, doc, grade: judge by known relevance too.",
            rich_help_panel=RANKER,
            show_default=False,
        ),
    ] = None
    level: Annotated[
        float,
        typer.Option(
            "--level", help="Level of the intervals.", rich_help_panel=RANKER, callback=between(0, 1, ends=False)
        ),
    ] = 0.95
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of all randomness.", rich_help_panel=RANKER, callback=whole(*SEED))
    ] = 0

    def check(self, output: Path | None) -> Path:
        """Return the file to write, if the options make sense and what they need is installed."""
        if output is None:
            raise InputError("nowhere to write the ranker: name a file with -o ranker.json")
        if output.suffix.lower() not in (".json", LEARNERS[self.learner]):
            raise InputError(f"a ranker is a .json file: -o {output} should end like that")
        if self.learner != "svm" and self.cost != "auto":
            raise InputError(f"--C {self.cost} goes with --learner svm: leave it out for {self.learner}")
        if self.loss is not None and self.loss not in LOSSES[self.learner]:
            raise InputError(f"--loss {self.loss}: {self.learner} has {', '.join(LOSSES[self.learner])}")
        if self.learner == "svm":
            require("threadpoolctl", "rank", "--learner svm")
        elif self.learner != "linear":
            require(self.learner, "boost", f"--learner {self.learner}")
        if self.judgements is not None:
            require("rax", "rank", "--judgements")
        return output

    @property
    def feature_names(self) -> list[str] | None:
        """The features named, None for all."""
        return None if self.features is None else [part.strip() for part in self.features.split(",") if part.strip()]


@with_options
def rank(
    log: LogOptions,
    documents: Annotated[
        str,
        typer.Argument(
            metavar="FEATURES",
            help="Table of the log's query and doc columns (or of doc alone) and features: numbers, text, maps.",
            show_default=False,
        ),
    ],
    ranker: RankOptions,
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a ranker from clicks with propensities, and judge it on held-out queries.

    Compares it by SNIPS with each ranker that LOG names (--ranker) as it was shown, and with a ranker that takes clicks
    at face value, on the documents that LOG showed for each query. Writes the ranker that was judged, with what it was
    trained on and how it was judged, to one JSON file: rerank uses it, export writes it for search engines.

    Examples:

      clickharvest rank clicks.parquet features.parquet --model model.safetensors -o ranker.json

      clickharvest rank weighted.parquet features.csv --learner lightgbm --clip 0.05 -o ranker.json
    """
    import numpy as np

    from clickharvest.rank.comparison import NAIVE, NEW, best_shown, compare_rankers, split_lists, take_lists
    from clickharvest.rank.data import at_face_value
    from clickharvest.rank.learners import train_ranker
    from clickharvest.rank.tables import read_clicks, read_grades

    target = ranker.check(output)
    clip, cost = (_number(text, name) for text, name in ((ranker.clip, "--clip"), (ranker.cost, "--C")))
    refuse_overwriting(target, [*log.sources, documents, ranker.model, ranker.judgements])
    opened, propensities = _open(log, ranker.model)
    clicks = read_clicks(opened, documents, propensities, features=ranker.feature_names, missing=ranker.missing.value)
    held = split_lists(clicks.data, ranker.test_share, seed=ranker.seed)
    train, test = take_lists(clicks.data, ~held), take_lists(clicks.data, held)
    documents_held = np.repeat(held, np.diff(clicks.data.starts))
    rankers: dict[str, TrainedRanker] = {}
    for name, part in ((NEW, train), (NAIVE, at_face_value(train))):
        with show_progress(f"Training, {name}"):
            rankers[name] = train_ranker(
                part,
                ranker.learner,
                loss=ranker.loss,
                names=clicks.features,
                C=cost,
                clip=clip,
                seed=ranker.seed,
                progress=show_progress,
            )
    scores: dict[str, Array] = {name: one.predict(test.features) for name, one in rankers.items()}
    arms = {f"{name}, as shown": shown.take(held, clicks.data.starts) for name, shown in clicks.arms.items()}
    found = compare_rankers(test, {**scores, **arms}, clip=TEST_CLIP, level=ranker.level, seed=ranker.seed)
    (deciding,) = (row for row in found if row.metric == VERDICT)
    best = best_shown(deciding, arms)
    judged = None
    if ranker.judgements is not None:
        served = np.all([shown.served for shown in arms.values()], axis=0)
        order = {name: np.nan_to_num(shown.gains(np.reciprocal, test.starts)) for name, shown in arms.items()}
        grades = read_grades(clicks, ranker.judgements)[documents_held]
        judged = _judge({**scores, **order}, grades, test, served, ranker.seed)
    told = {
        "file": str(target),
        "learner": ranker.learner,
        **rankers[NEW].settings,
        "features": len(clicks.features),
        "effective_clicks": clicks.effective,
        "unsupported_clicks": clicks.unsupported,
        "dropped_clicks": clicks.unknown,
        "train": _size(train),
        "test": _size(test),
        "estimates": [{"ranker": n, **asdict(e)} for c in found for n, e in c.estimates.items()],
        "differences": [{"to": n, **asdict(e)} for c in found for n, e in c.differences.items()],
        "best_shown": best,
        "verdict": _verdict(clean_text(best), deciding.differences[best]),
        "judged": judged,
    }
    _save(rankers[NEW], clicks, train, told, target)
    if as_json:
        tell(json.dumps(_finite(told), indent=2))
    else:
        _print(told, found, best, judged, ranker.level)


def _open(log: LogOptions, model: Path | None) -> tuple[ClickLog, Propensities | None]:
    """Return the log, read with the context columns of the model, and the model."""
    from clickharvest.model.propensities import load_propensities

    if model is None:
        return log.read(show_progress), None
    propensities = load_propensities(model)
    needed = () if propensities.encoder is None else propensities.encoder.columns
    return replace(log, context=[*dict.fromkeys([*log.context_columns, *needed])]).read(show_progress), propensities


def _save(ranker: TrainedRanker, clicks: Clicks, train: RankingData, told: Mapping[str, Any], target: Path) -> None:
    """Write the ranker with where it comes from; to LightGBM's own text where the file is called like that."""
    from clickharvest.model.provenance import record_provenance
    from clickharvest.rank.exports import export_ranker

    provenance = record_provenance(ranker.learner, ranker.settings).with_command(sys.argv[1:])
    judged = ("test", "estimates", "differences", "best_shown", "verdict", "judged")
    info = {
        "provenance": provenance.to_dict(),
        "data": {"sha256": train.fingerprint, **{name: told[name] for name in DATA if name in told}},
        "judged": {name: told[name] for name in judged if name in told},
    }
    whole = replace(ranker, columns=clicks.columns, info=info)
    if target.suffix.lower() == ".txt":
        export_ranker(whole, "lightgbm", target)
    else:
        whole.save(target)


def _judge(
    scores: Mapping[str, Array], grades: Array, test: RankingData, served: NDArray[np.bool_], seed: int
) -> dict[str, Any]:
    """Return the metrics of every ranker on the held-out queries with a relevant document that all arms served.

    `relevant_rank` is what the clicks estimate under this name, the mean rank of a relevant document; the others are
    means over queries.
    """
    import numpy as np

    from clickharvest.rank.estimates import ranks
    from clickharvest.rank.metrics import ranking_metrics

    relevant = grades >= 1
    some = served & (np.add.reduceat(relevant, test.starts[:-1]) > 0)
    if not some.any():
        raise InputError("no held-out query has a judged document of grade 1 or more: judge more queries")
    found = {}
    for name, own in scores.items():
        by_query = ranking_metrics(own, grades, test.starts, BY_QUERY, seed=seed)
        means = {metric: float(values[some].mean()) for metric, values in by_query.items()}
        counted = relevant & np.repeat(some, np.diff(test.starts))
        found[name] = {"relevant_rank": float(ranks(own, test.starts, seed=seed)[counted].mean()), **means}
    return {"queries": int(some.sum()), "rankers": found}


def _verdict(shown: str, gap: Estimate) -> str:
    """Return one sentence: does the ranker beat the best that was shown, by the metric of `VERDICT`?"""
    told = f"{VERDICT} {gap.value:+.3f}, from {gap.lower:+.3f} to {gap.upper:+.3f}"
    if gap.lower > 0:
        return f"The new ranker beats the best that was shown ({shown}) on held-out queries: {told}."
    if gap.upper < 0:
        return f"Keep the best that was shown ({shown}): the new ranker is worse on held-out queries, {told}."
    return f"Keep the best that was shown ({shown}), or test both: held-out clicks cannot tell them apart, {told}."


def _print(
    told: Mapping[str, Any],
    found: list[Comparison],
    best: str,
    judged: Mapping[str, Any] | None,
    level: float,
) -> None:
    from rich.table import Table

    from clickharvest.commands.terminal import screen
    from clickharvest.rank.comparison import NAIVE, NEW

    console = screen()
    chosen = ", ".join(f"{name} {told[name]:.4g}" for name in ("C", "clip", "penalty") if name in told)
    chosen = f"loss {told['loss']}{', ' * bool(chosen)}{chosen}"
    sizes = [
        f"{count(told[part]['queries'], 'query', 'queries')} ({count(told[part]['clicks'], 'click')})"
        for part in ("train", "test")
    ]
    console.print(f"Trained {told['learner']} with {count(told['features'], 'feature')} on {sizes[0]}: {chosen}.")
    console.print(_worth(told))
    console.print(f"Judged on {sizes[1]} held out, by SNIPS; {level:.0%} intervals:\n")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in (NEW, "minus best shown", f"minus {NAIVE}"):
        table.add_column(name, justify="right")
    for row in found:
        cells = (row.estimates[NEW], row.differences[best], row.differences[NAIVE])
        table.add_row(row.metric, *(_spell(cell, signed=i > 0) for i, cell in enumerate(cells)))
    console.print(table)
    console.print(
        "\nrelevant_rank is the mean rank of a relevant document: lower is better. Higher is better for the others."
    )
    console.print(f"\n{told['verdict']}")
    if judged is not None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(count(judged["queries"], "judged query", "judged queries"))
        for name in judged["rankers"]:
            table.add_column(name, justify="right")
        for metric in next(iter(judged["rankers"].values())):
            table.add_row(metric, *(f"{own[metric]:.4g}" for own in judged["rankers"].values()))
        console.print()
        console.print(table)
    console.print(f"\nSaved: {told['file']}")


def _worth(told: Mapping[str, Any]) -> str:
    """Return what the clicks are worth: their effective number, those without support, those without features."""
    total = told["train"]["clicks"] + told["test"]["clicks"]
    parts = [f"All clicks tell as much as {told['effective_clicks']:,.0f} of equal weight"]
    if (share := told["unsupported_clicks"]) is not None:
        parts.append(f"{share:.1%} are at positions or in contexts that the model has no estimate of its own for")
    if told["dropped_clicks"]:
        whole = total + told["dropped_clicks"]
        parts.append(f"{told['dropped_clicks'] / whole:.1%} were dropped, on documents without features")
    return f"{'; '.join(parts)}."


def _spell(estimate: Estimate, *, signed: bool) -> str:
    reach = estimate.upper - estimate.value
    return f"{estimate.value:{'+.3f' if signed else '.3f'}} ± {reach:.3f}"


def _size(data: RankingData) -> dict[str, int]:
    return {"queries": data.n_queries, "clicks": round(data.clicks.sum())}


def _number(text: str, option: str) -> float | None:
    if text == "auto":
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not LEAST <= number <= MOST:
        raise InputError(f"{option} {clean_text(text)}: expected a number from {LEAST:g} to {MOST:g}, or auto")
    return number


def _finite(value: Any) -> Any:
    """Return a value with null for what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list) else value
