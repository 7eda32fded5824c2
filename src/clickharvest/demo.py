"""The demo: a simulated log with known truth, checked, harvested and fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from clickharvest.diagnosis import Diagnosis, diagnose
from clickharvest.engines import DuckDBEngine, Monitor, atomic_path
from clickharvest.errors import InputError
from clickharvest.estimators import CPBM
from clickharvest.harvesting import harvest_to_parquet
from clickharvest.interventions import read_interventions
from clickharvest.logs import read_log
from clickharvest.propensities import Propensities
from clickharvest.simulate import Truth, simulate_ab_log
from clickharvest.terminal import print_diagnosis, screen

FILES = ("clicks.parquet", "interventions.parquet", "model.safetensors")


def run_demo(folder: Path, seed: int, monitor: Monitor) -> None:
    """Simulate, check, harvest, fit and print, with the files made in `folder`."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: the demo writes a folder; name another one")
    console = screen()
    folder.mkdir(parents=True, exist_ok=True)
    clicks, interventions, model = (folder / name for name in FILES)

    console.print("1. Simulate an A/B test of three rankers, on desktop and mobile.", style="bold")
    table, truth = simulate_ab_log(seed=seed)
    with atomic_path(clicks) as partial:
        pq.write_table(table, partial)
    console.print(f"   {table.num_rows:,} rows: {clicks}\n")

    console.print("2. clickharvest check clicks.parquet --context device", style="bold")
    log = read_log(clicks, context=["device"], engine=DuckDBEngine(monitor=monitor))
    diagnosis = diagnose(log)
    print_diagnosis(diagnosis)

    console.print("\n3. clickharvest harvest clicks.parquet --context device -o …", style="bold")
    harvest_to_parquet(log, interventions)
    harvested = read_interventions(interventions)
    console.print(f"   {harvested}")
    console.print(_head(pq.read_table(interventions)))

    console.print("\n4. clickharvest fit interventions.parquet --intervals sandwich -o …", style="bold")
    fitted = CPBM(intervals="sandwich", seed=seed).fit(harvested).propensities_
    fitted.save(model)
    chosen = fitted.info["selection"]
    console.print(f"   Chosen by cross-validation among {len(chosen)} candidates: curve {fitted.curve.name}\n")
    console.print(_truth_table(diagnosis, truth, fitted))
    console.print(
        "   Click rates mix examination with how good the results at a position are;\n   the estimate does not."
    )


def _truth_table(diagnosis: Diagnosis, truth: Truth, fitted: Propensities) -> Table:
    rates = np.array([shown.clicks / shown.impressions for shown in diagnosis.shown])
    found = fitted.predict({"device": list(truth.contexts)})
    table = Table(box=None, header_style="bold")
    headers = (column for name in truth.contexts for column in (name, "estimate (95 %)"))
    for header in ("position", "click rate", *headers):
        table.add_column(header, justify="right", no_wrap=True)
    for i, shown in enumerate(diagnosis.shown):
        cells = [f"{shown.position}", f"{rates[i] / rates[0]:.2f}"]
        for true, p, low, high in zip(truth.examination, found.propensity, found.lower, found.upper, strict=True):
            cells += [f"{true[i]:.2f}", f"{p[i]:.2f} ({low[i]:.2f}-{high[i]:.2f})"]
        table.add_row(*cells)
    return table


def _head(rows: pa.Table, count: int = 6) -> Table:
    table = Table(box=None, header_style="bold")
    for name in rows.column_names:
        table.add_column(name, justify="right")
    for row in rows.slice(0, count).to_pylist():
        table.add_row(*(f"{value:g}" if isinstance(value, float) else str(value) for value in row.values()))
    table.add_row("…")
    return table
