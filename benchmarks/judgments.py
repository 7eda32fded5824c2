"""Do judgments from clicks agree with people's? LETOR corpora whose documents people have graded, and a real log.

    .venv/bin/python benchmarks/judgments.py          # two minutes; writes the table

Clicks are those of `simulate_protocol`, two rankers of the corpus side by side; *fewer clicks* has documents of one
grade differ, and one click where these have ten. Propensities come from another log of the same users, with 100
impressions a document. Judgments, raw click-through (CTR) and clicks over expected clicks (COEC) rank the documents
that were shown to a query; nDCG@10 and Kendall's tau-b with people's grades are means over queries. The rule for grades
was chosen on one half of MQ2007's queries; the tables are of the other half and of MQ2008. Exits with 1 where nDCG is
worse than that of CTR or COEC beyond two standard errors.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from accuracy import say
from numpy.typing import NDArray
from scipy.stats import kendalltau
from tables import write_table

from clickharvest import PBM, harvest, read_log
from clickharvest.judging import judge
from clickharvest.simulate import read_letor, simulate_protocol

Array = NDArray[np.float64]
HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "shared" / "data"
IMPRESSIONS, SEEDS = (1, 5, 20, 100), 2
CONTENDERS = ("judgments", "CTR", "COEC")


def main() -> None:
    """Run, print the tables, and judge them."""
    warnings.simplefilter("ignore")
    half = np.random.default_rng(7).permutation(1692)[846:]
    corpora = {
        "MQ2007, half": read_letor(DATA / "mq2007_part.txt.gz").take(np.sort(half)),
        "MQ2008": read_letor(DATA / "mq2008.txt.gz"),
    }
    lines = [
        "| log | impressions a document | never clicked | nDCG@10: judgments | CTR | COEC | tau: judgments | CTR "
        "| COEC | covered | graded | pairs | in order | grade ≥ 2, no click | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    missed = False
    for name, corpus in corpora.items():
        for fewer in (False, True):
            logs = {seed: simulate(corpus, 100, fewer, seed, seed + 100) for seed in range(SEEDS)}
            models = {seed: PBM().fit(harvest(read_log(rows))).propensities_ for seed, (rows, _, _) in logs.items()}
            for n in IMPRESSIONS:
                found = [measure(*simulate(corpus, n, fewer, seed, seed), model) for seed, model in models.items()]
                ranked = np.concatenate([own for own, _ in found])
                never, covered, graded, pairs, right, good, unclicked = np.mean([own for _, own in found], axis=0)
                lead = ranked[:, :1] - ranked[:, 1:3]
                worse = (lead.mean(axis=0) < -2 * lead.std(axis=0) / np.sqrt(len(lead))).any()
                missed |= bool(worse)
                values = " | ".join(f"{value:.3f}" for value in ranked.mean(axis=0))
                order = f"{right / pairs:.1%}" if pairs else "–"
                rest = (
                    f"{covered:.1%} | {graded:.1%} | {pairs * SEEDS:,.0f} | {order} | {unclicked:,.0f} of {good:,.0f}"
                )
                label = f"{name}{', fewer clicks' * fewer} | {n} | {never:.0%}"
                lines.append(f"| {label} | {values} | {rest} | {'worse' if worse else ''} |")
                say(lines[-1])
    text = "\n".join([*lines, "", yandex()])
    print(text)
    write_table("judgments", text)
    sys.exit(missed)


def simulate(corpus: Any, impressions: int, fewer: bool, seed: int, clicks: int) -> tuple[pa.Table, Array, Array]:
    """Return a log of so many impressions a document in the mean, and grade and relevance of every document."""
    once = simulate_protocol(sweeps=1, corpus=corpus, queries=None, test_queries=0, seed=seed).log
    ratio = len(np.unique(once["doc"].to_numpy())) / once.num_rows
    made = simulate_protocol(sweeps=impressions * ratio, corpus=corpus, queries=None, test_queries=0, seed=seed)
    grade, examined = made.train.grades.astype(float), made.examination(made.train_contexts)
    random = np.random.default_rng([clicks, impressions])
    attraction = made.click_model.attraction(made.train.relevant)
    if fewer:
        attraction = (0.03 + 0.09 * (2**grade - 1)) * np.exp(random.normal(0, 0.5, len(grade)))
    ranker, query, place = np.nonzero((made.shown >= 0) & (made.served[:, :, None] > 0))
    doc, shown = made.shown[ranker, query, place], made.served[ranker, query]
    chance = examined[query, place] * np.minimum(attraction[doc], 1)
    columns = {"query": query, "doc": doc, "position": place + 1, "impressions": shown}
    rows = pa.table(columns | {"clicks": random.binomial(shown, chance)})
    return rows, grade, np.minimum(attraction, 1) * examined[made.train.query, 0]


def measure(rows: pa.Table, grade: Array, relevance: Array, model: Any) -> tuple[Array, list[float]]:
    """Return nDCG and tau of contenders by query, and what `main` calls the rest."""
    table = judge(read_log(rows), model).table
    doc, query, clicks = (table[name].to_numpy() for name in ("doc", "query", "clicks"))
    people, truth, given = grade[doc], relevance[doc], table["grade"].to_numpy(zero_copy_only=False).astype(float)
    scores = [table["relevance"].to_numpy(), *(own[doc] for own in rates(rows, len(grade)))]
    own_queries = [own for q in np.unique(query) if np.ptp(people[own := np.flatnonzero(query == q)])]
    random = np.random.default_rng(0)
    ranked = [
        [f(score[own], people[own]) for f in (lambda s, g: ndcg(s, g, random), tau) for score in scores]
        for own in own_queries
    ]
    right = pairs = 0
    for own in own_queries:
        signs = np.sign(given[own][:, None] - given[own]) * np.sign(people[own][:, None] - people[own])
        right, pairs = right + (signs > 0).sum(), pairs + (np.abs(signs) > 0).sum()
    covered = (table["lower"].to_numpy() <= truth) & (truth <= table["upper"].to_numpy())
    good, graded = given >= 2, np.isfinite(given)
    shares = [np.mean(clicks == 0), np.mean(covered), np.mean(graded), pairs / 2, right / 2, good.sum()]
    return np.array(ranked), [*(float(share) for share in shares), float((clicks[good] == 0).sum())]


def rates(rows: pa.Table, n: int) -> tuple[Array, Array]:
    """Return CTR and COEC of documents 0 … n − 1."""
    doc, place, clicks, shown = (rows[name].to_numpy() for name in ("doc", "position", "clicks", "impressions"))
    total, displays = np.bincount(doc, clicks, n), np.bincount(doc, shown, n)
    by_place = np.bincount(place, clicks) / np.maximum(np.bincount(place, shown), 1)
    expected = np.bincount(doc, by_place[place] * shown, n)
    return total / np.maximum(displays, 1), total / np.maximum(expected, 1e-9)


def ndcg(score: Array, grade: Array, random: np.random.Generator) -> float:
    """Return nDCG@10, the mean of five orders of ties."""
    discount = 1 / np.log2(np.arange(len(grade)) + 2)
    discount[10:] = 0
    orders = [own[np.argsort(-score[own], kind="stable")] for own in (random.permutation(len(grade)) for _ in range(5))]
    gains = [(2 ** grade[order] - 1) @ discount for order in (*orders, np.argsort(-grade))]
    return float(np.mean(gains[:-1]) / gains[-1])


def tau(score: Array, grade: Array) -> float:
    """Return Kendall's tau-b, 0 where all scores are the same."""
    return float(np.nan_to_num(kendalltau(score, grade).statistic))


