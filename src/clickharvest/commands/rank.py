"""The command `rank`: from a log, propensities and document features to a ranker, and what it is worth."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.declaring import SEED, argument, between, option, split_list
from clickharvest.commands.options import JsonFlag, LogOptions, OutputPath, TrustOption
from clickharvest.commands.output import place_to_write, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.commands.text import VERDICT, verdict
from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.rank.learners import LEARNERS
from clickharvest.words import clean_text, json_value

if TYPE_CHECKING:
    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities
    from clickharvest.rank.data import RankingData
    from clickharvest.rank.rankers import TrainedRanker
    from clickharvest.rank.tables import Clicks

AUTO = "auto"
LEAST, MOST = 1e-9, 1e9
"""Of costs and clips: beyond them, training would leave the range of numbers."""
TEST_CLIP = 0.0
"""Least propensity of held-out clicks: none, as a clip would be a bias that no number of clicks takes away."""
DATA = ("train", "effective_clicks", "unsupported_clicks", "dropped_clicks")
"""The numbers on its data that a ranker's file keeps."""


_ranker = partial(option, panel="The ranker")


@dataclass(frozen=True)
class RankOptions:
    """Where propensities come from, what learns, and how it is judged."""

    model: Path | None = _ranker(
        "Model file, as fit writes it. Without it, LOG must have a column propensity, as weigh writes it.", "MODEL"
    )
    learner: str = _ranker(
        "A linear model, Propensity SVM-Rank, or boosted trees; auto tries all and their blend, and chooses by clicks "
        "on queries not trained on.",
        default="svm", names=[*LEARNERS, AUTO],
    )  # fmt: skip
    loss: str | None = _ranker(
        "What is minimised. pairwise and lambda of trees divide clicks by propensities; softmax and poisson (trees, "
        "linear) know examination as an offset. The learner's first by default.",
        "LOSS", rare=True,
    )  # fmt: skip
    clip: str = _ranker(
        "Least propensity to divide by. auto: by cross-validation (svm), or 1 / √clicks.",
        "P", "auto",
    )  # fmt: skip
    cost: str = _ranker("Cost of errors of svm. auto: by cross-validation.", "C", "auto", flags=("--C",), rare=True)
    features: str | None = _ranker("Columns of FEATURES to learn from (default: all).", "A,B,…")
    missing: str = _ranker(
        "Clicks on documents that are not in FEATURES: refuse or drop.", default="error", rare=True,
        names=["error", "drop"],
    )  # fmt: skip
    lists: str = _ranker(
        "Documents that compete: those of a query, or those of a page; auto takes pages where results change from page "
        "to page, or FEATURES has the log's page column.",
        default=AUTO, rare=True, names=[AUTO, "query", "page"],
    )  # fmt: skip
    candidates: str = _ranker(
        "Documents that the rankers order: those that LOG shows, or all that FEATURES has for the query or page.",
        default="shown", rare=True, names=["shown", "all"],
    )  # fmt: skip
    test_share: float = _ranker(
        "Share of the queries held out to judge.", default=0.2, rare=True, check=between(0, 1, ends=False)
    )
    judgements: str | None = _ranker("Table of query, doc, grade: judge by these too.", "FILE")
    level: float = _ranker("Level of the intervals.", default=0.95, rare=True, check=between(0, 1, ends=False))
    seed: int = _ranker("Seed of all randomness.", default=0, rare=True, check=SEED)

    def check(self) -> None:
        """Refuse options that make no sense together, or whose packages are not installed."""
        if self.learner == AUTO and not self.cost == self.clip == "auto":
            raise InputError("--learner auto chooses the clip, and C goes with --learner svm: leave out --clip and --C")
        if self.learner != "svm" and self.cost != "auto":
            raise InputError(f"--C {self.cost} goes with --learner svm: leave it out for {self.learner}")
        if self.loss is not None and self.learner == AUTO:
            raise InputError(f"--learner auto chooses the loss: leave out --loss {clean_text(self.loss)}, or name one")
        if self.loss is not None and self.loss not in LEARNERS[self.learner].losses:
            raise InputError(f"--loss {self.loss}: {self.learner} has {', '.join(LEARNERS[self.learner].losses)}")
        if self.learner != AUTO and (library := LEARNERS[self.learner].library) is not None:
            require(library, "boost", f"--learner {self.learner}")


