"""A real log: which examination curve of one half explains how clicks fall on positions in the other half?

    .venv/bin/python benchmarks/real_log.py
    .venv/bin/python benchmarks/real_log.py --log yandex_sessions.parquet --replicates 200

Sessions are dealt into two halves by a seeded hash. Every estimator sees one half; its score is the click-share log
likelihood per click, Σ C log π / Σ C with π_{u,k} = e_{u,k} p_k / Σ_j e_{u,j} p_j, of the interventions of the other
half, at the positions all estimators speak of. Where two scores are close, one split may be luck: the comparison is
repeated on `--splits` other splits, and how often ClickShare wins is told. Writes its tables into
`benchmarks/README.md`, and exits with 1 where the bar is missed: ClickShare beats CTR, 1/k, PivotOne, AdjacentChain
and EM both ways round.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clickharvest import harvest, read_log
from clickharvest.baselines import adjacent_chain, click_rates, em, pivot_one
from clickharvest.curves import Constant
from clickharvest.estimators import PBM
from clickharvest.interventions import Interventions
from clickharvest.predictions import Prediction
from clickharvest.propensities import Propensities
from clickharvest.samples import Sample, make_sample

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "benchmarks" / "README.md"
BEGIN, END = "<!-- real-log:begin -->", "<!-- real-log:end -->"
LOG = ROOT.parent / "shared" / "data" / "yandex_sessions.parquet"

DOMINANT = "9982_0"
OURS = "ClickShare"
PEERS = ("CTR", "1/k", "PivotOne", "AdjacentChain", "EM")
"""What ClickShare must beat; AllPairs is shown without a bar."""

Models = dict[str, Propensities]


@dataclass(frozen=True)
class Half:
    """One half of the sessions: its interventions, and every estimator fitted to it."""

    name: str
    interventions: Interventions
    models: Models


def main() -> None:
    """Fit, score, write and judge."""
    options = parse_options()
    if not options.log.is_file():
        print(f"skipped: there is no file {options.log}; name the log with --log")
        return
    rows = pq.read_table(options.log)
    without = rows.filter(pc.not_equal(rows["query"], DOMINANT))
    bars: list[str] = []
    text: list[str] = []
    for title, log in (("All queries", rows), (f"Without query {DOMINANT}", without)):
        halves = [fit(*half, options) for half in split(log, options.seed)]
        scores = score_both_ways(halves)
        own = judge(scores)
        # The bar is about the log as it is; what the dominant query hides is told, not judged.
        bars += own if log is rows else []
        lines = [bar if log is rows else bar.partition(": ")[2] for bar in own]
        text += [f"**{title}.** {told(halves)}", "", *score_table(scores), ""]
        text += [*(f"- {line}" for line in lines), "", *curve_table(halves), ""]
    text += [*repeat_table(rows, options), "", machine(options)]
    print("\n".join(text))
    write_between_markers(README, "\n".join(text))
    sys.exit(any(bar.startswith("FAIL") for bar in bars))


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--log", type=Path, default=LOG, help="Parquet file: session, query, doc, position, click")
    parser.add_argument("--replicates", type=int, default=1_000, help="bootstrap replicates of ClickShare")
    parser.add_argument("--splits", type=int, default=20, help="further splits to compare on")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split and the bootstrap")
    return parser.parse_args()


def split(rows: pa.Table, seed: int) -> list[tuple[str, pa.Table]]:
    """Deal the sessions into two halves."""
    sessions, code = np.unique(rows["session"].to_numpy(), return_inverse=True)
    digests = [hashlib.blake2b(f"{seed}:{session}".encode(), digest_size=1).digest()[0] for session in sessions]
    odd = (np.array(digests) % 2 == 1)[code]
    return [("A", rows.filter(pa.array(~odd))), ("B", rows.filter(pa.array(odd)))]


def fit(name: str, rows: pa.Table, options: argparse.Namespace) -> Half:
    """Fit every estimator to one half."""
    log = read_log(rows, page="session", validate=False)
    interventions = harvest(log)
    ours = PBM(replicates=options.replicates, seed=options.seed) if options.replicates else PBM(intervals=None)
    models = {
        OURS: ours.fit(interventions).propensities_,
        "CTR": click_rates(log),
        "1/k": one_over_k(ours.propensities_.shown),
        "PivotOne": pivot_one(interventions),
        "AdjacentChain": adjacent_chain(interventions),
        "EM": em(log),
        "AllPairs": PBM(objective="allpairs", intervals=None).fit(interventions).propensities_,
    }
    return Half(name, interventions, models)


def repeat_table(rows: pa.Table, options: argparse.Namespace) -> list[str]:
    """Return how often, and by how much, ClickShare wins on other splits, as a Markdown table."""
    if not options.splits:
        return []
    gains: dict[str, list[float]] = {name: [] for name in (*PEERS, "AllPairs")}
    plain = argparse.Namespace(replicates=0)
    for seed in range(options.seed + 1, options.seed + 1 + options.splits):
        halves = [fit(*half, plain) for half in split(rows, seed)]
        for own in score_both_ways(halves).values():
            for name, gain in gains.items():
                gain.append(1e3 * (own[OURS] - own[name]))
    lines = [
        f"{options.splits} further splits of all queries, both ways round; gains of {OURS} in thousandths per click.",
        "",
        f"| against | {OURS} wins | both ways round | mean gain | least | greatest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, gain in gains.items():
        won = np.reshape(gain, (-1, 2)) > 0
        wins = f"{won.sum()} of {won.size} | {won.all(axis=1).sum()} of {len(won)}"
        lines.append(f"| {name} | {wins} | {np.mean(gain):.3f} | {min(gain):.3f} | {max(gain):.3f} |")
    return lines


def one_over_k(shown: tuple[int, ...]) -> Propensities:
    """Return p_k = 1/k."""
    curve = Constant(shown, shown[0], 0)
    return Propensities(curve=curve, params={"b": -np.log(np.array(shown[1:]) / shown[0])}, encoder=None, shown=shown)


def score_both_ways(halves: list[Half]) -> dict[str, dict[str, float]]:
    """Return the scores of every estimator, by the direction in which it went."""
    first, second = halves
    return {f"{a.name} → {b.name}": score(a.models, b.interventions) for a, b in ((first, second), (second, first))}


def score(models: Mapping[str, Propensities], interventions: Interventions) -> dict[str, float]:
    """Return the held-out click-share log likelihood per click of each model."""
    common = set.intersection(*(set(model.curve.positions) for model in models.values()))
    sample = make_sample(interventions, tuple(sorted(common)))
    return {name: click_share(sample, model.predict()) for name, model in models.items()}


def click_share(sample: Sample, prediction: Prediction) -> float:
    """Return Σ C log π / Σ C."""
    column = [prediction.positions.index(k) for k in sample.positions]
    weight = sample.exposure * prediction.propensity[0, column][sample.position]
    log_share = np.log(weight / np.bincount(sample.unit, weight)[sample.unit])
    return float((sample.clicks * log_share).sum() / sample.clicks.sum())


def judge(scores: dict[str, dict[str, float]]) -> list[str]:
    """Return a sentence for each direction."""
    bars = []
    for direction, own in scores.items():
        best = max(PEERS, key=own.__getitem__)
        verdict = "PASS" if own[OURS] > own[best] else "FAIL"
        bars.append(
            f"{verdict}: {direction}: {OURS} {own[OURS]:.5f}, the best of its peers {best} {own[best]:.5f} "
            "(bar: above all of them)"
        )
    return bars


def told(halves: list[Half]) -> str:
    """Return the sizes of the halves."""
    sizes = [f"{half.name} has {str(half.interventions).removeprefix('Interventions: ')}" for half in halves]
    return "; ".join(sizes) + "."


def score_table(scores: dict[str, dict[str, float]]) -> list[str]:
    """Return the scores as a Markdown table, and how far they are from ours in thousandths."""
    lines = [
        "| fitted → scored | " + " | ".join((OURS, *PEERS, "AllPairs")) + " |",
        "|---|" + "--:|" * (len(PEERS) + 2),
    ]
    for direction, own in scores.items():
        others = " | ".join(f"{own[name]:.5f} ({1e3 * (own[name] - own[OURS]):+.2f})" for name in (*PEERS, "AllPairs"))
        lines.append(f"| {direction} | {own[OURS]:.5f} | {others} |")
    return lines


def curve_table(halves: list[Half]) -> list[str]:
    """Return the curves of both halves as a Markdown table, ours with its interval."""
    names = [name for name in halves[0].models if name != "1/k"]
    heads = [f"{name} {half.name}" for name in names for half in halves]
    lines = ["| position | " + " | ".join(heads) + " |", "|--:|" + "--:|" * len(heads)]
    predictions = {(name, half.name): half.models[name].predict() for name in names for half in halves}
    for k in halves[0].models[OURS].shown:
        cells = [cell(predictions[name, half.name], k) for name in names for half in halves]
        lines.append(f"| {k} | " + " | ".join(cells) + " |")
    return lines


def cell(prediction: Prediction, k: int) -> str:
    """Return one propensity, with its interval where there is one."""
    if k not in prediction.positions:
        return "not shown"
    i = prediction.positions.index(k)
    value, lower, upper = (part[0, i] for part in (prediction.propensity, prediction.lower, prediction.upper))
    if np.isnan(value):
        return "no estimate"
    return f"{value:.3f}" if np.isnan(lower) or lower == upper else f"{value:.3f} ({lower:.3f}-{upper:.3f})"


def machine(options: argparse.Namespace) -> str:
    """Return a line on the run."""
    return (
        f"Seed {options.seed}, {options.replicates:,} bootstrap replicates by query; Python "
        f"{platform.python_version()}, JAX {version('jax')}; {datetime.now(UTC):%Y-%m-%d}."
    )


def write_between_markers(path: Path, text: str) -> None:
    """Replace what stands between the markers of a file, whole or not at all."""
    before, rest = path.read_text().split(BEGIN)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
    partial.replace(path)


if __name__ == "__main__":
    main()
