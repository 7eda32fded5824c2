"""Rankers learned from clicks where two arms show different documents, judged by the true grades of other queries.

    PYTHONPATH=src python3 benchmarks/rankers.py --jobs 16
    .venv/bin/python benchmarks/rankers.py --seeds 1 --corpora mq2008 --clicks 10000 --json some.json

`arms` has the logs: the shown rankers are of equal quality (fair), or the one with the larger share of the traffic is
weak. Contenders learn from the same clicks. Those of clickharvest know examination as it was simulated (true), as CPBM
or PBM estimate it from the log, or take clicks at face value. LightGBM and XGBoost by page learn from every page with a
click. `auto` is what `clickharvest rank --learner auto` does: it never sees a grade; where it says to keep an arm, that
arm counts.

Needs NumPy, SciPy, lazy_loader, threadpoolctl, LightGBM and XGBoost, no engine. Outcomes are kept in
`benchmarks/data/rankers.json`, and a run goes on where an earlier one ended; a run of all cells writes the table in
`benchmarks/tables`, and so does `--report`. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import arms
import numpy as np
from accuracy import machine, say
from arms import Array, Log, ndcg, simulate
from tables import write_table, write_whole

HERE = Path(__file__).resolve().parent
KEPT = HERE / "data" / "rankers.json"
SEEDS = 5
CORPORA, SHARES, CLICKS = ("synthetic", "mq2007_part", "mq2008"), (0.5, 0.9), (10_000, 100_000)
ARMS = {"fair": arms.FAIR, "weak A": arms.UNEQUAL}
ROUNDS, LEAVES = 40, 15
"""Trees of the libraries' own rankers, which have no clicks that are free of bias to stop early by."""
PROPENSITIES = ("true", "CPBM", "PBM", "face value")
BETTER, CONTEXT = "better arm", "LightGBM position × context"
AUTO, NAIVE = "auto, CPBM", "auto, face value"
RIVALS = (NAIVE, BETTER, CONTEXT)
CLOSE, SLOWER = 0.01, 3.0

Record = dict[str, Any]
Key = tuple[str, str, float, int, int]


def main() -> None:
    """Run what is missing, print the tables, and judge them."""
    options = parse_options()
    wanted = [
        (kind, corpus, share, clicks, seed)
        for seed in range(options.seeds)
        for kind in options.arms
        for clicks in sorted(options.clicks, reverse=True)
        for corpus in options.corpora
        for share in options.shares
    ]
    kept = read_outcomes(options.json)
    if not options.report:
        run([key for key in wanted if key not in kept], kept, options)
    found = {key: kept[key] for key in wanted if key in kept}
    text, missed = report(found)
    print(text)
    if options.json == KEPT and (options.report or set(wanted) >= set(full()) <= set(kept)):
        write_table("rankers", text)
    sys.exit(bool(missed))


def full() -> list[Key]:
    """Return all that the table needs."""
    return [(a, c, s, n, seed) for a in ARMS for c in CORPORA for s in SHARES for n in CLICKS for seed in range(SEEDS)]


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="logs of each cell")
    parser.add_argument("--corpora", type=lambda text: text.split(","), default=list(CORPORA), help="or LETOR paths")
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS), help="fair, weak A")
    parser.add_argument("--shares", type=numbers(float), default=list(SHARES), help="of ranker A in the traffic")
    parser.add_argument("--clicks", type=numbers(int), default=list(CLICKS), help="clicks of a log, about")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, default=KEPT, help="file to keep outcomes in, and to go on from")
    parser.add_argument("--report", action="store_true", help="run nothing, tell what the file holds")
    return parser.parse_args()


