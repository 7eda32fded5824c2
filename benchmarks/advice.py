"""Is the advice of `rank` right? "Better" and "Worse" where the truth is known, or where other pages tell.

    .venv/bin/python benchmarks/advice.py --jobs 2            # all worlds; writes the table

- The worlds of `judged_worlds`: sound logs and logs that mislead. Documents have two features, their relevance with a
  little, some or much noise, so that a ranker that learns from clicks is better than what was shown, like it, or worse.
  The truth is the relevance of the results, on the queries of the log.
- Documents in stock: what a query can show changes from page to page.
- Arms of equal quality on corpora of graded documents, as in `rankers`: "on new queries" asks queries that no ranker
  was trained on.
- Expedia, trivago and Yandex: advice on a third of the pages, with what another third says of documents as features;
  judged on the last third, weighted by a power of k that Expedia's random pages show, for the others by a curve fitted
  on all pages.

Every case trains `--learner auto` and asks for the verdict by dcg@10. The bar: "Better" is right in 95 % of the cases
in which it is said. Real logs and corpora are those of `../shared/data`, and left out where it is absent.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arms
import judged_worlds
import many_logs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import rankers
from budget_worlds import K, Pages, make
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from clickharvest import CPBM, PBM, Propensities, harvest, read_log
from clickharvest.checks import check_fit, read_displays
from clickharvest.commands.text import VERDICT, verdict
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs import ClickLog
from clickharvest.model.curves import make_curve
from clickharvest.rank import off_policy, read_clicks
from clickharvest.rank.choosing import choose_ranker, installed_learners
from clickharvest.rank.comparison import NAIVE, NEW, best_shown, compare_rankers
from clickharvest.simulate import read_letor, synthetic_corpus

Array = NDArray[Any]
Case = dict[str, Any]
"""The verdict's first word, and by how much the ranker is better in truth: `log`, and `new` queries if known."""
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
NOISES = (0.3, 1.0, 3.0)
BAR = 0.95
WORLDS = {name: make_ for name, make_ in (judged_worlds.SOUND | judged_worlds.BIASED).items() if "million" not in name}
CORPORA = ("synthetic", "mq2007_part", "mq2008")
REAL = {"Expedia": "expedia_pieces", "trivago": "trivago_clickouts", "Yandex": "yandex_sessions"}
LOGS = {
    **dict.fromkeys(WORLDS, 1),
    "documents in stock": 6,
    **{f"arms, {name}": 4 for name in CORPORA if name == "synthetic" or (DATA / f"{name}.txt.gz").exists()},
    **{name: 4 for name, file in REAL.items() if (DATA / f"{file}.parquet").exists()},
}


