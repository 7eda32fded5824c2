"""What LightGBM and XGBoost do with inverse-propensity weights, and what it costs; writes docs/boosting.md.

    .venv/bin/python benchmarks/boosting.py            # both parts; writes the tables of docs/boosting.md
    .venv/bin/python benchmarks/boosting.py --seeds 1  # fewer runs of the second part; prints only

1. Gradients. One list of six documents, two of them clicked. A tree that sets one document apart has the leaf value
   −g / (h + λ) there; from two values of λ follow the g and h that the library really used.
2. Rankers, in two tables. Clicks are simulated on lists with known relevance, all contenders learn from the same clicks
   with the true propensities and the same settings, and are judged by the relevance of documents in new lists.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray
from scipy.special import expit

from clickharvest.rank.boosting import ClickObjective, LambdaObjective, PairwiseObjective, doubly_robust_labels

PAGE = Path(__file__).resolve().parents[1] / "docs" / "boosting.md"
SEEDS = 6
COPIES = 1_000
"""Copies of the list in one data set: LightGBM guesses counts from sums of h, and splits off no leaf it counts as 0."""
PENALTY = 0.05
Array = NDArray[np.float64]

CLICKS = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
WEIGHTS = np.array([1.0, 4.0, 2.0, 5.0, 10.0, 8.0])
SCORES = np.array([0.1, -0.1, 0.6, 0.2, -0.5, 0.4])


def lightgbm_gradients(objective: Any, labels: Array, weights: Array | None, scores: Array = SCORES) -> Array:
    """Return the first derivatives that LightGBM used for the documents of one list."""

    def leaf(x: Array, i: int, penalty: float) -> float:
        settings = {
            "objective": objective, "learning_rate": 1.0, "lambda_l2": penalty, "num_leaves": 2, "min_data_in_leaf": 0,
            "min_sum_hessian_in_leaf": 0.0, "min_data_in_bin": 1, "feature_pre_filter": False, "lambdarank_norm": False,
            "label_gain": [0, 1], "boost_from_average": False, "num_threads": 1, "verbose": -1,
        }  # fmt: skip
        data = lgb.Dataset(
            x, np.tile(labels, COPIES), weight=None if weights is None else np.tile(weights, COPIES),
            group=[len(labels)] * COPIES, init_score=np.tile(scores, COPIES), params=settings,
        )  # fmt: skip
        return float(np.asarray(lgb.train(settings, data, 1).predict(x, raw_score=True))[i])

    return _from_leaves(leaf, len(labels))


def xgboost_gradients(objective: Any, labels: Array, list_weights: Array | None = None) -> Array:
    """Return the first derivatives that XGBoost used for the documents of the first list; others are copies of it."""

    def leaf(x: Array, i: int, penalty: float) -> float:
        settings: dict[str, Any] = {
            "eta": 1.0, "lambda": penalty, "min_child_weight": 0, "max_depth": 1, "base_score": 0.0, "nthread": 1,
            "tree_method": "exact",
        }  # fmt: skip
        own = {}
        if isinstance(objective, str):
            settings |= {"objective": objective, "lambdarank_pair_method": "topk", "lambdarank_normalization": False}
            settings["lambdarank_score_normalization"] = False
            settings["lambdarank_num_pair_per_sample"] = len(labels)
        else:
            own["obj"] = objective
        n = 2 if list_weights is None else len(list_weights)
        only = np.zeros((n * len(labels), 1))
        only[: len(labels)] = x[: len(labels)]
        data = xgb.DMatrix(
            only, np.tile(labels, n), weight=list_weights, group=[len(labels)] * n, base_margin=np.tile(SCORES, n)
        )
        model = xgb.train(settings, data, 1, **own)
        return float(model.predict(xgb.DMatrix(only, base_margin=np.zeros(len(only))), output_margin=True)[i])

    return _from_leaves(leaf, len(labels), copies=1)


def _from_leaves(leaf: Callable[[Array, int, float], float], n: int, copies: int = COPIES) -> Array:
    """Return g of n documents from the leaf values −g / (h + λ) of trees that set each apart, for two λ."""
    slopes = np.empty(n)
    for i in range(n):
        x = np.tile(np.arange(n) == i, copies)[:, None].astype(float)
        # Small, because a large penalty may make the split worth less than none.
        a, b = (leaf(x, i, penalty * copies) for penalty in (0.0, PENALTY))
        slopes[i] = -a * b * PENALTY / (a - b)
    return slopes


def naive_lambdas() -> Array:
    """Return the first derivatives of unweighted LambdaRank: clicked against not clicked, in units of the ideal DCG."""
    rank = 1 + (SCORES[None, :] > SCORES[:, None]).sum(axis=1)
    discount = 1 / np.log2(1 + rank)
    ideal = (1 / np.log2(1 + np.arange(1, CLICKS.sum() + 1))).sum()
    slopes = np.zeros(len(CLICKS))
    for i in np.flatnonzero(CLICKS):
        for j in np.flatnonzero(CLICKS == 0):
            pull = abs(discount[i] - discount[j]) * expit(SCORES[j] - SCORES[i]) / ideal
            slopes[i] -= pull
            slopes[j] += pull
    return slopes


def gradient_table() -> list[str]:
    """Return the table of the first part."""
    y, bounds = CLICKS * WEIGHTS, [0, len(CLICKS)]
    plain, weighted = (lightgbm_gradients("lambdarank", CLICKS, w) for w in (None, WEIGHTS))
    lists = np.array([1.0, 3.0])
    rows: list[tuple[str, Sequence[float]]] = [
        ("click", CLICKS),
        ("weight 1/p", WEIGHTS),
        ("**pairwise loss, exact**", PairwiseObjective().gradients(SCORES, y, bounds)[0]),
        ("`PairwiseObjective` in LightGBM", lightgbm_gradients(PairwiseObjective(), y, None)),
        ("`PairwiseObjective` in XGBoost", xgboost_gradients(PairwiseObjective(), y)),
        ("**DCG-weighted loss, exact**", LambdaObjective().gradients(SCORES, y, bounds)[0]),
        ("`LambdaObjective` in LightGBM", lightgbm_gradients(LambdaObjective(), y, None)),
        ("`LambdaObjective` in XGBoost", xgboost_gradients(LambdaObjective(), y)),
        ("LightGBM `lambdarank`, no weights", plain),
        ("LightGBM `lambdarank`, `weight=1/p`", weighted),
        ("… the second over the first", weighted / plain),
        ("XGBoost `rank:pairwise`, no weights", xgboost_gradients("rank:pairwise", CLICKS)),
        ("XGBoost, weights 1 and 3 of two lists", xgboost_gradients("rank:pairwise", CLICKS, lists)),
    ]
    lines = ["| ∂L/∂s of document | 1 | 2 | 3 | 4 | 5 | 6 | sum |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name, values in rows:
        cells = " | ".join(f"{value + 0.0:.4g}" for value in values)
        total = "" if name.startswith(("click", "weight", "…")) else f"{abs(np.sum(values)):.2f}"
        lines.append(f"| {name} | {cells} | {total} |")
    return lines


@dataclass(frozen=True)
class Clicks:
    """Simulated lists: features [n, F], relevance, propensity and clicks [n]; documents and shows of a list."""

    x: Array
    relevance: Array
    propensity: Array
    click: Array
    docs: int
    shows: int


def simulate(lists: int, shows: int, seed: int, *, docs: int = 12, features: int = 10, eta: float = 1.5) -> Clicks:
    """Show every list a few times by a weak ranker with noise; click with probability k^−η r(x)."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(lists, docs, features))
    value = x[..., 0] + x[..., 1] * x[..., 2] + np.abs(x[..., 3]) - 0.8 * (x[..., 4] > 0.5)
    relevance = 0.02 + 0.96 * expit(2 * (value - 1.5))
    logged = x[..., 0] - 0.7 * x[..., 5]
    x, relevance, logged = (np.repeat(part, shows, axis=0) for part in (x, relevance, logged))
    order = np.argsort(-(logged + 0.5 * random.normal(size=logged.shape)), axis=1)
    rank = np.argsort(order, axis=1) + 1
    propensity = rank**-eta
    click = random.random(rank.shape) < propensity * relevance
    flat = (part.reshape(-1) for part in (relevance, propensity, click.astype(float)))
    return Clicks(x.reshape(-1, features), *flat, docs, shows)


