"""The long demo: simulated logs with known truth, taken through every command as a user would type it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING

import typer

from clickharvest.words import listed

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from clickharvest.model.propensities import Propensities

CONTEXT = ("complex", "query_len")
NEW = "new ranker"
POSITIONS = (1, 2, 3, 5, 8, 13, 21)
ARXIV = "--rankings {arxiv}/rankings.parquet --traffic f1=1,f2=1,f3=1"
SHOP = "{shop}/log.parquet --clicks clicks --impressions impressions"

ESTIMATE = {
    "1. A search engine's log, three rankers in an A/B test": [
        "simulate arxiv --queries 60000 --force --seed {seed} -o {arxiv}"
    ],
    "2. Can this log tell?": ["check {arxiv}/log.parquet --context {context} " + ARXIV],
    "3. One curve for everybody: PBM": ["fit {arxiv}/log.parquet " + ARXIV + " -o {folder}/pbm.safetensors"],
    "4. A curve that depends on the query: CPBM": [
        "fit {arxiv}/log.parquet --context {context} " + ARXIV + " -o {folder}/cpbm.safetensors"
    ],
}
USE = {
    "6. A page to look at and pass on": [
        "report {folder}/cpbm.safetensors --log {arxiv}/log.parquet " + ARXIV + " -o {folder}/report.html"
    ],
    "7. Weights for training": [
        "weigh {arxiv}/log.parquet {folder}/cpbm.safetensors --clip auto -o {folder}/weighted.parquet"
    ],
    "8. A better ranker, from a second log: two rankers at 90/10, with document features": [
        "simulate --force --queries 1500 --test-queries 50 --sweeps 5 --traffic 90,10 --eta 2 --documents "
        "--seed {seed} -o {shop}",
        "fit " + SHOP + " --context {features} --rankings {shop}/rankings.parquet --traffic f1=9,f2=1 --curve power "
        "--penalty 1 --intervals none -o {shop}.safetensors",
        "rank " + SHOP + " {shop}/documents.parquet --model {shop}.safetensors --judgements {shop}/judgements.parquet "
        "--C 1 -o {folder}/ranker.json",
    ],
}
NEXT = """\
On a log of your own (other column names: clickharvest check --help):

  clickharvest check clicks.parquet --context device
  clickharvest fit clicks.parquet --context device -o model.safetensors
  clickharvest report model.safetensors --log clicks.parquet -o report.html
"""


def tour(program: typer.Context, folder: Path, seed: int) -> None:
    """Take simulated logs with known truth through every command, to a report and a better ranker.

    Args:
        program: the command line, whose commands are run.
        folder: the folder of the files that the commands write.
        seed: seed of the simulations.
    """
    import pyarrow.parquet as pq

    from clickharvest.baselines import click_rates
    from clickharvest.commands.tables import screen
    from clickharvest.logs.reading import read_log
    from clickharvest.model.loading import load_propensities
    from clickharvest.rank.rankers import load_ranker

    folder.mkdir(parents=True, exist_ok=True)
    console = screen()
    words = {"folder": folder, "arxiv": folder / "arxiv", "shop": folder / "shop", "seed": seed,
             "context": ",".join(CONTEXT), "features": ",".join(f"x{j}" for j in range(1, 11))}  # fmt: skip

    def run(steps: Mapping[str, list[str]]) -> None:
        for title, commands in steps.items():
            console.print(f"── {title}", style="bold cyan")
            for command in (command.format(**words) for command in commands):
                console.print(f"{_typed(command)}\n", style="bold")
                program.find_root().command(shlex.split(command), standalone_mode=False)
                console.print()

    run(ESTIMATE)
    console.print("── 5. The truth, which only a simulation knows", style="bold cyan")
    models = {"clicks": click_rates(read_log(folder / "arxiv" / "log.parquet"))}
    models |= {name.upper(): load_propensities(folder / f"{name}.safetensors") for name in ("pbm", "cpbm")}
    console.print(_curves(models, pq.read_table(folder / "arxiv" / "truth.parquet")))
    console.print("Examination relative to position 1, of complex and of simple queries; clicks are click rates.\n")
    run(USE)
    console.print(f"{_outcome(load_ranker(folder / 'ranker.json').info['judged']['judged']['rankers'])}\n")
    console.print("── What next?", style="bold cyan")
    console.print(f"Open {folder}/report.html in a browser.\n\n{NEXT}", soft_wrap=True)


def _outcome(judged: Mapping[str, Mapping[str, float]]) -> str:
    """Return a sentence on whether the new ranker is the best by true grades, which only a simulation knows.

    Example:
        >>> _outcome({name: {"ndcg@10": value} for name, value in ((NEW, 0.7), ("naive clicks", 0.72), ("f1", 0.6))})
        'By true grades (nDCG@10) the new ranker beats f1 by .100, but not naive clicks, ahead by .020.'
        >>> _outcome({name: {"ndcg@10": value} for name, value in ((NEW, 0.7), ("f1", 0.6), ("f2", 0.6), ("f3", 0.5))})
        'By true grades (nDCG@10) the new ranker beats f1 by .100, f2 by .100 and f3 by .200.'
    """
    ndcg = {name.removesuffix(", as shown"): metrics["ndcg@10"] for name, metrics in judged.items()}
    gains = {name: ndcg[NEW] - value for name, value in ndcg.items() if name != NEW}
    beaten = [f"{name} by {_digits(gain)}" for name, gain in gains.items() if gain > 0]
    ahead = [f"{name}, ahead by {_digits(-gain)}" for name, gain in gains.items() if gain <= 0]
    sentence = f"the new ranker beats {listed(beaten) if beaten else 'none'}"
    return f"By true grades (nDCG@10) {sentence}{f', but not {listed(ahead)}' if ahead else ''}."


def _digits(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _typed(command: str) -> str:
    """Return a command as one types it on lines of less than 80 columns."""
    wrapper = TextWrapper(76, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(wrapper.wrap(f"$ clickharvest {command}"))


def _curves(models: dict[str, Propensities], truth: pa.Table) -> Table:
    """Return a table of estimates and truth, averaged over the pages of each kind that reach a position."""
    from clickharvest.commands.tables import plain_table

    columns = {name: truth[name].to_numpy(zero_copy_only=False) for name in truth.column_names}
    positions = columns["position"].max()
    by_page = {name: values.reshape(-1, positions) for name, values in columns.items()}
    contexts = {name: by_page[name][:, 0] for name in CONTEXT}
    reached = by_page["results"] >= by_page["position"]
    curves = {"truth": by_page["examination"]} | {n: model.predict(contexts).propensity for n, model in models.items()}
    kinds = {"complex": contexts["complex"], "simple": ~contexts["complex"]}
    rows = []
    for k in POSITIONS:
        pages = [kind & reached[:, k - 1] for kind in kinds.values()]
        rows.append((str(k), *(f"{curve[page, k - 1].mean():.3f}" for page in pages for curve in curves.values())))
    return plain_table(("position", *(f"{kind}\n{name}" for kind in kinds for name in curves)), rows, left=0, whole=0)
