"""The semi-synthetic protocol of Fang, Agarwal and Joachims (SIGIR 2019), on any corpus.

Rankers trained on small samples of the queries serve the others; users examine position k with probability
p_k(x), and click what they examine if it is relevant, or else with a small probability:

    Pr(C = 1 | q, d, k) = p_k(x_q) · r(q, d),   r = 1 if d is relevant, `noise` if not.

Beyond the paper: other click models (`clicks`), heavy-tailed traffic, unequal traffic, consecutive deployments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.simulate import names
from clickharvest.simulate.corpus import Corpus, synthetic_corpus, top, train_rankers
from clickharvest.simulate.corpus import training_queries as queries_of_rankers
from clickharvest.simulate.examination import CONTEXT_FEATURES, ContextFeatures, Examination
from clickharvest.simulate.simulation import Simulation
from clickharvest.simulate.users import SimulatedUsers

SPARE = 1.12
"""Queries to make up for each that is needed, as some have no relevant document."""
QUERIES, TEST_QUERIES = 11_473, 2_000
"""The paper's number of training queries, and how many others errors are measured on at most."""
TEST_SHARE = 5
"""Without a number of test queries, one in so many of those that rankers leave over."""


def simulate_protocol(
    *,
    sweeps: float | None = None,
    training_queries: int | None = None,
    eta: float = 0.5,
    zeta: float = 1.0,
    examination: str = "power",
    clicks: str = "pbm",
    traffic: Sequence[float] = (1, 1),
    repetition: str = "even",
    deployment: str = "ab",
    positions: int = 10,
    flat_from: int | None = None,
    queries: int | None = QUERIES,
    test_queries: int | None = TEST_QUERIES,
    noise: float = 0.1,
    seed: int = 0,
    corpus: Corpus | None = None,
) -> Simulation:
    """Simulate the log of linear rankers, with context-dependent examination.

    The queries with a relevant document are split at random: some train the rankers (`train_rankers`), `queries`
    make the log, `test_queries` are held out. With one seed and corpus, logs that differ in `sweeps`, `eta`,
    `examination`, `clicks`, `noise`, `repetition`, `deployment` or `traffic` (of as many rankers) share queries and
    contexts.

    Args:
        sweeps: how often a ranker serves each query: ranker i does `sweeps · traffic_i / mean(traffic)` times;
            2.3 times means twice, and once more for a random 30 % of the queries.
        training_queries: the paper's measure, queries × sweeps, in place of `sweeps`: pages that each ranker serves
            on average. A small corpus comes to it by more sweeps.
        eta: how strongly examination depends on context, w ~ U[−η, η) minus its mean.
        zeta: share of the context features tied to relevance, see `ContextFeatures`.
        examination: one of `EXAMINATIONS`.
        clicks: one of `USER_KINDS`; all but `pbm` violate what estimators take for granted.
        traffic: traffic of each ranker, in any unit; as many rankers as numbers.
        repetition: `even`, or `zipf`: as many pages, but queries are drawn for them with a frequency of 1 / rank, so
            that a few are served very often and many never; or `same`: evenly, and where there are fewer pages than
            queries, all rankers serve the same ones, as in the paper.
        deployment: `ab`, all rankers at the same time; or `consecutive`, one after the other, with a `time`.
        positions: K, documents shown on a page.
        flat_from: the position from which examination stays constant; None if it never does.
        queries: number of training queries n; None takes all that rankers and test leave over.
        test_queries: number of test queries m; None takes a fifth of what rankers leave over, at most 2,000.
        noise: probability of a click on an irrelevant document that is examined.
        seed: seed of all randomness.
        corpus: where queries come from; by default a synthetic corpus of the same seed.

    Raises:
        InputError: the arguments make no sense, or the corpus has too few queries with a relevant document.

    Example:
        >>> simulation = simulate_protocol(sweeps=2, queries=100, test_queries=50)
        >>> simulation.log.num_rows, simulation.test_examination.shape, simulation.traffic
        (2000, (50, 10), {'f1': 0.5, 'f2': 0.5})
    """
    amount = sweeps if training_queries is None else training_queries
    if amount is None or (sweeps is not None and training_queries is not None):
        raise InputError("how much traffic? expected either sweeps, such as 5, or training_queries, such as 57365")
    wrong_size = (queries is not None and queries < 1) or (test_queries is not None and test_queries < 0)
    wrong_traffic = len(traffic) < 2 or not all(0 < t < np.inf for t in traffic)
    if not 0 < amount < np.inf or positions < 2 or wrong_size or wrong_traffic or not 0 <= noise <= 1:
        raise InputError(
            f"sweeps or training_queries={amount}, positions={positions}, queries={queries}, "
            f"test_queries={test_queries}, traffic={tuple(traffic)}, noise={noise}: expected sweeps > 0, two or more "
            "positions, queries, two or more rankers with traffic, noise from 0 to 1"
        )
    _check_choice("repetition", repetition, REPETITIONS)
    _check_choice("deployment", deployment, names.DEPLOYMENTS)
    click_model, rankers = SimulatedUsers(clicks, noise), len(traffic)
    if corpus is None:
        queries = QUERIES if queries is None else queries
        test_queries = TEST_QUERIES if test_queries is None else test_queries
        needed = queries_of_rankers(rankers) + queries + test_queries
        corpus = synthetic_corpus(int(SPARE * needed) + 100, docs=(max(20, positions), max(40, positions)), seed=seed)
    usable = corpus.queries_with_relevant()
    parts = np.cumsum(_sizes(len(usable), rankers, queries, test_queries))
    # What depends on fewer arguments is drawn first, so that it stays the same when the others change.
    random = np.random.default_rng([seed, 1])
    samples, train, test = (corpus.take(part) for part in np.split(random.permutation(usable), parts)[:3])
    features = ContextFeatures.draw(train, zeta, random)
    train_contexts, test_contexts = features.of(train, random), features.of(test, random)
    truth = Examination.draw(
        examination, positions, features=CONTEXT_FEATURES, eta=eta, random=random, flat_from=flat_from
    )
    weights = train_rankers(samples, rankers)
    shown = np.stack([top(train, w, positions) for w in weights])
    share = np.array(traffic, float) / sum(traffic)
    times = (amount if training_queries is None else amount / len(train)) * rankers * share
    served = REPETITIONS[repetition](len(train), times, random)
    there = shown >= 0
    counts, clicked = click_model.draw(served, there, train.relevant[shown] & there, truth(train_contexts), random)
    return Simulation(
        train=train,
        test=test,
        train_contexts=train_contexts,
        test_contexts=test_contexts,
        examination=truth,
        traffic={f"f{i}": float(s) for i, s in enumerate(share, 1)},
        shown=shown,
        served=served,
        clicks=counts,
        weights=weights,
        click_model=click_model,
        consecutive=deployment == "consecutive",
        clicked=clicked,
    )


