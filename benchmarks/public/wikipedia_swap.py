"""Reads the click rates of Wikipedia's swap of results 2 and 3 off the picture in which they were published.

    git clone https://github.com/wikimedia-research/Discovery-Search-Test-Swap2and3
    .venv/bin/python benchmarks/public/wikipedia_swap.py \
        Discovery-Search-Test-Swap2and3/docs/index_files/figure-html/engagement_2and3-1.png

Writes `wikipedia_swap.csv` beside this file. The report prints rates with one decimal; the right half of its second
picture has them as dots with bars of 95 %. A pixel is .006 % of the searches, so that rates come out to ±.003 %. The
report does not say how many searches had results, but the length of a bar does, n = rate (1 − rate) (3.92 / length)²:
both bars of a group must tell the same n, and n must not exceed the group's searches in Table 2.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from matplotlib.image import imread
from scipy import ndimage

DOTS = {  # colour, group, rank, the rank that the result has without the swap
    (218, 0, 23): ("control", 2, 2),
    (44, 105, 169): ("control", 3, 3),
    (64, 163, 58): ("swapped", 2, 3),
    (132, 54, 146): ("swapped", 3, 2),
}
TICKS, AXIS, PANEL, LEGEND = (4.0, 3.0, 2.0, 1.0), 859, 870, 730
"""Rates in per cent at the marks of the axis; its column; where the right half begins, and where the legend does."""
ALL = {"control": 279_749, "swapped": 204_167}
"""Searches of the groups, with and without results (Table 2 of the report)."""
AGREE = 0.01
"""The two bars of a group tell the same number of searches, but for this share."""


def main() -> None:
    pixels = (imread(sys.argv[1])[..., :3] * 255).astype(float)
    marks = np.flatnonzero(pixels[:LEGEND, AXIS].sum(axis=1) < 150)
    centres = [group.mean() for group in np.split(marks, np.flatnonzero(np.diff(marks) > 1) + 1)]
    slope, start = np.polyfit(centres, TICKS, 1)
    rates, searches = {}, {}
    for colour, (group, rank, usual) in DOTS.items():
        near = np.abs(pixels - colour).sum(axis=2) < 60
        near[:, :PANEL] = near[LEGEND:] = False
        parts, _ = ndimage.label(near)
        rows, columns = np.nonzero(parts == np.bincount(parts[near]).argmax())
        wide = np.flatnonzero(np.bincount(rows) > 6)
        rate = (slope * (wide[0] + wide[-1]) / 2 + start) / 100
        bar = pixels[rows.min() - 2 : rows.max() + 3, int(columns.mean().round()) + np.array([-1, 0, 1])]
        shade = 1 - np.clip((bar - colour).sum(axis=2) / (765 - sum(colour)), 0, 1)
        length = -slope * shade.max(axis=1).sum() / 100
        rates[group, rank, usual] = rate
        searches.setdefault(group, []).append(rate * (1 - rate) * (3.92 / length) ** 2)
    for group, (one, other) in searches.items():
        if abs(one / other - 1) > AGREE or max(one, other) > ALL[group]:
            sys.exit(f"the bars of {group} tell {one:,.0f} and {other:,.0f} searches: the picture is another one")
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["group", "position", "usual_position", "rate_percent", "searches", "clicked", "all_searches"])
        for (group, rank, usual), rate in sorted(rates.items()):
            n = round(float(np.mean(searches[group])), -2)
            table.writerow([group, rank, usual, f"{100 * rate:.3f}", int(n), round(rate * n), ALL[group]])


if __name__ == "__main__":
    main()
