"""What `rank` prints: what was tried and trained, what it is worth, and whether to use it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from clickharvest.words import clean_text, count, spell_times

if TYPE_CHECKING:
    from rich.console import Console

    from clickharvest.rank.comparison import Comparison
    from clickharvest.rank.estimates import Estimate
    from clickharvest.rank.tables import Clicks

VERDICT = "dcg@10"
"""The metric that the verdict goes by."""


MOST_TIMES = 1_000
"""How many times a log are worth collecting to tell two rankers apart."""
LEAST_SHOWN = 0.8
"""Share of the new ranking that users must have seen for a verdict."""


def verdict(best: str, row: Comparison, clicks: Clicks) -> str:
    """Return whether the new ranker beats the best that was shown, and whether propensities helped it.

    Args:
        best: the best ranking that was shown.
        row: the comparison by the metric of `VERDICT`.
        clicks: what it rests on.
    """
    from clickharvest.rank.comparison import NAIVE, NEW
    from clickharvest.rank.tables import STEADY

    shown = f"what was shown ({clean_text(best)})"
    if clicks.reason:
        return f"No verdict: keep {shown}; propensities are not known, since {clicks.reason.rstrip('.')}."
    if (unseen := row.estimates[NEW].unseen) > 1 - LEAST_SHOWN:
        return f"No verdict: {unseen:.0%} of the new ranking was never shown, and clicks tell nothing of it. Test it."
    if clicks.lists == "query" and clicks.steady < STEADY:
        why = f"a result is on {clicks.steady:.0%} of the other pages of its query"
        return f"No verdict: {why}, so that these documents never competed. Name the column of pages (--page)."
    gap, own = row.differences[best], row.differences[NAIVE]
    if gap.lower > 0:
        answer = f"Better: the new ranker beats {shown}, {_gap(gap)}."
    elif gap.upper < 0:
        answer = f"Worse: keep {shown}; the new ranker loses to it, {_gap(gap)}."
    else:
        answer = f"No verdict: keep {shown}, or test both; {_gap(gap)}. {_needed(gap)}"
    if own.value == 0 and own.std_error == 0:
        helped = "Propensities changed nothing: those of most clicks are too uncertain, or all are alike."
    elif own.lower > 0:
        helped = f"Propensities helped: {_gap(own)} over the same ranker at face value."
    elif own.upper < 0:
        helped = f"Propensities harmed: {_gap(own)} to the same ranker at face value."
    else:
        helped = f"Propensities made no clear difference: {_gap(own)} over the same ranker at face value."
    return f"{answer} {helped}"


def _gap(gap: Estimate) -> str:
    return f"{gap.metric} {_spell(gap)}"


def _needed(gap: Estimate) -> str:
    """Return how many clicks would tell a difference of this size from none."""
    reach = gap.std_error * float(NormalDist().inv_cdf((1 + gap.level) / 2))
    end = gap.lower if gap.value > 0 else -gap.upper
    if end + reach <= 0:
        return "More clicks alone do not decide it: propensities may be too far off (clickharvest show MODEL)."
    times = (reach / gap.value) ** 2
    if times > MOST_TIMES:
        return "A difference this small takes more clicks than are worth collecting."
    return f"About {spell_times(times)} times these clicks would decide, if the difference is this large."


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
        shown = {one["ranker"] for one in told["estimates"]} - {NEW, NAIVE, best}
        _print_tried(console, [one for one in told["tried"] if one["candidate"] not in shown])
    console.print(f"Trained {told['learner']} with {count(told['features'], 'feature')} on {sizes[0]}: {chosen}.")
    console.print(_worth(told))
    how = "held out" if told["tried"] is None else "by rankers that had not seen the query"
    console.print(
        f"Judged on {sizes[1]} {how}, by SNIPS, where documents of a {told['lists']} compete; {level:.0%} intervals, "
        "of this log's queries and their traffic:\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in (NEW, "minus best shown", f"minus {NAIVE}"):
        table.add_column(name, justify="right")
    for row in found:
        gaps = (_spell(row.differences[rival]) for rival in (best, NAIVE))
        table.add_row(row.metric, f"{row.estimates[NEW].value:.3f}", *gaps)
    console.print(table)
    console.print("relevant_rank, the mean rank of a relevant document, is better if lower.")
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
    console.print(f"Saved: {told['file']}")


def _worth(told: Mapping[str, Any]) -> str:
    """Return what the clicks are worth: their effective number, those without support, those without features."""
    total = told["train"]["clicks"] + (told["test"]["clicks"] if told["tried"] is None else 0)
    parts = [f"Effective sample size: {told['effective_clicks']:,.0f} of {count(total, 'click')}"]
    if share := told["unsupported_clicks"]:
        where = "where propensities cannot be told"
        what = (
            "left out"
            if told["corrected"]
            else "weigh as the last position above that can be"
            if told["trust"] == "checked"
            else "count all the same"
        )
        parts.append(f"{share:.1%} are {where} and {what}")
    if told["dropped_clicks"]:
        whole = total + told["dropped_clicks"]
        parts.append(f"{told['dropped_clicks'] / whole:.1%} were dropped, on documents without features")
    corrected = "Clicks are corrected, (click - offset) / slope. " if told["corrected"] else ""
    return f"{corrected}{'; '.join(parts)}."


def _print_tried(console: Console, tried: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tried, best first")
    table.add_column(VERDICT, justify="right")
    table.add_column("")
    for one in tried:
        table.add_row(
            one["candidate"],
            f"{one['value']:.3f} ({one['lower']:.3f} to {one['upper']:.3f})",
            "chosen" if one["chosen"] else "",
        )
    console.print(table)
    console.print()


def _spell(gap: Estimate) -> str:
    return f"{gap.value:+.3f} ({gap.lower:+.3f} to {gap.upper:+.3f})"