def measure(world: str, seed: int) -> list[Case]:
    """Return the cases of one log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if world in REAL:
            return list(real_cases(world, seed))
        if world.startswith("arms, "):
            return [arms_case(world.removeprefix("arms, "), seed)]
        pages = in_stock(seed) if world == "documents in stock" else WORLDS[world](seed)
        return list(simulated_cases(pages))


def fitted(log: ClickLog) -> Propensities:
    """Return a model with its budget, as `fit` writes it."""
    model = (CPBM() if log.context else PBM()).fit(harvest(log)).propensities_
    return replace(model, info=dict(model.info) | check_fit(read_displays(log), model).info())


def advise(log: ClickLog, documents: pa.Table, model: Propensities, seed: int) -> tuple[Any, Any, str]:
    """Return what `rank --learner auto` does: the clicks, the ranker and the verdict."""
    clicks = read_clicks(log, documents, model)
    return clicks, *choose(clicks.data, clicks.arms, clicks, seed)


def choose(data: Any, shown: Any, clicks: Any, seed: int) -> tuple[Any, str]:
    """Return the ranker that is chosen, and the verdict."""
    choice = choose_ranker(data, installed_learners(), shown=shown, seed=seed)
    scores = {NEW: choice.scores[choice.best], NAIVE: choice.naive, **shown}
    (row,) = compare_rankers(data, scores, metrics=(VERDICT,), seed=seed)
    return choice.ranker, verdict(best_shown(row, shown), row, clicks).partition(":")[0]


def gain(rank: Array, shown: int) -> Array:
    """Return what a rank is worth on pages of so many results, by dcg@10."""
    return np.where(rank <= min(shown, K), 1 / np.log2(1 + rank), 0.0)


def simulated_cases(pages: Pages) -> Iterator[Case]:
    """Yield a case for every noise of the features."""
    relevance = pages.relevance.ravel()
    docs, wide = pages.relevance.shape[1], pages.shown.shape[1]
    log = read_log(pa.table(pages.table()), context=list(pages.context))
    try:
        model = fitted(log)
    except (InputError, NotIdentifiedError) as refusal:
        yield {"word": "refused", "why": str(refusal)}
        return
    spread = float(np.std(np.log(relevance)))
    for seed, noise in enumerate(NOISES):
        random = np.random.default_rng(seed)
        own = np.log(relevance)[:, None] + noise * spread * random.normal(size=(len(relevance), 2))
        documents = pa.table({"doc": np.arange(len(relevance)), "a": own[:, 0], "b": own[:, 1]})
        clicks, ranker, word = advise(log, documents, model, seed)
        score = ranker.predict(own)
        here = np.full(len(relevance), -np.inf)
        if clicks.lists == "query":
            here[np.unique(pages.shown)] = score[np.unique(pages.shown)]
            rank = np.argsort(np.argsort(-here.reshape(-1, docs), axis=1), axis=1).ravel() + 1
            new = (relevance * gain(rank, wide)).reshape(-1, docs).sum(axis=1)[pages.query]
        else:
            rank = np.argsort(np.argsort(-score[pages.shown], axis=1), axis=1) + 1
            new = (relevance[pages.shown] * gain(rank, wide)).sum(axis=1)
        old = (relevance[pages.shown] * gain(np.arange(1, wide + 1), wide)).sum(axis=1)
        lead = np.bincount(pages.ranker, new - old) / np.bincount(pages.ranker)
        yield {"word": word, "log": float(lead.min())}


def in_stock(seed: int) -> Pages:
    """Return pages whose documents are those in stock: a third of a query's."""
    pages = make(seed + 100, 40_000, queries=300, noise=0.15, wide=30)
    there = pages.random.random(pages.shown.shape) < 0.35
    order = np.argsort(~there, axis=1, kind="stable")[:, :8]
    pages.shown, pages.appeal = (np.take_along_axis(one, order, axis=1) for one in (pages.shown, pages.appeal))
    pages.examined, pages.truth = pages.examined[:, :8], pages.truth[:, :8]
    return pages.draw()


def arms_case(name: str, seed: int) -> Case:
    """Return the case of two rankers of equal quality, which share the traffic of a corpus."""
    corpus = synthetic_corpus(1_200, docs=(15, 30), features=60, seed=seed + 50)
    if name != "synthetic":
        corpus = read_letor(DATA / f"{name}.txt.gz")
    clicks, share = ((10_000, 0.5), (30_000, 0.9), (100_000, 0.5), (10_000, 0.9))[seed % 4]
    log = arms.simulate(corpus, share, clicks, seed + 50, arms.FAIR)
    data = log.data(rankers.estimate(log, "CPBM"))
    ranker, word = choose(data, log.arms(), SimpleNamespace(lists="query", steady=1.0, reason=""), seed)
    best = {side: max(arms.ndcg(own.features @ w, own) for w in log.weights) for side, own in log.sides().items()}
    lead = {side: arms.ndcg(ranker.predict(own.features), own) - best[side] for side, own in log.sides().items()}
    return {"word": word, **lead}


def real_cases(name: str, seed: int) -> Iterator[Case]:
    """Yield a case for every set of features, of a log that is divided by its pages at random."""
    table = pq.read_table(DATA / f"{REAL[name]}.parquet")
    page = "session" if name == "Yandex" else "page"
    code = np.asarray(table[page].combine_chunks().dictionary_encode().indices)
    third = np.random.default_rng(seed).integers(3, size=code.max() + 1)[code]
    past, own, other = (table.filter(pa.array(third == part)) for part in range(3))
    log, later = (read_log(part, page=page) for part in (own, other))
    model = fitted(log)
    documents = features(past, own, other, seed)
    for columns in (["rate"], ["rate", "place", "luck"], ["luck"], ["place"]):
        by_query = documents.select(["query", "doc", *columns])
        clicks, ranker, word = advise(log, by_query, model, seed)
        truth = examination(name, table, page)
        judge = read_clicks(later, by_query, truth, lists=clicks.lists)
        lead = [
            off_policy(judge.data, ranker.predict(judge.data.features), VERDICT, baseline=shown).value
            for shown in judge.arms.values()
        ]
        yield {"word": word, "log": min(lead)}


