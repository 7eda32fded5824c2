"""Photographs the top of a report with headless Chromium, for the README: `python docs/draw_report.py`.

The report is a real one, of a simulated A/B test on two devices.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from clickharvest import CPBM, harvest, read_log
from clickharvest.report import summarise_log, write_report
from clickharvest.simulate import simulate_ab_log

PICTURE = Path(__file__).parent / "report.png"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1000, 960
"""The width of the page, and where its first section ends."""


def find_browser() -> str | None:
    """Return the browser's program, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def draw_report(picture: Path, browser: str) -> None:
    """Write the picture of a report as PNG."""
    table, _ = simulate_ab_log(pages=40_000, queries=1_000, seed=0)
    # Pages are numbered as they came, which is their time.
    log = read_log(table.append_column("time", table["page"]), context=["device"], page="page", time="time")
    model = CPBM(curve="linear").fit(harvest(log)).propensities_
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page, model, summarise_log(log, model, name="clicks.parquet"))
        size = (f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={folder}/profile")
        command = [browser, *flags, *size, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    program = find_browser()
    if program is None:
        sys.exit(f"no browser found: install one of {', '.join(NAMES)}")
    draw_report(PICTURE, program)
    print(f"{PICTURE.name}: drawn")
