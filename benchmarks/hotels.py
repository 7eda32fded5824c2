"""A real log with a context: hotel lists of trivago (a public sample of the RecSys Challenge 2019), by device.

What `check --context device` prints of it, and the curve of `fit --curve power`, written into docs/hotels.md between
its marks. The log is not part of this repository: a Parquet file of page, query (the city), device, platform, time,
doc, position and click.

    make benchmark-hotels            # reads ../shared/data/trivago_clickouts.parquet
    python benchmarks/hotels.py --log hotels.parquet
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from accuracy import write_between_markers

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "hotels.md"


def run(*words: str | Path) -> list[str]:
    """Return the lines that a command prints, but for the last, the next command."""
    command = [sys.executable, "-m", "clickharvest", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[:-1]


def curve(lines: list[str]) -> list[str]:
    """Return the table of the curve."""
    start = next(i for i, line in enumerate(lines) if line.startswith("examination")) + 1
    return lines[start : lines.index("", start)]


def main() -> None:
    """Run both commands and write the page's blocks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", type=Path, default=ROOT.parent / "shared" / "data" / "trivago_clickouts.parquet")
    log = parser.parse_args().log
    with tempfile.TemporaryDirectory() as folder:
        checked = run("check", log, "--context", "device")
        model = Path(folder) / "model.safetensors"
        power = run("fit", log, "--context", "device", "--curve", "power", "--no-checks", "-o", model)
    lines = ["`check` prints:", "", *indented(checked), ""]
    lines += [
        "With `--curve power`, which follows a power law, steeper or flatter by device:",
        "",
        *indented(curve(power)),
    ]
    write_between_markers(PAGE, "hotels", "\n".join(lines))


def indented(lines: list[str]) -> list[str]:
    """Return lines as a block of a page."""
    return [f"    {line}".rstrip() for line in lines]


if __name__ == "__main__":
    main()
