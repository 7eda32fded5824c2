"""The public cases: what outside truth says, what we say, what click rates say. Writes the blocks of docs/public/*.md.

    make benchmark-public_truth
    .venv/bin/python benchmarks/public_truth.py --cases expedia wikipedia

Expedia, Yandex and trivago are read from ../shared/data (or --data). Open Bandit comes with the package obp, which pip
downloads. Wikipedia and Baidu are published figures, in `benchmarks/public`. Where all cases have run, the table of the
README and of docs/public/index.md is written, too.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tables import write_between_markers

from clickharvest import PBM, harvest, read_log

HERE = Path(__file__).resolve().parent
ROOT, PUBLIC = HERE.parent, HERE / "public"
PAGES = ROOT / "docs" / "public"
OBP = "obp==0.4.1"
sys.path.insert(0, str(PUBLIC))


class Row(NamedTuple):
    """A row of the table."""

    case: str
    truth: str
    ours: str
    rates: str


def run(*words: str | Path) -> list[str]:
    """Return the lines that a command prints."""
    command = [sys.executable, "-m", "clickharvest", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def write(page: str, block: str, command: str, lines: list[str]) -> None:
    """Write what a command printed into a page, without its last line where that is the next command."""
    shown = [line for line in lines if not line.startswith("next:")]
    text = "\n".join(["```console", f"$ clickharvest {command}", *shown, "```"])
    write_between_markers(PAGES / f"{page}.md", block, text)


def spell(numbers: list[float]) -> str:
    """Return a number with the ends of its interval."""
    estimate, lower, upper = (f"{number:.2f}" for number in numbers)
    return f"{estimate} ({lower} to {upper})"


def compared(log: Path, *options: str) -> tuple[list[str], dict[str, Any]]:
    """Return what `validate` prints, as lines and as JSON."""
    words = ("validate", log, "--random", "ranker=random", *options)
    return run(*words), json.loads("\n".join(run(*words, "--json")))


def answer(found: dict[str, Any]) -> str:
    """Return whether both agree, how large a difference could hide, and what the budget had said."""
    agrees = {True: "agrees", False: "differs", None: "too few clicks to tell"}[found["agrees"]]
    hidden = f"{100 * found['could_hide']:.0f} % could hide"
    return f"power {spell(found['power']['harvested'])}; {agrees}, {hidden}; budget: {found['budget']['word']}"


def expedia(data: Path) -> Row:
    """Hotels in random order."""
    log = data / "expedia_pieces.parquet"
    everything, _ = compared(log)
    write("expedia", "expedia-all", "validate hotels.parquet --random ranker=random", everything)
    alike, found = compared(log, "--pages-with", "booked")
    write("expedia", "expedia", "validate hotels.parquet --random ranker=random --pages-with booked", alike)
    places = duckdb.sql(
        f"""SELECT position, ranker, count(*) AS shown, sum(click) AS clicks FROM '{log}'
        WHERE position BETWEEN 4 AND 24 GROUP BY ALL ORDER BY position"""
    ).fetchall()
    lines = ["| position | ordinary: rows | clicks | random: rows | clicks |", "|--:|--:|--:|--:|--:|"]
    for k in (4, 5, 6, 10, 11, 12, 16, 17, 18, 22, 23, 24):
        own = {ranker: (shown, clicks) for position, ranker, shown, clicks in places if position == k}
        cells = [f"{number:,.0f}" for ranker in ("expedia", "random") for number in own.get(ranker, (0, 0))]
        lines.append(f"| {k} | {' | '.join(cells)} |")
    write_between_markers(PAGES / "expedia.md", "expedia-places", "\n".join(lines))
    power = found["power"]
    return Row(
        "[Expedia](PAGES/expedia.md), hotels in random order, searches with a booking",
        f"power of k {spell(power['random'])}", answer(found), f"power {spell(power['rates'])}",
    )  # fmt: skip


def open_bandit(_: Path) -> Row:
    """Three places side by side."""
    from open_bandit import read

    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, OBP]
        subprocess.run(pip, check=True, capture_output=True)
        log = Path(folder) / "log.parquet"
        pq.write_table(read(next(Path(folder).glob("*.whl"))), log)
        lines, found = compared(log, "--query", "")
    write("open_bandit", "open-bandit", 'validate log.parquet --query "" --random ranker=random', lines)
    power = found["power"]
    return Row(
        "[Open Bandit](PAGES/open_bandit.md), items drawn at random",
        f"power {spell(power['random'])}: flat", answer(found), f"power {spell(power['rates'])}",
    )  # fmt: skip


def wikipedia(_: Path) -> Row:
    """Results 2 and 3 swapped."""
    with (PUBLIC / "wikipedia_swap.csv").open() as file:
        rows = list(csv.DictReader(file))
    counts = {
        (int(row["usual_position"]), int(row["position"])): (int(row["clicked"]), int(row["searches"])) for row in rows
    }
    lines = ["| result | clicked at 2 | at 3 | p₃ / p₂ |", "|---|--:|--:|--:|"]
    ratios = []
    for usual in (2, 3):
        (above, shown), (below, shown_below) = counts[usual, 2], counts[usual, 3]
        ratio, error = (below / shown_below) / (above / shown), np.sqrt(1 / above + 1 / below)
        ratios.append(spell([ratio, ratio * np.exp(-1.96 * error), ratio * np.exp(1.96 * error)]))
        rates = f"{100 * above / shown:.2f} % | {100 * below / shown_below:.2f} %"
        lines.append(f"| usually at {usual} | {rates} | {ratios[-1]} |")
    (a, m), (b, n), (c, k), (d, j) = (counts[key] for key in ((2, 2), (2, 3), (3, 2), (3, 3)))
    z = np.log((b / n) / (a / m)) - np.log((d / j) / (c / k))
    p = 2 * NormalDist().cdf(-abs(z) / np.sqrt(1 / a + 1 / b + 1 / c + 1 / d))
    swapped = counts[2, 3][1] / (counts[2, 3][1] + counts[2, 2][1])
    naive = (counts[3, 3][0] / counts[3, 3][1]) / (counts[2, 2][0] / counts[2, 2][1])
    table = {
        "query": ["all"] * 4, "doc": [str(row["usual_position"]) for row in rows],
        "position": [int(row["position"]) for row in rows], "clicks": [int(row["clicked"]) for row in rows],
        "impressions": [int(row["searches"]) for row in rows],
    }  # fmt: skip
    model = PBM(anchor=2, intervals=None).fit(harvest(read_log(pa.table(table)))).propensities_
    ours = float(model.predict().propensity[0, -1])
    lines += [f"| `fit --anchor 2` on both | | | {ours:.2f} |", f"| click rates without the swap | | | {naive:.2f} |"]
    lines += ["", f"{100 * swapped:.0f} % of the searches with results had them swapped."]
    lines[-1] += f" Equal ratios would differ as much by chance with p = {p:.2f}."
    write_between_markers(PAGES / "wikipedia.md", "wikipedia", "\n".join(lines))
    return Row(
        "[Wikipedia](PAGES/wikipedia.md), results 2 and 3 swapped",
        f"p₃ / p₂ {ratios[0]} and {ratios[1]}", f"{ours:.2f} from both", f"{naive:.2f}",
    )  # fmt: skip


def yandex(data: Path) -> Row:
    """Twenty queries, nothing randomised."""
    return _without_truth("yandex", "Yandex", data / "yandex_sessions.parquet", "--page", "session")


def trivago(data: Path) -> Row:
    """Hotel lists by device, nothing randomised."""
    return _without_truth("trivago", "trivago", data / "trivago_clickouts.parquet", "--context", "device")


def _without_truth(page: str, name: str, log: Path, *options: str) -> Row:
    """Write what `check` says of a log in which nothing was randomised."""
    words = " ".join(options)
    write(page, page, f"check {page}.parquet {words}", run("check", log, *options))
    found = json.loads("\n".join(run("check", log, *options, "--json")))["budget"]
    size = "no bound" if found["off"] is None else f"a factor of {1 + found['off']:.1f}"
    settle = "swap neighbours, or show a few pages in random order"
    return Row(f"[{name}](PAGES/{page}.md)", "none", f"{found['word']} ({size}): {settle}", "–")


def baidu(_: Path) -> Row:
    """Published propensities, side by side."""
    with (PUBLIC / "baidu.csv").open() as file:
        rows = list(csv.DictReader(file))
    versions = list(dict.fromkeys(row["version"] for row in rows))
    columns = {
        "global_all_pairs": "AllPairs",
        "pivot_one": "PivotOne",
        "adjacent_chain": "AdjacentChain",
        "ctr": "click rates",
    }
    last: dict[str, list[float]] = {}
    lines = [f"| published | position | {' | '.join(columns.values())} |", f"|---|{'--:|' * (len(columns) + 1)}"]
    for version in versions:
        for row in (row for row in rows if row["version"] == version and int(row["position"]) in (2, 3, 5, 10, 15)):
            numbers = [float(row[name]) for name in columns]
            if row["position"] == "10":
                last[version] = numbers
            lines.append(f"| {version} | {row['position']} | {' | '.join(f'{number:.3g}' for number in numbers)} |")
    write_between_markers(PAGES / "baidu.md", "baidu", "\n".join(lines))
    final = last[versions[-1]]
    return Row(
        "[Baidu-ULTR](PAGES/baidu.md), published numbers, position 10",
        "none", "the log is not here",
        f"{final[-1]:.3f}; three estimators {min(final[:3]):.3f} to {max(final[:3]):.3f}",
    )  # fmt: skip


CASES: dict[str, Callable[[Path], Row]] = {
    one.__name__: one for one in (expedia, open_bandit, wikipedia, yandex, trivago, baidu)
}


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the logs")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    rows = []
    for name in options.cases:
        print(name, flush=True)
        rows.append(CASES[name](options.data))
    if options.cases == list(CASES):
        head = ["| case | what the truth says | what clickharvest says | what click rates say |", "|---|---|---|---|"]
        text = "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])
        write_between_markers(PAGES / "index.md", "public", text.replace("PAGES/", ""))
        write_between_markers(ROOT / "README.md", "public", text.replace("PAGES/", "docs/public/"))


if __name__ == "__main__":
    main()
