"""The demo: a simulated log with known truth, checked and harvested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from clickharvest.diagnosis import Diagnosis, diagnose
from clickharvest.engines import DuckDBEngine, Monitor, atomic_path
from clickharvest.errors import InputError
from clickharvest.harvesting import harvest_to_parquet
from clickharvest.interventions import read_interventions
from clickharvest.logs import read_log
from clickharvest.simulate import Truth, simulate_ab_log
from clickharvest.terminal import print_diagnosis, screen


def run_demo(folder: Path, seed: int, monitor: Monitor) -> None:
    """Simulate, check, harvest and print, with the two files made in `folder`."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: the demo writes a folder; name another one")
    console = screen()
    folder.mkdir(parents=True, exist_ok=True)
    clicks, interventions = folder / "clicks.parquet", folder / "interventions.parquet"

    console.print("1. Simulate an A/B test of three rankers, on desktop and mobile.", style="bold")
    table, truth = simulate_ab_log(seed=seed)
    with atomic_path(clicks) as partial:
        pq.write_table(table, partial)
    console.print(f"   {table.num_rows:,} rows: {clicks}\n")

    console.print("2. clickharvest check clicks.parquet --context device", style="bold")
    log = read_log(clicks, context=["device"], engine=DuckDBEngine(monitor=monitor))
    diagnosis = diagnose(log)
    print_diagnosis(diagnosis)

    console.print("\n3. What the click rate would have you believe, and the truth.", style="bold")
    console.print(_truth_table(diagnosis, truth))
    console.print("   Click rates mix examination with how good the results at a position are.\n")

    console.print("4. clickharvest harvest clicks.parquet --context device -o …", style="bold")
    harvest_to_parquet(log, interventions)
    console.print(f"   {read_interventions(interventions)}")
    console.print(_head(pq.read_table(interventions)))


def _truth_table(diagnosis: Diagnosis, truth: Truth) -> Table:
    rates = np.array([shown.clicks / shown.impressions for shown in diagnosis.shown])
    table = Table(box=None, header_style="bold")
    for header in ("position", "click rate", *(f"examined, {name}" for name in truth.contexts)):
        table.add_column(header, justify="right")
    for k, (rate, *examined) in enumerate(zip(rates / rates[0], *truth.examination, strict=True), start=1):
        table.add_row(str(k), f"{rate:.2f}", *(f"{p:.2f}" for p in examined))
    return table


def _head(rows: pa.Table, count: int = 6) -> Table:
    table = Table(box=None, header_style="bold")
    for name in rows.column_names:
        table.add_column(name, justify="right")
    for row in rows.slice(0, count).to_pylist():
        table.add_row(*(f"{value:g}" if isinstance(value, float) else str(value) for value in row.values()))
    table.add_row("…")
    return table
