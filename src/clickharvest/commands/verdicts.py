"""What `rank` prints: what was tried and trained, what it is worth, and whether to use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clickharvest.words import count

if TYPE_CHECKING:
    from rich.console import Console

    from clickharvest.rank.comparison import Comparison
    from clickharvest.rank.estimates import Estimate

VERDICT = "dcg@10"
"""The metric that the verdict goes by."""


def verdict(shown: str, gap: Estimate) -> str:
    """Return one sentence: does the ranker beat the best that was shown, by the metric of `VERDICT`?"""
    told = f"{VERDICT} {gap.value:+.3f}, from {gap.lower:+.3f} to {gap.upper:+.3f}"
    if gap.lower > 0:
        return f"The new ranker beats the best that was shown ({shown}) on held-out queries: {told}."
    if gap.upper < 0:
        return f"Keep the best that was shown ({shown}): the new ranker is worse on held-out queries, {told}."
    return f"Keep the best that was shown ({shown}), or test both: held-out clicks cannot tell them apart, {told}."


def print_rank(told: Mapping[str, Any], found: list[Comparison], best: str, level: float) -> None:
    """Print what was trained, what it is worth, and the verdict."""
    from rich.table import Table

    from clickharvest.commands.terminal import screen
    from clickharvest.rank.comparison import NAIVE, NEW

    console = screen()
    chosen = ", ".join(f"{name} {told[name]:.4g}" for name in ("C", "clip", "penalty") if name in told)
    chosen = f"loss {told['loss']}{', ' * bool(chosen)}{chosen}"
    sizes = [
        f"{count(told[part]['queries'], 'query', 'queries')} ({count(told[part]['clicks'], 'click')})"
        for part in ("train", "test")
    ]
    if told["tried"] is not None:
        _print_tried(console, told["tried"], told["left_out"])
    console.print(f"Trained {told['learner']} with {count(told['features'], 'feature')} on {sizes[0]}: {chosen}.")
    console.print(_worth(told))
    how = "held out" if told["tried"] is None else "by rankers that had not seen the query"
    console.print(f"Judged on {sizes[1]} {how}, by SNIPS; {level:.0%} intervals:\n")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in (NEW, "minus best shown", f"minus {NAIVE}"):
        table.add_column(name, justify="right")
    for row in found:
        cells = (row.estimates[NEW], row.differences[best], row.differences[NAIVE])
        table.add_row(row.metric, *(_spell(cell, signed=i > 0) for i, cell in enumerate(cells)))
    console.print(table)
    console.print(
        "\nrelevant_rank is the mean rank of a relevant document: lower is better. Higher is better for the others."
    )
    console.print(f"\n{told['verdict']}")
    if (judged := told["judged"]) is not None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column(count(judged["queries"], "judged query", "judged queries"))
        for name in judged["rankers"]:
            table.add_column(name, justify="right")
        for metric in next(iter(judged["rankers"].values())):
            table.add_row(metric, *(f"{own[metric]:.4g}" for own in judged["rankers"].values()))
        console.print()
        console.print(table)
    console.print(f"\nSaved: {told['file']}")


def _worth(told: Mapping[str, Any]) -> str:
    """Return what the clicks are worth: their effective number, those without support, those without features."""
    total = told["train"]["clicks"] + (told["test"]["clicks"] if told["tried"] is None else 0)
    parts = [f"Effective sample size: {told['effective_clicks']:,.0f} of {count(total, 'click')}"]
    if (share := told["unsupported_clicks"]) is not None:
        where = "at positions or in contexts that the model has no estimate of its own for"
        parts.append(f"{share:.1%} are {where}{', and left out' * told['corrected']}")
    if told["dropped_clicks"]:
        whole = total + told["dropped_clicks"]
        parts.append(f"{told['dropped_clicks'] / whole:.1%} were dropped, on documents without features")
    corrected = "Clicks are corrected, (click - offset) / slope. " if told["corrected"] else ""
    return f"{corrected}{'; '.join(parts)}."


def _print_tried(console: Console, tried: list[dict[str, Any]], left_out: Mapping[str, str]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tried, best first")
    table.add_column(VERDICT, justify="right")
    table.add_column("")
    for one in tried:
        reach = one["upper"] - one["value"]
        table.add_row(one["candidate"], f"{one['value']:.3f} ± {reach:.3f}", "chosen" if one["chosen"] else "")
    console.print(table)
    for why in dict.fromkeys(left_out.values()):
        names = [name for name, own in left_out.items() if own == why]
        console.print(f"Not tried: {', '.join(names)}: {why}.")
    console.print()


def _spell(estimate: Estimate, *, signed: bool) -> str:
    reach = estimate.upper - estimate.value
    return f"{estimate.value:{'+.3f' if signed else '.3f'}} ± {reach:.3f}"
