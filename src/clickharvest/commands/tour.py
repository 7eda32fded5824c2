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
    from clickharvest.commands.terminal import screen
    from clickharvest.logs.reading import read_log
    from clickharvest.model.loading import load_propensities
    from clickharvest.rank.rankers import load_ranker

    folder.mkdir(parents=True, exist_ok=True)
    console = screen()
    arxiv, shop = folder / "arxiv", folder / "shop"
    log, design = f"{arxiv}/log.parquet", f"--rankings {arxiv}/rankings.parquet --traffic f1=1,f2=1,f3=1"
    columns = f"--context {','.join(CONTEXT)}"
    pbm, cpbm = folder / "pbm.safetensors", folder / "cpbm.safetensors"

    def step(title: str, *commands: str) -> None:
        console.print(f"── {title}", style="bold cyan")
        for command in commands:
            console.print(f"{_typed(command)}\n", style="bold")
            program.find_root().command(shlex.split(command), standalone_mode=False)
            console.print()

    step(
        "1. A search engine's log, three rankers in an A/B test",
        f"simulate arxiv --queries 60000 --force --seed {seed} -o {arxiv}",
    )
    step("2. Can this log tell?", f"check {log} {columns} {design}")
    step("3. One curve for everybody: PBM", f"fit {log} {design} -o {pbm}")
    step("4. A curve that depends on the query: CPBM", f"fit {log} {columns} {design} -o {cpbm}")
    console.print("── 5. The truth, which only a simulation knows", style="bold cyan")
    models = {"clicks": click_rates(read_log(log)), "PBM": load_propensities(pbm), "CPBM": load_propensities(cpbm)}
    console.print(_curves(models, pq.read_table(arxiv / "truth.parquet")))
    console.print("Examination relative to position 1, of complex and of simple queries; clicks are click rates.\n")
    step("6. A page to look at and pass on", f"report {cpbm} --log {log} {design} -o {folder}/report.html")
    step("7. Weights for training", f"weigh {log} {cpbm} --clip auto -o {folder}/weighted.parquet")
    features = ",".join(f"x{j}" for j in range(1, 11))
    shown = f"{shop}/log.parquet --clicks clicks --impressions impressions"
    step(
        "8. A better ranker, from a second log: two rankers at 90/10, with document features",
        f"simulate --force --queries 1500 --test-queries 50 --sweeps 5 --traffic 90,10 --eta 2 --documents "
        f"--seed {seed} -o {shop}",
        f"fit {shown} --context {features} --rankings {shop}/rankings.parquet --traffic f1=9,f2=1 --curve power "
        f"--penalty 1 --intervals none -o {shop}.safetensors",
        f"rank {shown} {shop}/documents.parquet --model {shop}.safetensors --judgements {shop}/judgements.parquet "
        f"--C 1 -o {folder}/ranker.json",
    )
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
    own = {name.removesuffix(", as shown"): metrics["ndcg@10"] for name, metrics in judged.items()}
    gains = {name: own[NEW] - value for name, value in own.items() if name != NEW}
    beaten = [f"{name} by {_digits(gap)}" for name, gap in gains.items() if gap > 0]
    ahead = [f"{name}, ahead by {_digits(-gap)}" for name, gap in gains.items() if gap <= 0]
    told = [f"the new ranker beats {listed(beaten)}" if beaten else "the new ranker beats none"]
    told += [f"but not {' and '.join(ahead)}"] if ahead else []
    return f"By true grades (nDCG@10) {', '.join(told)}."


def _digits(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _typed(command: str) -> str:
    """Return a command as one types it on lines of less than 80 columns."""
    wrapper = TextWrapper(76, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return " \\\n".join(wrapper.wrap(f"$ clickharvest {command}"))


def _curves(models: dict[str, Propensities], truth: pa.Table) -> Table:
    """Return a table of estimates and truth, averaged over the pages of each kind that reach a position."""
    from rich.table import Table

    columns = {name: truth[name].to_numpy(zero_copy_only=False) for name in truth.column_names}
    positions = columns["position"].max()
    by_page = {name: values.reshape(-1, positions) for name, values in columns.items()}
    contexts = {name: by_page[name][:, 0] for name in CONTEXT}
    reached = by_page["results"] >= by_page["position"]
    curves = {"truth": by_page["examination"]} | {n: model.predict(contexts).propensity for n, model in models.items()}
    table = Table(box=None, header_style="bold")
    kinds = {"complex": contexts["complex"], "simple": ~contexts["complex"]}
    for header in ("position", *(f"{kind}\n{name}" for kind in kinds for name in curves)):
        table.add_column(header, justify="right", no_wrap=True)
    for k in POSITIONS:
        means = [curve[own & reached[:, k - 1], k - 1].mean() for own in kinds.values() for curve in curves.values()]
        table.add_row(str(k), *(f"{mean:.3f}" for mean in means))
    return table
