"""Simulates one log for all contenders: the paper's protocol, one row per display of a document.

    python simulated.py FOLDER truth.npy --policy weak --queries 800 --test-queries 800 --sweeps 1 --eta 0.5 --seed 0

The protocol's rankers are weak: SVMs trained on 114 queries. With a strong logging policy (Zhang et al., 2023,
arXiv:2305.09918) relevant documents stand at the top, more of them than features explain, so that position tells of
relevance: each ranker orders documents by their relevance, 0 or 1, and normal noise of its own.

The simulation counts the clicks of a ranker's page over its displays; which displays had them is drawn here, all
equally likely, which is how independent displays fall. The truth goes into a file that no contender is shown.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from exchange import FEATURES, ROWS, SESSIONS, TEST_CONTEXTS

from clickharvest.simulate import Simulation, simulate_protocol
from clickharvest.simulate.corpus import Corpus, top

SPREAD = 0.5
"""Standard deviation of a strong ranker's noise: it has a relevant document above another in 92 of 100 pairs."""


def main() -> None:
    """Write the log and the truth."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--policy", choices=("weak", "strong"), default="weak")
    parser.add_argument("--queries", type=int, required=True)
    parser.add_argument("--test-queries", type=int, required=True)
    parser.add_argument("--sweeps", type=float, required=True)
    parser.add_argument("--eta", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = vars(parser.parse_args())
    folder, truth_file, policy = (arguments.pop(name) for name in ("folder", "truth", "policy"))
    simulation = simulate_protocol(**arguments)
    if policy == "strong":
        simulation = with_strong_rankers(simulation, arguments["seed"])
    query, doc, click = displays(simulation.shown, simulation.served, simulation.clicks, arguments["seed"])
    shown, doc = np.unique(doc, return_inverse=True)
    doc = doc.reshape(click.shape)
    contexts = simulation.train_contexts
    np.savez(folder / SESSIONS, query=query, doc=doc, click=click, contexts=contexts)
    np.save(folder / FEATURES, simulation.train.features[shown])
    np.save(folder / TEST_CONTEXTS, simulation.test_contexts)
    write_rows(folder / ROWS, query, doc, click, contexts)
    truth = simulation.test_examination
    np.save(truth_file, truth / truth[:, :1])


def with_strong_rankers(simulation: Simulation, seed: int) -> Simulation:
    """Return the same queries, contexts and users, served by rankers that know what is relevant."""
    random = np.random.default_rng([seed, 3])
    train, (rankers, _, positions) = simulation.train, simulation.shown.shape
    scores = train.relevant + random.normal(0, SPREAD, (rankers, len(train.grades)))
    corpora = (Corpus(own[:, None].astype(np.float32), train.grades, train.starts, train.threshold) for own in scores)
    shown = np.stack([top(corpus, np.ones(1), positions) for corpus in corpora])
    there = shown >= 0
    relevant, examined = train.relevant[shown] & there, simulation.train_examination
    clicks, _ = simulation.click_model.draw(simulation.served, there, relevant, examined, random)
    return replace(simulation, shown=shown, clicks=clicks)


def displays(shown: Any, served: Any, clicks: Any, seed: int) -> tuple[Any, Any, Any]:
    """Return query [S], document [S, K] and click [S, K] of single pages, in random order.

    Args:
        shown: document of each ranker, query and position, [R, n, K].
        served: how often each ranker served each query, [R, n].
        clicks: clicks over those displays, [R, n, K].
        seed: seed of which displays have the clicks, and of the order.

    Example:
        >>> query, doc, click = displays(np.array([[[7, 8]]]), np.array([[3]]), np.array([[[3, 1]]]), seed=0)
        >>> query.tolist(), doc.tolist(), click.sum(axis=0).tolist()
        ([0, 0, 0], [[7, 8], [7, 8], [7, 8]], [3, 1])
    """
    random = np.random.default_rng([seed, 2])
    ranker, query = np.nonzero(served)
    times = served[ranker, query]
    page = np.repeat(np.arange(len(times)), times)
    doc, wanted = shown[ranker, query], clicks[ranker, query]
    # Of a page's displays, those with the smallest random numbers are clicked: as many as there were clicks.
    lots = random.random((len(page), doc.shape[1]))
    order = np.lexsort((lots.T, np.broadcast_to(page, lots.T.shape)), axis=1)
    starts = np.repeat(np.cumsum(times) - times, times)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(len(page)) - starts, order.shape), axis=1)
    click = (wanted[page] > place.T).astype(np.int8)
    served_in = random.permutation(len(page))
    return query[page][served_in], doc[page][served_in], click[served_in]


def write_rows(path: Path, query: Any, doc: Any, click: Any, contexts: Any) -> None:
    """Write the log as a table with one row per display, columns `query, doc, position, click, x1 … x10`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pages, positions = doc.shape
    columns = {
        "query": np.repeat(query, positions),
        "doc": doc.ravel(),
        "position": np.tile(np.arange(1, positions + 1), pages),
        "click": click.ravel(),
    }
    columns |= {f"x{j + 1}": np.repeat(contexts[query, j], positions) for j in range(contexts.shape[1])}
    pq.write_table(pa.table(columns), path, compression="zstd")


if __name__ == "__main__":
    main()
