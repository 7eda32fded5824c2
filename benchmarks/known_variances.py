"""Could a better variance of deviations serve exact power laws and laws with bumps alike? Coverage where it is given.

    .venv/bin/python benchmarks/known_variances.py --logs 400       # writes a table into benchmarks/README.md

The cells of 50 positions of `cells`, fitted as `coverage` does, but for the standard deviation by which positions
deviate from a power law: it is not learned, it is the one of the row. Bumps have .2, exact laws 0.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
from accuracy import write_between_markers
from cells import CELLS, simulate
from coverage import README, spell

from clickharvest.estimation import PBM, estimators
from clickharvest.estimation.pooling import Pooled, with_spread

NAMES = ("50 positions", "50 positions with bumps")
GIVEN = (None, 0.02, 0.1, 0.2)


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--logs", type=int, default=400, help="simulated logs of each row")
    logs = parser.parse_args().logs
    lines = ["| standard deviation | cell | logs | covered | all positions at once |", "|--:|---|--:|--:|--:|"]
    for given in GIVEN:
        for name in NAMES:
            found = np.array([measure(name, log, given) for log in range(logs)])
            told = "learned" if given is None else f"{given:g}"
            lines.append(f"| {told} | {name} | {logs} | {spell(found[:, 0])} | {spell(found[:, 1])} |")
            print(lines[-1], flush=True)
    write_between_markers(README, "known", "\n".join(lines))


def measure(name: str, log: int, given: float | None) -> tuple[float, float]:
    """Return the share of positions covered, and whether all are, where a standard deviation is given."""
    world = simulate(CELLS[name], np.random.default_rng([log, *name.encode()]))

    def pool_as_given(curve: Any, _: Any, seen: Any) -> Pooled:
        return with_spread(type(curve)(seen.positions, curve.anchor, 0), seen, {"position": given})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if given is None:
            model = PBM().fit(world.interventions)
        else:
            with patch.object(estimators, "pool_seen", pool_as_given):
                model = PBM().fit(world.interventions)
    inside = []
    for together in (False, True):
        found = model.predict(simultaneous=together)
        own = found.supported[0] & (np.array(found.positions) > 1)
        truth = np.exp(world.truth[0, np.array(found.positions) - 1])[own]
        inside.append((found.lower[0, own] <= truth) & (truth <= found.upper[0, own]))
    return float(inside[0].mean()), float(inside[1].all())


if __name__ == "__main__":
    main()
