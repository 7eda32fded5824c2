"""Benchmark of the fit without context: clickharvest's PBM and pyfixest's fixed-effects Poisson regression.

    make benchmark-fixed_effects
    .venv/bin/python benchmarks/fixed_effects.py --pages 20000 --rounds 1

Clicks ~ Poisson(e_{u,k} p_k r_u) with a free effect for every unit has the maximum of ClickShare, so that estimates
with sandwich intervals must agree; the benchmark ends with an error where they do not. By default, positions are pooled
towards a curve, which pyfixest has nothing like. Every run is a process of its own; its imports are not counted.
Contenders take turns, and the best of the rounds counts. A run with the default options writes its
table into `benchmarks/tables`; any other run prints it only.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from accuracy import machine, say
from speed import in_fresh_process
from tables import write_table

OURS, SAME, THEIRS = "clickharvest, pooled, intervals", "clickharvest, sandwich", "pyfixest, clustered errors"
PAGES = 10
"""Pages of a query, on average."""
AGREE = 1e-4
"""Largest difference of a log propensity."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="Benchmark of the fit without context.")
    parser.add_argument("--pages", type=int, default=100_000, help="pages of ten results of the simulated A/B test")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the best counts")
    options = parser.parse_args()
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="effects-") as folder:
        path = str(Path(folder, "interventions.parquet"))
        told = in_fresh_process(write, options.pages, path)
        for turn in range(options.rounds):
            for contender in (OURS, SAME, THEIRS):
                found = in_fresh_process(measure, contender, path)
                say(f"round {turn + 1}, {contender}: {found['seconds']:.2f} s, {found['cpu_seconds']:.2f} s of CPU")
                best[contender] = min(best.get(contender, found), found, key=lambda took: took["cpu_seconds"])
    lines = ["| contender | seconds | CPU seconds |", "|---|--:|--:|"]
    lines += [f"| {name} | {took['seconds']:.2f} | {took['cpu_seconds']:.2f} |" for name, took in best.items()]
    away = max(abs(a - b) for a, b in zip(best[SAME]["log_p"], best[THEIRS]["log_p"], strict=True))
    lines += ["", f"{told} Largest difference of a log propensity: {away:.1g}."]
    lines += [f"Best of {options.rounds}; {machine()}, load average {os.getloadavg()[0]:.1f} at the end."]
    text = "\n".join(lines)
    print(text)
    if vars(options) == vars(parser.parse_args([])):
        write_table("fixed_effects", text)
    if away > AGREE:
        sys.exit(f"the estimates differ by {away}: expected {AGREE} at most")


def write(pages: int, path: str) -> str:
    """Write the interventions of a simulated A/B test, and return what they are in a sentence."""
    from clickharvest import harvest, read_log
    from clickharvest.simulate import simulate_ab_log

    found = harvest(read_log(simulate_ab_log(pages=pages, queries=pages // PAGES, seed=1)[0]))
    found.write(path)
    return f"{found}."


def measure(contender: str, path: str) -> dict[str, Any]:
    """Fit once; seconds, and log p of the positions after the first."""
    import numpy as np
    import pandas as pd

    from clickharvest import PBM, read_interventions

    interventions = read_interventions(path)
    ks = np.unique(interventions.position)[1:].tolist()
    if contender == THEIRS:
        import pyfixest

        def fit() -> list[float]:
            names = ("clicks", "unit", "query", "position")
            data = pd.DataFrame({name: getattr(interventions, name) for name in names})
            data["log_exposure"] = np.log(interventions.exposure)
            for k in ks:
                data[f"at_{k}"] = (data["position"] == k).astype(float)
            formula = f"clicks ~ {' + '.join(f'at_{k}' for k in ks)} | unit"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it tells of the units without a click that it drops
                found = pyfixest.fepois(
                    formula, data=data, vcov={"CRV1": "query"}, offset="log_exposure", iwls_tol=1e-9
                )
            return [float(b) for b in found.coef()]

    else:
        import clickharvest.estimation.estimators  # noqa: F401  imports are not what is timed

        def fit() -> list[float]:
            model = PBM(intervals="auto" if contender == OURS else "sandwich").fit(interventions)
            return [float(b) for b in np.log(model.predict().propensity[0][1:])]

    start, cpu = time.perf_counter(), time.process_time()
    log_p = fit()
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    return took | {"log_p": log_p}


if __name__ == "__main__":
    main()