def yandex() -> str:
    """Return how judgments of one half of a real log order what is clicked elsewhere in the other half."""
    if not (path := DATA / "yandex_sessions.parquet").exists():
        return ""
    rows = pq.read_table(path)
    session = np.unique(rows["session"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    learned = np.random.default_rng(0).random(session.max() + 1)[session] < 0.5
    pair = [f"{q} {d}" for q, d in zip(rows["query"].to_pylist(), rows["doc"].to_pylist(), strict=True)]
    names, code = np.unique(pair, return_inverse=True)
    place, click, n = rows["position"].to_numpy(), rows["click"].to_numpy().astype(float), len(names)
    log = read_log(rows.filter(pa.array(learned)))
    model = PBM().fit(harvest(log)).propensities_
    p = np.concatenate([[np.nan], model.predict().propensity[0]])
    ours = {f"{row['query']} {row['doc']}": row["relevance"] for row in judge(log, model).table.to_pylist()}
    train = pa.table({"doc": code, "position": place, "clicks": click, "impressions": np.ones(len(code))})
    scores = [np.array([ours.get(name, np.nan) for name in names]), *rates(train.filter(pa.array(learned)), n)]
    displays = np.zeros((n, place.max() + 1))
    np.add.at(displays, (code[learned], place[learned]), 1)
    moved = ~learned & (place != displays.argmax(axis=1)[code])
    elsewhere = np.bincount(code[moved], click[moved], n) / np.bincount(code[moved], p[place[moved]], n).clip(1e-9)
    query = np.array([name.split(" ")[0] for name in names])
    enough = (np.bincount(code[moved], minlength=n) >= 20) & np.isfinite(scores[0])
    own_queries = [own for q in np.unique(query) if len(own := np.flatnonzero(enough & (query == q))) >= 5]
    found = [np.mean([tau(score[own], elsewhere[own]) for own in own_queries]) for score in scores]
    told = ", ".join(f"{name} {value:.3f}" for name, value in zip(CONTENDERS, found, strict=True))
    return (
        f"Yandex, tau within {len(own_queries)} queries with the clicks of the other half of the sessions, per "
        f"effective impression, where documents stand elsewhere than usual: {told}."
    )


if __name__ == "__main__":
    main()
