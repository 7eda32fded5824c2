"""How often `fit --model auto` chooses each click model, where it is known which users made the log.

    python benchmarks/model_choice.py [--logs 20] [--jobs 2]

Prints the table of the README: a row for each kind of users, a column for each model. Nothing is kept: a log takes a
second or two.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import affine

MODELS = ("examination", "browsing", "reading", "affine")
WORLDS: dict[str, dict[str, Any]] = {
    "examine and click (PBM)": {"clicks": "pbm"},
    "the same, half the log": {"clicks": "pbm", "sweeps": 10},
    "the same, queries are read to different depths": {"clicks": "pbm", "eta": 0.5},
    "go on below a click (UBM)": {"clicks": "ubm"},
    "the same, queries are read to different depths (UBM)": {"clicks": "ubm", "eta": 0.5},
    "leave once served (cascade)": {"clicks": "cascade"},
    "may leave after a click (DCM)": {"clicks": "dcm"},
    "leave once satisfied (DBN)": {"clicks": "dbn"},
    "trust the top: .65 / k (counts, 100,000 clicks)": {"affine": "strong, 1e5"},
    "trust the top a little: .1 + .15 / k": {"affine": "mild, 1e5"},
    "trust the top: .65 / k, rankers nearly sort by relevance": {"affine": "strong, steep, 1e5"},
    "no trust": {"affine": "none, 1e5"},
    "no trust, queries are read to different depths": {"affine": "unlike"},
    "two devices, not named": {"devices": True},
    "two devices, named": {"devices": True, "context": ["device"]},
}


def chosen(world: str, seed: int) -> str:
    """Simulate a log, and return the model that is chosen."""
    from clickharvest import read_log
    from clickharvest.click_models import choose_click_model
    from clickharvest.simulate import simulate_ab_log, simulate_protocol

    how = dict(WORLDS[world])
    if "affine" in how:
        return choose_click_model(affine.simulate(affine.WORLDS[how["affine"]], seed).interventions).model
    if how.pop("devices", False):
        table = simulate_ab_log(pages=10_000, seed=seed)[0]
    else:
        how = {"sweeps": 20, "eta": 0, **how}
        table = simulate_protocol(queries=300, test_queries=2, positions=6, seed=seed, **how).rows()
    return choose_click_model(read_log(table, context=how.get("context", []))).model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # of the processes
    print(f"| users ({given.logs} logs each) | {' | '.join(MODELS)} |\n|---|{'--:|' * len(MODELS)}")
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for world in WORLDS:
            found = Counter(pool.map(chosen, [world] * given.logs, range(given.logs)))
            print(f"| {world} | {' | '.join(str(found[name]) for name in MODELS)} |", flush=True)


if __name__ == "__main__":
    main()