def features(past: pa.Table, own: pa.Table, other: pa.Table, seed: int) -> pa.Table:
    """Return what the past says of all documents: smoothed click rate, mean place, and nothing."""
    whole = pa.concat_tables([past, own, other]).group_by(["query", "doc"]).aggregate([])
    told = past.append_column("one", pa.array(np.ones(past.num_rows))).group_by(["query", "doc"])
    told = told.aggregate([("click", "sum"), ("one", "sum"), ("position", "mean")])
    joined = whole.join(told, ["query", "doc"], join_type="left outer").sort_by(
        [("query", "ascending"), ("doc", "ascending")]
    )
    clicks, n = (np.asarray(pc.fill_null(joined[f"{column}_sum"], 0)).astype(float) for column in ("click", "one"))
    mean = clicks.sum() / n.sum()
    place = np.asarray(pc.fill_null(joined["position_mean"], float(np.asarray(past["position"]).mean())))
    columns = {"rate": np.log((clicks + 10 * mean) / (n + 10)), "place": -place}
    columns["luck"] = np.random.default_rng(seed).normal(size=joined.num_rows)
    return pa.table({"query": joined["query"], "doc": joined["doc"], **columns})


def examination(name: str, table: pa.Table, page: str) -> Propensities:
    """Return the curve that judges a real log."""
    if name != "Expedia":
        return PBM(intervals=None).fit(harvest(read_log(table, page=page))).propensities_
    positions = tuple(range(1, int(pc.max(table["position"]).as_py()) + 1))
    curve = make_curve("constant", positions, 1, 0)
    power = random_power(table.filter(pc.equal(table["ranker"], "random")))
    return Propensities(curve, {"b": -power * np.log(positions[1:])}, None, shown=positions)


def random_power(table: pa.Table) -> float:
    """Return the power of k of clicks on pages in random order with a booking, as shares of the clicks of a page."""
    page = np.asarray(table["page"].combine_chunks().dictionary_encode().indices)
    booked = np.bincount(page, np.asarray(table["booked"]).astype(float))[page] > 0
    k, click, page = (np.asarray(column)[booked] for column in (table["position"], table["click"], page))
    total = np.bincount(page, click)

    def surprise(power: float) -> float:
        weight = k**-power
        return float(total @ np.log(np.maximum(np.bincount(page, weight), 1e-300)) + click @ (power * np.log(k)))

    return float(minimize_scalar(surprise, bounds=(0.0, 3.0), method="bounded").x)


def table(kept: many_logs.Kept) -> tuple[list[str], list[str]]:
    """Return the lines of the table and a sentence for every bar."""
    lines = ["| worlds | cases | Better | right | Worse | right | No verdict | better in truth |", f"|---|{'--:|' * 7}"]
    groups = {
        "sound logs": [name for name in WORLDS if name in judged_worlds.SOUND],
        "logs that mislead": [name for name in WORLDS if name in judged_worlds.BIASED],
        **{name: [name] for name in LOGS if name not in WORLDS},
    }
    cases = {
        group: [case for name in names for log in kept.get(name, []) for case in log] for group, names in groups.items()
    }
    fair = [case for group, own in cases.items() if group.startswith("arms") for case in own]
    cases = {"all": [case for own in cases.values() for case in own], **cases}
    lines += [row(group, own, "log") for group, own in cases.items() if own]
    lines += [row("arms, on new queries", fair, "new")] if fair else []
    said = [case["log"] > 0 for case in cases["all"] if case["word"] == "Better"]
    share = float(np.mean(said)) if said else 0.0
    word = "PASS" if share >= BAR else "FAIL"
    return lines, [f"{word}: Better is right in {sum(said)} of {len(said)} cases, {share:.0%} (bar {BAR:.0%})"]


def row(group: str, cases: Sequence[Case], truth: str) -> str:
    """Return a row of the table."""
    count = Counter(case["word"] for case in cases)
    right = {"Better": sum(case["word"] == "Better" and case[truth] > 0 for case in cases)}
    right["Worse"] = sum(case["word"] == "Worse" and case[truth] < 0 for case in cases)
    known = [case[truth] > 0 for case in cases if truth in case]
    told = [f"{count[word]} | {right[word]}" for word in right]
    return f"| {group} | {len(cases)} | {' | '.join(told)} | {count['No verdict']} | {sum(known)} |"


if __name__ == "__main__":
    many_logs.main("advice", __doc__, LOGS, measure, table)