def _check_choice(what: str, name: str, choices: Iterable[str]) -> None:
    if name not in choices:
        raise InputError(f"no {what} {name!r}: expected one of {', '.join(choices)}")


def _sizes(usable: int, rankers: int, queries: int | None, test_queries: int | None) -> tuple[int, int, int]:
    """Return how many queries train the rankers, make the log, and are held out."""
    first = queries_of_rankers(rankers)
    if test_queries is None:
        test_queries = min(TEST_QUERIES, max(0, usable - first) // TEST_SHARE)
    if queries is None:
        queries = max(1, usable - first - test_queries)
    needed = first + queries + test_queries
    if usable < needed:
        raise InputError(
            f"the corpus has {usable:,} queries with a relevant document, {needed:,} are needed: "
            "lower queries or test_queries"
        )
    return first, queries, test_queries


def serve_evenly(queries: int, times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Serve every query alike, up to one page; times [rankers] → pages [rankers, queries]."""
    served = np.empty((len(times), queries), np.int64)
    for row, mean in zip(served, times.tolist(), strict=True):
        row[:] = int(mean)
        row[random.permutation(queries)[: round((mean - int(mean)) * queries)]] += 1
    return served


def serve_by_zipf(queries: int, times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Serve as many pages in all, of queries drawn with a frequency of 1 / rank."""
    frequency = 1 / (1 + random.permutation(queries))
    pages = np.round(times * queries).astype(np.int64)
    return np.stack([random.multinomial(total, frequency / frequency.sum()) for total in pages])


def serve_the_same(queries: int, times: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Serve evenly, the same queries by all rankers: those drawn first have the page that not all of them get."""
    order = random.permutation(queries)
    served = np.repeat(times.astype(np.int64)[:, None], queries, axis=1)
    for row, mean in zip(served, times.tolist(), strict=True):
        row[order[: round((mean - int(mean)) * queries)]] += 1
    return served


REPETITIONS: dict[str, Callable[[int, NDArray[np.float64], np.random.Generator], NDArray[np.int64]]] = dict(
    zip(names.REPETITIONS, (serve_evenly, serve_by_zipf, serve_the_same), strict=True)
)
"""How queries repeat, by name."""
