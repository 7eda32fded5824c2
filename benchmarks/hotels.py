"""A real log with a context: hotel lists of trivago (a public sample of the RecSys Challenge 2019), by device.

What `check` and `fit --context device` find in it, written into docs/hotels.md between its marks. The log is not part
of this repository: a Parquet file of page, query (the city), device, platform, time, doc, position and click.

    make benchmark-hotels            # reads ../shared/data/trivago_clickouts.parquet
    python benchmarks/hotels.py --log hotels.parquet
"""

from __future__ import annotations

import argparse
from pathlib import Path

from clickharvest import CPBM, ClickLog, check_model, diagnose, harvest, read_log
from clickharvest.model.propensities import Propensities

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "hotels.md"
MARK = "<!-- numbers of benchmarks/hotels.py -->"
POSITIONS = (2, 3, 5, 10, 15, 25)


def describe(log: ClickLog) -> list[str]:
    """Return what the check says, as a list."""
    diagnosis = diagnose(log)
    findings = [f"- {finding.sentence}" for finding in diagnosis.findings]
    linked = "All positions are linked." if diagnosis.identified else "Not all positions are linked."
    facts = log.facts
    assert facts is not None
    told = f"{facts.impressions:,} impressions and {facts.clicks:,} clicks on {facts.pages:,} pages. {linked}"
    return [f"{told} The check says:", "", *findings]


def table(model: Propensities, devices: list[str]) -> list[str]:
    """Return propensities and their intervals, a row for each device."""
    predicted = model.predict({"device": devices})
    places = [list(predicted.positions).index(k) for k in POSITIONS]
    rows = ["| device | " + " | ".join(f"position {k}" for k in POSITIONS) + " |", "|---|" + "---|" * len(POSITIONS)]
    for i, device in enumerate(devices):
        known = predicted.propensity[i], predicted.lower[i], predicted.upper[i]
        cells = [f"{p[k]:.3f} ({low[k]:.3f} to {high[k]:.3f})" for p, low, high in [known] for k in places]
        rows.append(f"| {device} | {' | '.join(cells)} |")
    return rows


def main() -> None:
    """Run the whole of it and write the page's numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, default=ROOT.parent / "shared" / "data" / "trivago_clickouts.parquet")
    log = read_log(parser.parse_args().log, context=["device"])
    interventions = harvest(log)
    devices = ["mobile", "desktop", "tablet"]
    lines = [*describe(log), "", "Does a model fit, and is it the same for all devices?", ""]
    lines += [f"- {finding.sentence}" for finding in check_model(interventions)]
    chosen = CPBM(seed=0).fit(interventions).propensities_
    lines += ["", f"The curve that cross-validation selects is `{chosen.curve.name}`, the same for all devices:", ""]
    lines += table(chosen, devices[:1])
    power = CPBM(curve="power", seed=0).fit(interventions).propensities_
    lines += ["", "With `--curve power`, which lets the steepness depend on the device:", "", *table(power, devices)]
    before, _, after = PAGE.read_text().split(MARK)
    PAGE.write_text("\n".join([before + MARK, "", *lines, "", MARK + after]))


if __name__ == "__main__":
    main()