def numbers(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return a reader of numbers with commas between."""
    return lambda text: [kind(part) for part in text.split(",")]


def run(missing: list[Key], kept: dict[Key, Record], options: argparse.Namespace) -> None:
    """Measure the logs that are missing, and keep them as they come."""
    # Every process has one core.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    place = machine()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        work = {pool.submit(measure, *key): key for key in missing}
        for done, future in enumerate(as_completed(work), 1):
            key = work[future]
            kept[key] = {"found": future.result(), "machine": place}
            write_outcomes(options.json, kept)
            say(f"{done} of {len(work)}: {key[0]}, {key[1]}, {key[2]:.0%}, {key[3]:,} clicks, seed {key[4]}")


def measure(kind: str, corpus: str, share: float, clicks: int, seed: int) -> dict[str, list[Any]]:
    """Return nDCG@10 and seconds of every contender on one log, and what `auto` chose."""
    warnings.simplefilter("ignore")
    log = simulate(corpus_of(corpus, seed), share, clicks, seed, ARMS[kind])
    found: dict[str, list[Any]] = {}

    def timed(name: str, score: Callable[[], tuple[Any, str]]) -> None:
        began = time.perf_counter()
        scores, told = score()
        found[name] = [round(ndcg(scores, log.test), 4), round(time.perf_counter() - began, 1), told]

    x = log.test.features
    for name, weights in zip("AB", log.weights, strict=True):
        timed(f"arm {name}", lambda own=weights: (x @ own, ""))
    for name, learn in {**by_page(log, seed), **skylines(log, seed)}.items():
        timed(name, lambda own=learn: (own().predict(x), ""))
    timed("XGBoost lambdarank_unbiased", lambda: (xgboost_by_page(log, seed)(x), ""))
    for known in PROPENSITIES:
        began = time.perf_counter()
        examination = estimate(log, known)
        found[f"propensities, {known}"] = [None, round(time.perf_counter() - began, 1), ""]
        for name, learn in ours(log, examination, known, seed).items():
            timed(name, lambda own=learn: own(x))
    return found


def corpus_of(name: str, seed: int) -> Any:
    """Return a corpus by name or path."""
    from clickharvest.simulate import read_letor, synthetic_corpus

    sys.path.append(str(HERE.parent))
    from experiments.corpora import find_corpus

    if name == "synthetic":
        return synthetic_corpus(1_200, docs=(15, 30), features=60, seed=seed)
    return read_letor(find_corpus(name)[1] or name)


def estimate(log: Log, kind: str) -> Array:
    """Return the examination of every kind of query, device and position, as it is, or as a model sees it."""
    from clickharvest.estimation import CPBM, PBM

    truth = log.truth
    if kind in ("true", "face value"):
        return truth
    if kind == "PBM":
        curve = PBM(intervals=None).fit(log.interventions()).propensities_.predict().propensity
        return np.broadcast_to(curve.reshape(-1), truth.shape)
    model = CPBM(intervals=None).fit(log.interventions()).propensities_
    of_query, device = np.divmod(np.arange(truth.shape[0] * truth.shape[1]), truth.shape[1])
    found = model.predict({"kind": of_query.astype(str), "device": device.astype(str)}).propensity
    return np.asarray(found).reshape(truth.shape)


def by_page(log: Log, seed: int) -> dict[str, Callable[[], Any]]:
    """Return LightGBM's own ranker, on pages with a click."""
    import lightgbm as lgb

    page, column, rows, sizes = pages(log)
    context = log.kind[log.query[page]] * 2 + log.device[page]
    places = {
        "LightGBM lambdarank by page": None,
        "LightGBM position": column,
        CONTEXT: np.unique(context * log.clicks.shape[1] + column, return_inverse=True)[1],
    }
    settings = {"objective": "lambdarank", "num_leaves": LEAVES, "seed": seed, "verbosity": -1}

    def train(position: Any) -> Any:
        data = lgb.Dataset(
            log.corpus.features[rows], log.clicks[page, column].astype(int), group=sizes, position=position
        )
        return lgb.train(settings, data, ROUNDS)

    return {name: lambda own=own: train(own) for name, own in places.items()}


def xgboost_by_page(log: Log, seed: int) -> Callable[[Any], Any]:
    """Return the scores of XGBoost's unbiased ranker, which takes the place of a row in its page for its position."""
    import xgboost as xgb

    page, column, rows, sizes = pages(log)
    settings = {
        "objective": "rank:ndcg", "lambdarank_unbiased": True, "lambdarank_pair_method": "topk", "seed": seed,
        "lambdarank_num_pair_per_sample": 12, "max_leaves": LEAVES, "grow_policy": "lossguide", "max_depth": 0,
        "tree_method": "hist", "eta": 0.1,
    }  # fmt: skip
    data = xgb.DMatrix(log.corpus.features[rows], log.clicks[page, column].astype(int), group=sizes)
    model = xgb.train(settings, data, ROUNDS)
    return lambda x: model.predict(xgb.DMatrix(x))


def pages(log: Log) -> tuple[Any, Any, Any, Any]:
    """Return page, column and document of every result on a page with a click, and the sizes of these pages."""
    page, column = np.nonzero((log.shown >= 0) & log.clicks.any(axis=1)[:, None])
    sizes = np.bincount(page)
    return page, column, log.shown[page, column], sizes[sizes > 0]


def skylines(log: Log, seed: int) -> dict[str, Callable[[], Any]]:
    """Return LightGBM with our lambda loss on true grades: of the documents shown, and of all."""
    from clickharvest.rank import ranking_data, train_ranker

    shown, corpus = log.data(log.truth), log.corpus

    def train(features: Any, starts: Any, grades: Any) -> Any:
        gains = 2.0**grades - 1
        some = np.flatnonzero(gains)
        data = ranking_data(features, starts, some, clicks=gains[some])
        return train_ranker(data, "lightgbm", loss="lambda", clip=1.0, seed=seed)

    return {
        "skyline: grades of the documents shown": lambda: train(shown.features.matrix, shown.starts, log.grades()),
        "skyline: grades of all documents": lambda: train(corpus.features, corpus.starts, corpus.grades.astype(float)),
    }


def ours(log: Log, examination: Array, kind: str, seed: int) -> dict[str, Callable[[Any], tuple[Any, str]]]:
    """Return the candidates of `auto` with true propensities, and `auto`."""
    from clickharvest.rank import at_face_value, train_ranker
    from clickharvest.rank.choosing import CANDIDATES

    data = log.data(examination) if kind != "face value" else at_face_value(log.data(examination))

    def train(learner: str, loss: str) -> Callable[[Any], tuple[Any, str]]:
        return lambda x: (train_ranker(data, learner, loss=loss, seed=seed).predict(x), "")

    alone = CANDIDATES if kind == "true" else ()
    found = {f"{learner} {loss}, {kind}": train(learner, loss) for learner, loss in alone}
    return found | {f"auto, {kind}": lambda x: automatic(log, data, kind, seed, x)}


def automatic(log: Log, data: Any, kind: str, seed: int, x: Any) -> tuple[Any, str]:
    """Return the scores of what `auto` chooses, or of the arm that it says to keep."""
    from clickharvest.rank.choosing import choose_ranker

    choice = choose_ranker(data, ["linear", "svm", "lightgbm"], shown=log.arms(), seed=seed)
    if choice.keep_shown and kind != "face value":
        return x @ log.weights["AB".index(choice.shown or "A")], f"keep {choice.shown}"
    return choice.ranker.predict(x), choice.best


def report(kept: dict[Key, Record]) -> tuple[str, list[str]]:
    """Return the tables, and a sentence for every bar that is missed."""
    cells = sorted(dict.fromkeys(key[:4] for key in kept))
    names = list(dict.fromkeys(name for one in kept.values() for name in one["found"] if one["found"][name][0]))
    values = {cell: cell_values(cell, kept, names) for cell in cells}
    shown = [name for name in names if name.startswith("auto") or name.partition(", ")[2] in ("", "true")]
    order = [BETTER, *(name for name in shown if not name.startswith("arm"))]
    columns = sorted({cell[:3] for cell in cells})
    head = [f"{kind}<br>{corpus}<br>{share:.0%}" for kind, corpus, share in columns]
    lines = [
        f"| nDCG@10 | {' | '.join(head)} | mean | seconds |",
        f"|---|{'--:|' * (len(columns) + 2)}",
    ]
    for name in order:
        own = [np.mean([values[cell][name] for cell in cells if cell[:3] == column]) for column in columns]
        seconds = mean_seconds(kept, name)
        mark = "**" if name.startswith("auto") else ""
        told = " | ".join(f"{value:.3f}" for value in own)
        lines.append(f"| {mark}{name}{mark} | {told} | {np.mean(own):.3f} | {seconds:.1f} |")
    judged, missed = judge(values, mean_seconds(kept, AUTO) / mean_seconds(kept, CONTEXT))
    chosen: dict[str, int] = {}
    for one in kept.values():
        chosen[one["found"][AUTO][2]] = chosen.get(one["found"][AUTO][2], 0) + 1
    told = ", ".join(f"{name} × {times}" for name, times in sorted(chosen.items(), key=lambda pair: -pair[1]))
    logs = f"{len(kept)} logs, {len({key[4] for key in kept})} seeds of each cell. `{AUTO}` chose: {told}."
    places = "; ".join(sorted({one["machine"] for one in kept.values()}))
    return "\n".join([*lines, "", *judged, "", logs, "", f"{places}."]), missed


def mean_seconds(kept: dict[Key, Record], name: str) -> float:
    """Return the mean seconds of a contender; 0 where it has none."""
    return float(np.mean([one["found"][name][1] for one in kept.values() if name in one["found"]] or [0.0]))


def spell(cell: tuple[str, str, float, int]) -> str:
    """Return a cell in words."""
    return f"{cell[0]}, {cell[1]}, {cell[2]:.0%}, {cell[3]:,} clicks"


def cell_values(cell: tuple[str, str, float, int], kept: dict[Key, Record], names: Iterable[str]) -> dict[str, float]:
    """Return the mean of every contender over the logs of a cell."""
    own = [one["found"] for key, one in kept.items() if key[:4] == cell]
    found = {name: float(np.mean([one[name][0] for one in own if name in one])) for name in names}
    return found | {BETTER: float(np.mean([max(one["arm A"][0], one["arm B"][0]) for one in own]))}


def judge(values: dict[tuple[str, str, float, int], dict[str, float]], slower: float) -> tuple[list[str], list[str]]:
    """Return a sentence for every bar, and those that are missed."""
    lines: list[tuple[bool, str]] = []
    behind = {cell: own[AUTO] - max(own[name] for name in RIVALS) for cell, own in values.items()}
    worst = min(behind, key=lambda cell: behind[cell])
    told = f"to the best of {', '.join(RIVALS)}, worst cell ({spell(worst)}): {behind[worst]:+.3f} (bar −{CLOSE})"
    lines.append((behind[worst] >= -CLOSE, told))
    for kind in dict.fromkeys(cell[0] for cell in values):
        for name in RIVALS:
            lead = float(np.mean([own[AUTO] - own[name] for cell, own in values.items() if cell[0] == kind]))
            lines.append((lead > 0, f"minus {name}, arms {kind}, mean over cells: {lead:+.3f} (bar 0)"))
    gaps = {cell: own[AUTO] - own["auto, true"] for cell, own in values.items()}
    worst = min(gaps, key=lambda cell: gaps[cell])
    told = f"minus auto with true propensities, worst cell ({spell(worst)}): {gaps[worst]:+.3f} (bar −{CLOSE})"
    lines.append((gaps[worst] >= -CLOSE, told))
    lines.append((slower <= SLOWER, f"takes {slower:.1f} times the seconds of {CONTEXT} (bar {SLOWER:g})"))
    spoken = [f"- {'pass' if met else 'FAIL'}: `{AUTO}` {text}" for met, text in lines]
    return spoken, [line for line in spoken if line.startswith("- FAIL")]


def read_outcomes(path: Path) -> dict[Key, Record]:
    """Return the outcomes in a file; none where there is no file."""
    if not path.exists():
        return {}
    return {(*one.pop("key"),): one for one in json.loads(path.read_text())}


def write_outcomes(path: Path, kept: dict[Key, Record]) -> None:
    """Write outcomes to a file, whole or not at all, one line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"key": list(key)} | one) for key, one in sorted(kept.items())]
    write_whole(path, "[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
