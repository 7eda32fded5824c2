"""Puts the published propensities of Baidu-ULTR side by side: one estimator a column, empty where it has no estimate.

git clone https://github.com/philipphager/ultr-reproducibility
.venv/bin/python benchmarks/public/baidu.py ultr-reproducibility  # writes baidu.csv beside this file
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

VERSIONS = {
    "2023-12-13": "158496189e57303c4f59fee6308fb201fa7bccd8",
    "2024-01-31": "a5d1daa1fd7099ccdf5441781907b53d3cc07e3d",
}
"""The first tables that were committed, and the last, "Final propensities"."""
ESTIMATORS = ("ctr", "pivot_one", "adjacent_chain", "global_all_pairs")


def main() -> None:
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["version", "position", *ESTIMATORS])
        for version, commit in VERSIONS.items():
            columns = []
            for name in ESTIMATORS:
                show = ["git", "-C", sys.argv[1], "show", f"{commit}:propensities/{name}.csv"]
                text = subprocess.run(show, capture_output=True, text=True, check=True).stdout
                columns.append({int(row["position"]): row[name] for row in csv.DictReader(text.splitlines())})
            for position in columns[0]:
                told = [column.get(position, "") for column in columns]
                table.writerow([version, position, *(value and f"{float(value):.6g}" for value in told)])


if __name__ == "__main__":
    main()
