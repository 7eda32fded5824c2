"""The command `plan`: how much traffic a wanted precision takes, from a log or from a design."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest.commands.declaring import argument, between, option, parse_numbers, parse_shares, whole
from clickharvest.commands.options import AnchorOption, HarvestOptions, JsonFlag, LevelOption, LogOptions
from clickharvest.commands.output import tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.parameters import TOLERANCE
from clickharvest.positions.places import find_anchor

if TYPE_CHECKING:
    from clickharvest.planning.designing import DesignPlan
    from clickharvest.planning.outline import Outline
    from clickharvest.planning.traffic import Plan

MOST_PAGES = 1e12

_wanted = partial(option, panel="What is wanted")
_design = partial(option, panel="A design, without LOG")


@dataclass(frozen=True)
class PlanLogOptions(LogOptions):
    """Which log to plan from; without, a design is planned."""

    source: str = argument("The log, or its interventions; without it, a design.", "LOG", "")


@dataclass(frozen=True)
class DesignOptions:
    """A design that is planned without a log."""

    pages: float | None = _design("Pages of the experiment.", check=between(1, MOST_PAGES))
    positions: int = _design("Results of a page, without --rankings.", default=10, check=whole(2, 1_000))
    queries: int = _design(
        "Queries that come equally often, without --rankings.", default=1_000, check=whole(1, 1_000_000)
    )
    swaps: str | None = _design(
        "Pairs of ranks to exchange, and on which share of pages; 'auto': those that cost least "
        "clicks. --swap K draws from 1…K as in harvest.",
        "1-2=.05,2-3=.05|neighbours=.05|auto",
    )
    click_rates: str | None = _design(
        "Rates of clicks expected at rank 1, 2, …; .3 / rank^1.5 by default.", "A,B,…", rare=True
    )
    steepness: float = _design("η of the examination k^-η expected.", default=1.0, rare=True, check=between(0, 10))
    spread: float = _design(
        "How much queries differ at single positions: a standard deviation of log examination.",
        default=0.0, rare=True, check=between(0, 3),
    )  # fmt: skip


def plan(
    log: PlanLogOptions,
    units: HarvestOptions,
    design: DesignOptions,
    width: Annotated[float, _wanted("Half-width wanted: .1 is ±10 %.", check=between(0, 10, ends=False))] = TOLERANCE,
    level: LevelOption = 0.95,
    days: Annotated[
        float | None,
        _wanted("Days that LOG covers; from its time column by default.", check=between(0, 1e6, ends=False)),
    ] = None,
    new_queries: Annotated[bool, _wanted("Further traffic has new queries, not the same ones again.")] = False,
    anchor: AnchorOption = "1",
    as_json: JsonFlag = False,
) -> None:
    """Tell how much traffic a wanted precision takes.

    With LOG: how many times its traffic, or days, until each position, in each context, has the width. Without: the
    widths that an A/B test (--rankings) or swaps will give, and what the swaps cost in clicks and DCG.

    Examples:

      clickharvest plan clicks.parquet --context device --days 14

      clickharvest plan --positions 10 --pages 200000 --swaps auto

      clickharvest plan --rankings rankings.csv --traffic a=50,b=50 --pages 50000
    """
    from clickharvest.commands.tables import screen

    precision: dict[str, Any] = {"width": width, "level": level}
    answer: Plan | DesignPlan
    if log.source and design != DesignOptions():
        raise InputError("options of a design, such as --pages and --swaps, go without a LOG: leave one of both out")
    if log.source:
        answer = _plan_from_log(log, units, days, new_queries=new_queries, anchor=anchor, **precision)
    elif log != PlanLogOptions() or days is not None or new_queries or anchor != "1":
        raise InputError("options of a log go with a LOG: name it, or leave them out to plan a design")
    else:
        answer = _plan_from_design(units, design, **precision)
    if as_json:
        tell_json(answer.to_dict())
    else:
        screen().print(str(answer))


def _plan_from_log(
    log: PlanLogOptions, units: HarvestOptions, days: float | None, *, anchor: str, **precision: Any
) -> Plan:
    from clickharvest.harvesting.collecting import harvest
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import days_of
    from clickharvest.planning.traffic import plan_from_log

    data = units.read(log)
    if isinstance(data, Interventions):
        interventions = data
    else:
        interventions = harvest(data, **units.arguments(log))
        days = days if days is not None else days_of(data)
    if interventions.places is not None:
        raise InputError(
            f"plan speaks of ranks, and the log of places ({', '.join(interventions.places.columns)}): clickharvest "
            "check tells about how much more traffic they take"
        )
    with show_progress("Planning"):
        return plan_from_log(interventions, days=days, anchor=find_anchor(anchor, None), **precision)


def _plan_from_design(units: HarvestOptions, design: DesignOptions, **precision: Any) -> DesignPlan:
    from clickharvest.planning.designing import plan_from_design

    if design.pages is None:
        raise InputError("name a LOG to plan from, or the --pages of a design")
    outline = _outline(units, design)
    with show_progress("Planning"):
        return plan_from_design(outline, design.pages, choose=design.swaps == "auto", **precision)


def _outline(units: HarvestOptions, design: DesignOptions) -> Outline:
    from clickharvest.logs.engines import DuckDBEngine
    from clickharvest.logs.sources import open_source
    from clickharvest.planning.outline import outline_from_rankings, ranked_outline

    options: dict[str, Any] = {"steepness": design.steepness, "spread": design.spread, "click_rates": None}
    if design.click_rates is not None:
        expected = "numbers, such as 0.3,0.12,0.08"
        options["click_rates"] = parse_numbers(design.click_rates, "--click-rates", expected)
    if units.rankings is None:
        swaps = _swaps(units, design, design.positions)
        return ranked_outline(design.positions, queries=design.queries, swaps=swaps, **options)
    engine = DuckDBEngine(progress=show_progress)
    opened, _ = open_source(units.rankings, engine)
    rows = engine.fetch(opened, task="Reading rankings")
    options |= {"traffic": units.shares, "max_position": units.max_position}
    outline = outline_from_rankings(rows, **options)
    swaps = _swaps(units, design, len(outline.examination))
    return outline_from_rankings(rows, swaps=swaps, **options) if swaps else outline


def _swaps(units: HarvestOptions, design: DesignOptions, positions: int) -> dict[tuple[int, int], float]:
    """Return the pairs and shares that --swap or --swaps name."""
    if units.swap is not None and design.swaps is not None:
        raise InputError("--swap and --swaps describe two designs: give one")
    if units.swap is not None:
        from clickharvest.harvesting.designs import Swap

        drawn = units.design(1)
        assert isinstance(drawn, Swap)
        return {(1, rank): share for rank, share in drawn.probabilities.items() if 1 < rank <= positions and share > 0}
    if design.swaps in (None, "auto"):
        return {}
    swaps: dict[tuple[int, int], float] = {}
    for name, share in parse_shares(str(design.swaps), "--swaps").items():
        if name == "neighbours":
            swaps |= {(k, k + 1): share for k in range(1, positions)}
            continue
        try:
            i, j = sorted(int(part) for part in name.split("-"))
        except ValueError:
            raise InputError(f"--swaps {design.swaps}: expected pairs of ranks, such as 1-2=.05,1-5=.02") from None
        swaps[i, j] = share
    return swaps
