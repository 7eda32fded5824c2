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

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}

MODELS = ("examination", "browsing", "reading", "affine")
WORLDS = {
    "examine and click (PBM)": {"clicks": "pbm"},
    "the same, half the log": {"clicks": "pbm", "sweeps": 10},
    "go on below a click (UBM)": {"clicks": "ubm"},
    "leave once served (cascade)": {"clicks": "cascade"},
    "may leave after a click (DCM)": {"clicks": "dcm"},
    "leave once satisfied (DBN)": {"clicks": "dbn"},
    "trust the top, .65 / k": {"trust": 0.65},
    "trust the top, .2 / k": {"trust": 0.2},
    "no trust, counted": {"trust": 0.0},
    "two devices, not named": {"devices": True},
    "two devices, named": {"devices": True, "context": ["device"]},
}


def chosen(world: str, seed: int) -> str:
    """Simulate a log, and return the model that is chosen."""
    from clickharvest import read_log
    from clickharvest.click_models import choose_click_model
    from clickharvest.simulate import simulate_ab_log, simulate_protocol, simulate_trust_log

    how = dict(WORLDS[world])
    context = how.pop("context", [])
    if how.pop("devices", False):
        table = simulate_ab_log(pages=10_000, seed=seed)[0]
    elif (trust := how.pop("trust", None)) is not None:
        table = simulate_trust_log(pages=60_000, queries=200, positions=5, docs=10, trust=trust, seed=seed)[0]
    else:
        how = {"sweeps": 20, **how}
        table = simulate_protocol(queries=300, test_queries=2, positions=6, eta=0, seed=seed, **how).rows()
    return choose_click_model(read_log(table, context=context)).model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    print(f"| users ({given.logs} logs each) | {' | '.join(MODELS)} |\n|---|{'--:|' * len(MODELS)}")
    with ProcessPoolExecutor(given.jobs) as pool:
        for world in WORLDS:
            found = Counter(pool.map(chosen, [world] * given.logs, range(given.logs)))
            print(f"| {world} | {' | '.join(str(found[name]) for name in MODELS)} |", flush=True)


if __name__ == "__main__":
    main()