def rank(
    log: LogOptions,
    documents: Annotated[
        str,
        argument(
            "Table of the log's query and doc columns (or of doc alone) and features: numbers, text, maps.", "FEATURES"
        ),
    ],
    ranker: RankOptions,
    trust: TrustOption = "checked",
    output: OutputPath = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a ranker from clicks with propensities, and judge it on held-out queries.

    Compares it by SNIPS with each ranker that LOG names (--ranker) as it was shown, and with the same ranker trained on
    clicks at face value, on the documents that LOG showed for each query, or on each page where they change. Writes
    the ranker that was judged, with what it was trained on and how it was judged, to one JSON file: rerank uses it,
    export writes it for search engines.

    Examples:

      clickharvest rank clicks.parquet features.parquet --model model.safetensors -o ranker.json

      clickharvest rank weighted.parquet features.csv --learner lightgbm --clip 0.05 -o ranker.json

      clickharvest rank weighted.parquet features.csv --learner auto -o ranker.json
    """
    import numpy as np

    from clickharvest.commands.tables import print_ranker
    from clickharvest.rank.comparison import best_shown, compare_rankers
    from clickharvest.rank.tables import read_clicks, read_grades
    from clickharvest.rank.trials import hold_out, try_learners

    sources = [*log.sources, documents, ranker.model, ranker.judgements]
    endings = [".json", ".txt"] if ranker.learner == "lightgbm" else [".json"]
    output = place_to_write(output, "the ranker", "ranker.json", sources, endings)
    ranker.check()
    clip, cost = (_number(text, name) for text, name in ((ranker.clip, "--clip"), (ranker.cost, "--C")))
    opened, propensities = open_log(log, ranker.model)
    reading: dict[str, Any] = {"missing": ranker.missing, "lists": ranker.lists, "candidates": ranker.candidates}
    features = None if ranker.features is None else list(split_list([ranker.features]))
    clicks = read_clicks(opened, documents, propensities, features=features, trust=trust, **reading)  # type: ignore[arg-type]
    running: dict[str, Any] = {"seed": ranker.seed, "progress": show_progress}
    if ranker.learner == AUTO:
        trial = try_learners(clicks, metric=VERDICT, level=ranker.level, **running)
    else:
        trial = hold_out(
            clicks, ranker.learner, share=ranker.test_share, loss=ranker.loss, C=cost, clip=clip, **running
        )
    rankings: dict[str, Any] = {**trial.scores, **trial.arms}
    comparisons = compare_rankers(trial.test, rankings, clip=TEST_CLIP, level=ranker.level, seed=ranker.seed)
    (deciding,) = (row for row in comparisons if row.metric == VERDICT)
    best = best_shown(deciding, trial.arms)
    judged = None
    if ranker.judgements is not None:
        of_test = np.repeat(trial.held_out, np.diff(clicks.data.starts))
        judged = trial.judge(read_grades(clicks, ranker.judgements)[of_test], seed=ranker.seed)
    answer = {
        "file": str(output),
        "learner": ranker.learner,
        **trial.ranker.settings,
        "features": len(clicks.features),
        "effective_clicks": clicks.effective,
        "unsupported_clicks": clicks.unsupported,
        "dropped_clicks": clicks.unknown,
        "train": _size(trial.train),
        "test": _size(trial.test),
        "corrected": clicks.data.shift is not None,
        "lists": clicks.lists,
        "trust": trust,
        "tried": trial.tried,
        "estimates": [{"ranker": name, **asdict(one)} for row in comparisons for name, one in row.estimates.items()],
        "differences": [{"to": name, **asdict(one)} for row in comparisons for name, one in row.differences.items()],
        "best_shown": best,
        "verdict": verdict(best, deciding, clicks),
        "judged": judged,
    }
    _save(trial.ranker, clicks, trial.train, answer, output)
    if as_json:
        tell_json(json_value(answer))
    else:
        print_ranker(answer, comparisons, best, ranker.level)


def open_log(log: LogOptions, model: Path | None) -> tuple[ClickLog, Propensities | AnyAffine | None]:
    """Return the log, read with the context columns of the model, and the model, of examination or affine.

    Raises:
        InputError: it is another click model, or its propensities are those of places.
    """
    if log.place_columns:
        raise InputError("rankers are judged by lists, and places make none: weigh the log, train on its weights")
    if model is None:
        return log.read(), None
    fitted = load_weighing_model(model)
    if getattr(fitted, "places", None) is not None:
        raise InputError(f"{model} speaks of places, and rankers are judged by lists: weigh the log, and train on it")
    return log.with_columns_of(fitted, and_others=True).read(), fitted


def load_weighing_model(path: Path) -> Propensities | AnyAffine:
    """Read a model that says what a click is worth by its position and context alone.

    Raises:
        InputError: it is one of what comes of a click, or needs to know what was clicked above.
    """
    from clickharvest.click_models.base import load_model
    from clickharvest.click_models.registry import CLICK_MODELS
    from clickharvest.model.cautions import require_examination

    fitted: Any = load_model(path)
    if CLICK_MODELS[fitted.kind].needs_page:
        raise InputError(
            f"{path} is a model of {fitted.kind}, which weighs a click by what was clicked above it: weigh the log "
            "first (clickharvest weigh LOG MODEL -o weighted.parquet); rank and labels take the weighed log alone"
        )
    require_examination(fitted)
    return fitted  # type: ignore[no-any-return]


def _save(ranker: TrainedRanker, clicks: Clicks, train: RankingData, answer: Mapping[str, Any], target: Path) -> None:
    """Write the ranker with where it comes from; to LightGBM's own text where the file is called like that."""
    from clickharvest.model.provenance import record_provenance
    from clickharvest.rank.exports import export_ranker

    provenance = record_provenance(ranker.learner, ranker.settings).with_command(sys.argv[1:])
    judged = ("test", "estimates", "differences", "best_shown", "verdict", "judged")
    info = {
        "provenance": provenance.to_dict(),
        "data": {"sha256": train.fingerprint, **{name: answer[name] for name in DATA if name in answer}},
        "judged": {name: answer[name] for name in judged if name in answer},
    }
    whole = replace(ranker, columns=clicks.columns, info=info)
    if target.suffix.lower() == ".txt":
        export_ranker(whole, "lightgbm", target)
    else:
        whole.save(target)


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