SETTINGS = {"learning_rate": 0.1, "num_leaves": 15, "min_data_in_leaf": 50, "num_threads": 1, "verbose": -1}
ROUNDS = 100


def train(objective: Any, data: Clicks, labels: Array, weights: Array | None = None) -> lgb.Booster:
    """Train LightGBM, with the same settings for everybody."""
    groups = [data.docs] * (len(labels) // data.docs)
    settings = SETTINGS | {"objective": objective, "seed": 0}
    return lgb.train(settings, lgb.Dataset(data.x, labels, weight=weights, group=groups), ROUNDS)


def train_once(objective: ClickObjective, data: Clicks, labels: Array) -> lgb.Booster:
    """Train on every list once, with the sum of its labels over its shows: the same loss, in less time."""
    once = np.arange(len(labels)).reshape(-1, data.shows, data.docs)[:, 0].ravel()
    summed = labels.reshape(-1, data.shows, data.docs).sum(axis=1).ravel()
    return train(objective, replace(data, x=data.x[once]), summed)


def contenders() -> dict[str, Callable[[Clicks], lgb.Booster]]:
    """Return what can be made of clicks and propensities."""

    def ours(objective: ClickObjective, data: Clicks) -> lgb.Booster:
        return train(objective, data, data.click * mean_one(data, CLIP))

    def naive(data: Clicks, all_rows: bool) -> lgb.Booster:
        weights = mean_one(data, CLIP)
        return train("lambdarank", data, data.click, weights if all_rows else np.where(data.click > 0, weights, 1.0))

    return {
        "clicks as they are, LightGBM `lambdarank`": lambda data: train("lambdarank", data, data.click),
        "clicks as they are, `PairwiseObjective`": lambda data: train(PairwiseObjective(), data, data.click),
        "`weight=1/p` on all rows, LightGBM `lambdarank`": lambda data: naive(data, True),
        "`weight=1/p` on clicked rows, 1 on others, LightGBM `lambdarank`": lambda data: naive(data, False),
        "labels click/p, `PairwiseObjective`": lambda data: ours(PairwiseObjective(), data),
        "labels click/p, `LambdaObjective`": lambda data: ours(LambdaObjective(), data),
        "the true relevance, `PairwiseObjective`": lambda data: train(PairwiseObjective(), data, data.relevance),
    }


def robust_contenders() -> dict[str, Callable[[Clicks], lgb.Booster]]:
    """Return rankers by inverse propensities and by doubly robust labels, for several clips."""
    found: dict[str, Callable[[Clicks], lgb.Booster]] = {"the regression alone": lambda data: regression(data)}
    for clip in CLIPS:
        for name, guess in GUESSES.items():
            found[f"{name}, clip {clip:g}"] = lambda data, clip=clip, guess=guess: train_once(  # type: ignore[misc]
                LambdaObjective(), data, robust_labels(data, clip, guess(data))
            )
    return found


def regression(data: Clicks, features: Sequence[int] | None = None) -> lgb.Booster:
    """Return a regression of click/p, whose mean is the relevance, weighted by p so that low positions do not rule."""
    weights = 1 / np.maximum(data.propensity, 0.01)
    x = data.x if features is None else np.where(np.isin(np.arange(data.x.shape[1]), features), data.x, 0.0)
    table = lgb.Dataset(x, data.click * weights, weight=1 / weights)
    return lgb.train(SETTINGS | {"objective": "regression", "seed": 0}, table, ROUNDS)


def robust_labels(data: Clicks, clip: float, relevance: Array) -> Array:
    """Return doubly robust labels, whose sum is the number of clicks."""
    labels = doubly_robust_labels(data.click, data.propensity, np.maximum(relevance, 0), clip=clip)
    return labels * data.click.sum() / labels.sum()


CLIP = 0.05
CLIPS = (0.02, 0.1, 0.4)
GUESSES: dict[str, Callable[[Clicks], Array]] = {
    "labels click/p": lambda data: 0 * data.click,
    "doubly robust": lambda data: np.asarray(regression(data).predict(data.x)),
    "doubly robust, regression on what does not matter": lambda data: np.asarray(
        regression(data, features=(5, 6, 7)).predict(data.x)
    ),
}


def mean_one(data: Clicks, clip: float) -> Array:
    """Return the weights 1 / max(p, clip), whose mean over the clicks is 1."""
    weights = 1 / np.maximum(data.propensity, clip)
    return weights / np.average(weights, weights=data.click)


def quality(model: lgb.Booster, test: Clicks) -> tuple[float, float]:
    """Return nDCG@5 with the relevance as gain, and the mean rank of relevant documents."""
    scores, gain = (part.reshape(-1, test.docs) for part in (np.asarray(model.predict(test.x)), test.relevance))
    order, best = np.argsort(-scores, axis=1), np.sort(-gain, axis=1)
    discount = 1 / np.log2(np.arange(2, 7))
    ranked = np.take_along_axis(gain, order, axis=1)
    ndcg = (ranked[:, :5] * discount).sum(axis=1) / (-best[:, :5] * discount).sum(axis=1)
    return float(ndcg.mean()), float((ranked * np.arange(1, test.docs + 1)).sum() / gain.sum())


def ranker_table(rivals: dict[str, Callable[[Clicks], lgb.Booster]], seeds: int, lists: int, shows: int) -> list[str]:
    """Return the table of the second part."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        data, test = simulate(lists, shows, seed), simulate(1_000, 1, 10_000 + seed)
        for name, contender in rivals.items():
            found.setdefault(name, []).append(quality(contender(data), test))
            print(f"seed {seed}: {name}: nDCG@5 {found[name][-1][0]:.4f}", file=sys.stderr, flush=True)
    lines = ["| learned from | nDCG@5 | sd | mean rank of relevance | sd |", "|---|--:|--:|--:|--:|"]
    for name, values in found.items():
        (ndcg, rank), (ndcg_sd, rank_sd) = np.mean(values, axis=0), np.std(values, axis=0, ddof=min(1, seeds - 1))
        lines.append(f"| {name} | {ndcg:.4f} | {ndcg_sd:.4f} | {rank:.3f} | {rank_sd:.3f} |")
    return lines


def main() -> None:
    """Print both tables, and write them into the page after a full run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--lists", type=int, default=1_000)
    parser.add_argument("--shows", type=int, default=3)
    options = parser.parse_args()
    parts = {
        "gradients": gradient_table(),
        "rankers": ranker_table(contenders(), **vars(options)),
        "robust": ranker_table(robust_contenders(), **vars(options)),
    }
    libraries = f"LightGBM {version('lightgbm')}, XGBoost {version('xgboost-cpu')}"
    for lines in parts.values():
        print("\n".join(lines), end="\n\n")
    if vars(options) == vars(parser.parse_args([])):
        page = PAGE.read_text()
        for name, lines in parts.items():
            begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
            text = "\n".join([begin, *lines, "", f"{libraries}.", end])
            page = page[: page.index(begin)] + text + page[page.index(end) + len(end) :]
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
