"""Plans from a log: how many times as much of its traffic gives each position the wanted width.

The draws of `outlook` make that a range. `check`, `fit`, the report and `plan` all take this number.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import code_values, distinct, numbered
from clickharvest.model.support import rests_on_few
from clickharvest.parameters import TOLERANCE
from clickharvest.planning.forecast import Forecast, forecast
from clickharvest.planning.outlook import Outlook
from clickharvest.words import cluster_nouns, count, finite, json_value, name_positions, spell_positions, spell_times

Array = NDArray[np.float64]

LEAST_WIDTH = 1e-6
"""Smallest width that can be asked for."""
LEAST, MOST = 1e-3, 1e4
"""Times the traffic of the log at least, and beyond which the answer is never."""
MOST_ROWS, MOST_SEGMENTS, MOST_COLUMNS = 12, 6, 3
"""Positions that are printed one by one, segments, and context columns; with more columns a plan takes minutes."""
RANGE_ENDS = (2, 3, 6, 10, 20, 30, 50, 100, 200, 500, 1_000, 10_000, 100_000)
"""Last positions of the ranges in which more are printed."""
LESS = 0.9
"""A position that needs less than this share of what the one above needs is explained."""
HALVINGS = 30
"""Bisections for the traffic of a position that has the width already."""
SCALES = np.exp(np.linspace(0, math.log(MOST), 24))
"""Times the traffic at which widths are drawn; between them logarithms are interpolated."""
RANGE = (0.01, 0.5, 0.99)
"""Quantiles of the draws: the range, and the expected one. 98 % of the draws hold 95 % of the widths of real fits, by
simulation (`benchmarks/plan.py`)."""


@dataclass(frozen=True, eq=False)
class Plan:
    """How precise each position is, and how much traffic the wanted precision takes.

    Attributes:
        positions: the positions linked to the anchor, but for the anchor, [K].
        unlinked: positions that were shown and are not linked: they have no plan.
        awaited: those of them that share units with linked ones, if only by a chain: further clicks may link them.
        contexts: the segments, as columns of values, [c] each; empty where there is no context: then c = 1.
        clicks: clicks on intervened units in each, [c].
        queries: effective queries, or other clusters, of each position, [K].
        margin: present half-width, e^{z sd} − 1, [c, K].
        times: times the log's traffic until it is at most the width; infinite where it never is, [c, K].
        range: 95 % range of these times, [2, c, K].
        width: the half-width that is wanted.
        level: level of the intervals.
        days: days that the log covers; None where nothing tells.
        new_queries: whether further traffic is of other queries.
        source: what was scaled.
    """

    positions: tuple[int, ...]
    unlinked: tuple[int, ...]
    awaited: tuple[int, ...]
    contexts: dict[str, NDArray[np.object_]]
    clicks: Array
    queries: tuple[float | None, ...]
    margin: Array
    times: Array
    range: Array
    width: float
    level: float
    days: float | None
    new_queries: bool
    source: Forecast

    @property
    def segments(self) -> list[str]:
        """The segments in words, [c]."""
        if not self.contexts:
            return ["all"]
        return [
            ", ".join(f"{name} = {values[i]}" for name, values in self.contexts.items())
            for i in range(len(self.clicks))
        ]

    @cached_property
    def _outlook(self) -> Outlook:
        return self.source.outlook()

    def margins_after(self, times: float) -> Array:
        """Return half-widths with `times` ≥ 1 times the traffic: the least, the expected and the most, [3, c, K].

        Of fits to logs that go on until they are so long, 95 % are expected within.
        """
        if not (times >= 1 and math.isfinite(times)):
            raise InputError(f"{times} times the traffic of the log: expected 1 or more")
        at = [self.source.positions.index(k) for k in self.positions]
        log_sd = _ahead(self._outlook, times, self.new_queries, len(self.clicks))
        return np.asarray(np.expm1(z_value(self.level) * log_sd)[..., at])

    @property
    def sentence(self) -> str:
        """The traffic that is needed, in one line."""
        if not self.positions:
            return "No position is linked to the anchor: no amount of such traffic gives a number."
        few = self._few
        return f"{self._needed} {few}" if few else self._needed

    @cached_property
    def _few(self) -> str:
        """A sentence on positions with few effective queries."""
        nouns = cluster_nouns(self.source.sample.clustered_by)
        return spell_few_queries(list(zip(self.positions, self.queries, strict=True)), nouns)

    @property
    def _needed(self) -> str:
        worst = np.unravel_index(np.argmax(np.where(np.isfinite(self.times), self.times, MOST * 10)), self.times.shape)
        where = f"position {self.positions[worst[1]]}" + (f" where {self.segments[worst[0]]}" if self.contexts else "")
        wanted = f"±{100 * self.width:g} % at every {'linked ' if self.unlinked else ''}position"
        now = f"{where} has {spell_margin(self.margin[worst])} now"
        needed = float(self.times[worst])
        if math.isinf(needed):
            amount = "No amount" if math.isinf(self.range[0][worst]) else "Probably no amount"
            return (
                f"{amount} of such traffic gives {wanted}: {now}, and its queries read differently; other queries, or "
                "swaps of neighbouring ranks on a few pages of each (clickharvest plan --swaps), would help."
            )
        enough = needed <= 1 and bool((self.margin <= self.width * (1 + 1e-9)).all())
        if enough and self._few:
            queries = cluster_nouns(self.source.sample.clustered_by)[1]
            widest = f"{spell_margin(self.margin.max())}, at {where}"
            return f"Clicks of this log are enough for {wanted} (widest: {widest}), but {queries} are too few."
        if enough:
            return f"This log has {wanted}: the widest is {spell_margin(self.margin.max())}, at {where}."
        traffic = spell_traffic(needed, self.days, (float(self.range[0][worst]), float(self.range[1][worst])))
        return f"For {wanted} it takes {traffic}: {now}."

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it; null stands for never."""
        rows = []
        for i, j in np.ndindex(self.margin.shape):
            row: dict[str, Any] = {name: json_value(values[i]) for name, values in self.contexts.items()}
            row |= {"position": self.positions[j], "margin": float(self.margin[i, j]), "queries": self.queries[j]}
            ends, days = self.range[:, i, j], self.days
            row |= {"times": finite(self.times[i, j]), "times_range": [finite(end) for end in ends]}
            row["days"] = None if days is None else finite(self.times[i, j] * days)
            row["days_range"] = None if days is None else [finite(end * days) for end in ends]
            rows.append(row)
        return {
            "advice": self.sentence,
            "width": self.width,
            "level": self.level,
            "days_of_log": self.days,
            "new_queries": self.new_queries,
            "unlinked": list(self.unlinked),
            "awaited": list(self.awaited),
            "needed": rows,
        }

    def __str__(self) -> str:
        """Return the sentence, a table of the segment that needs most, and a line for each of the others."""
        lines, order = [self.sentence], np.argsort(-self.times.max(axis=1, initial=0.0), kind="stable").tolist()
        for i in order[:1] if self.positions else ():
            lines += [f"\n{self.segments[i]} ({count(self.clicks[i], 'click')}):"] if self.contexts else [""]
            lines += self._table(i)
        for i in order[1:MOST_SEGMENTS]:
            j = int(np.argmax(self.times[i]))
            now = (
                f"{self.segments[i]} ({count(self.clicks[i], 'click')}): {spell_margin(self.margin[i, j])} at position"
            )
            lines.append(f"{now} {self.positions[j]}, {self._needs(i, j)}")
        if len(order) > MOST_SEGMENTS:
            lines.append(f"and {len(order) - MOST_SEGMENTS} more segments that need less")
        never = set(self.unlinked) - set(self.awaited)
        lines += [f"Not linked yet, for want of clicks: {spell_positions(self.awaited)}."] if self.awaited else []
        lines += [f"Not linked, whatever the traffic: {spell_positions(never)}."] if never else []
        return "\n".join(lines)

    def _table(self, segment: int) -> list[str]:
        """Return a table of a segment by ranges of positions, each with its largest width and need."""
        ends = np.searchsorted(RANGE_ENDS, self.positions) if len(self.positions) > MOST_ROWS else self.positions
        rows: list[tuple[list[int], str, int]] = []
        for end in np.unique(ends):
            of_range = np.flatnonzero(ends == end)
            worst = int(of_range[np.argmax(self.times[segment, of_range])])
            needs, names = self._needs(segment, worst), [self.positions[j] for j in of_range]
            if rows and rows[-1][1] == needs:
                above, _, other = rows.pop()
                names, worst = above + names, max(other, worst, key=lambda j: float(self.margin[segment, j]))
            rows.append((names, needs, worst))
        cells = [(spell_positions(names), spell_margin(self.margin[segment, worst])) for names, _, worst in rows]
        left, right = (max(8, *(len(row[side]) for row in cells)) for side in (0, 1))
        lines = [f"{'position':<{left}} {'now':>{right - 1}}   traffic needed"]
        lines += [
            f"{where:>{left}} {now:>{right}}   {needs}" for (where, now), (_, needs, _) in zip(cells, rows, strict=True)
        ]
        needed = [float(self.times[segment, worst]) for _, _, worst in rows]
        if any(later < LESS * before for before, later in pairwise(needed) if math.isfinite(before)):
            lines.append(
                "Some positions need less than those above them: more clicks are on results that were shown there and "
                "elsewhere."
            )
        return lines

    def _needs(self, segment: int, place: int) -> str:
        """Return the traffic that a position needs in a segment, in words."""
        low, high = self.range[:, segment, place].tolist()
        more = f", of more {cluster_nouns(self.source.sample.clustered_by)[1]}" * rests_on_few(self.queries[place])
        return spell_traffic(float(self.times[segment, place]), self.days, (low, high)) + more


def plan_from_log(
    interventions: Interventions,
    *,
    width: float = TOLERANCE,
    level: float = 0.95,
    days: float | None = None,
    anchor: int = 1,
    new_queries: bool = False,
) -> Plan:
    """Return how much traffic like that of a log gives each position, in each context, the wanted width.

    Widths are those that `PBM`, or with contexts `CPBM(curve="linear")`, gives with `clustered` intervals.

    Args:
        interventions: the harvest of the log.
        width: half-width that is wanted: .1 for ±10 %.
        level: level of the intervals.
        days: days that the log covers.
        anchor: the position others are compared with.
        new_queries: whether further traffic is of other queries than the log's.

    Raises:
        InputError: the width is not a number from `LEAST_WIDTH` on.
        NotIdentifiedError: no position is linked to the anchor.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> found = plan_from_log(harvest(read_log(simulate_ab_log(pages=5_000)[0])), width=0.02, days=7)
        >>> found.positions, bool((found.times > 1).all())
        ((2, 3, 4, 5, 6, 7, 8, 9, 10), True)
    """
    wanted = log_margin(width) / z_value(level)
    if days is not None and not (days > 0 and math.isfinite(days)):
        raise InputError(f"the log covers {days} days: expected a positive number")
    source = forecast(interventions, anchor=anchor)
    others = np.flatnonzero(np.array(source.positions) != anchor)
    unlinked = {int(k) for k in np.unique(interventions.position)} - set(source.positions)
    now = source.log_sd_now[:, others]
    unknown = np.full((3, *now.shape), np.nan)
    plan = Plan(
        positions=tuple(source.positions[i] for i in others),
        unlinked=tuple(sorted(unlinked)),
        awaited=tuple(sorted(unlinked & _in_common(interventions, anchor))),
        contexts=source.contexts,
        clicks=source.clicks,
        queries=tuple(source.effective[i] for i in others),
        margin=np.expm1(z_value(level) * now),
        times=unknown[1],
        range=unknown[::2],
        width=width,
        level=level,
        days=days,
        new_queries=new_queries,
        source=source,
    )
    low, expected, high = _times(plan, others, wanted)
    return replace(plan, times=expected, range=np.stack([low, high]))


def _in_common(interventions: Interventions, anchor: int) -> set[int]:
    """Return the positions that a chain of units, clicked or not, joins to the anchor."""
    shown, position = np.unique(interventions.position, return_inverse=True)
    n_units, unit = numbered(interventions.unit)
    joined = coo_array((np.ones(len(unit)), (position, len(shown) + unit)), shape=(len(shown) + n_units,) * 2)
    _, part = connected_components(joined, directed=False)
    part = part[: len(shown)]
    return set(shown[part == part[np.searchsorted(shown, anchor)]].tolist())


def _times(plan: Plan, others: NDArray[np.intp], wanted: float) -> Array:
    """Return the times of the traffic at which each entry has `wanted`: at least, expected and at most, [3, c, K]."""
    source = plan.source

    def sd(scale: Array) -> Array:
        every = np.ones((len(source.clicks), len(source.positions)))
        every[:, others] = scale
        return source.log_sd(every, new_queries=plan.new_queries)[:, others]

    now = source.log_sd_now[:, others]
    reached, low, high = now <= wanted, np.full(now.shape, math.log(LEAST)), np.zeros(now.shape)
    for _ in range(HALVINGS if reached.any() else 0):
        middle = (low + high) / 2
        enough = sd(np.exp(middle)) <= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    needed = np.broadcast_to(np.exp(high), (3, *now.shape))
    if reached.all():
        return needed
    outlook = plan._outlook
    widths = [_ahead(outlook, s, plan.new_queries, len(source.clicks))[..., others] for s in SCALES.tolist()]
    logs = np.log(np.maximum(np.minimum.accumulate(np.stack(widths), axis=0), 1e-300))
    return np.where(reached, needed, _crossed(logs, math.log(wanted)))


def _crossed(logs: Array, wanted: float) -> Array:
    """Return the scale at which logarithms [scales, …], which fall, are `wanted`; infinite where they never are."""
    after = np.sum(logs > wanted, axis=0)
    never = after == len(SCALES)
    after = np.clip(after, 1, len(SCALES) - 1)
    before, then = (np.take_along_axis(logs, at[None], axis=0)[0] for at in (after - 1, after))
    share = np.clip(np.divide(before - wanted, before - then, out=np.zeros_like(before), where=before > then), 0, 1)
    grid = np.log(SCALES)
    return np.where(never, np.inf, np.exp(grid[after - 1] + share * (grid[after] - grid[after - 1])))


def _ahead(outlook: Outlook, scale: float, new_queries: bool, contexts: int) -> Array:
    """Return the quantiles of standard deviations with `scale` times the traffic, [3, c, K]."""
    quantiles = np.quantile(outlook.log_sd(scale, new_queries=new_queries), RANGE, axis=0)
    return np.asarray(quantiles.reshape(3, contexts, -1))


def log_margin(width: float) -> float:
    """Return the half-width on the log scale, log(1 + width).

    Raises:
        InputError: it is not a number from `LEAST_WIDTH` on.
    """
    if not (width >= LEAST_WIDTH and math.isfinite(width)):
        raise InputError(f"the width wanted is {width}: expected {LEAST_WIDTH:g} or more, such as 0.1 for ±10 %")
    return math.log1p(width)


def z_value(level: float) -> float:
    """Return the normal quantile of an interval's level.

    Example:
        >>> round(z_value(0.95), 3)
        1.96
    """
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level}: expected a number between 0 and 1, such as 0.95")
    return -NormalDist().inv_cdf((1 - level) / 2)


def spell_traffic(times: float, days: float | None, ends: tuple[float, float]) -> str:
    """Return how much traffic that is, and in which range, in words.

    Example:
        >>> spell_traffic(3.2, None, (2.5, 4.6)), spell_traffic(3.2, 7.0, (2.5, math.inf))
        ('3.2 (2.5 to 4.6) × this log', '3.2 (2.5 or more) × this log, 23 (18 or more) days')
        >>> spell_traffic(0.5, None, (0.5, 0.5)), spell_traffic(math.inf, None, (9.0, math.inf))
        ('0.5 × this log', 'needs more queries: at least 9 × this log')
    """
    low, high = ends
    if math.isinf(times):
        return "needs more queries" + ("" if math.isinf(low) else f": at least {spell_times(low)} × this log")

    def with_range(middle: str, low: str, high: str) -> str:
        if low == high == middle:
            return ""
        return f" ({low} or more)" if high == "inf" else f" ({low} to {high})"

    words = [spell_times(value) for value in (times, low, high)]
    traffic = f"{words[0]}{with_range(*words)} × this log"
    if days is None:
        return traffic
    words = ["inf" if math.isinf(value) else f"{math.ceil(value * days):,}" for value in (times, low, high)]
    noun = "day" if words == ["1"] * 3 else "days"
    return f"{traffic}, {words[0]}{with_range(*words)} {noun}"


def spell_margin(margin: float) -> str:
    """Return a half-width as people write it.

    Example:
        >>> spell_margin(0.123), spell_margin(40.0)
        ('±12 %', 'over ±1,000 %')
    """
    return f"±{100 * margin:.0f} %" if margin < 10 else "over ±1,000 %"


def spell_few_queries(queries: Sequence[tuple[int, float | None]], nouns: tuple[str, str]) -> str:
    """Return a sentence on positions that rest on few effective queries, or other clusters; nothing without such.

    Example:
        >>> spell_few_queries([(2, 90.0), (3, 1.2), (4, 2.4)], ("user", "users"))
        'Positions 3-4 rest on 1 to 2 users, and others may be read in another way: more users would tell, more \
clicks of these would not.'
    """
    few = {k: max(1, round(n)) for k, n in queries if n is not None and rests_on_few(n)}
    if not few:
        return ""
    where, (least, most) = name_positions(few), (min(few.values()), max(few.values()))
    amount = count(most, *nouns) if least == most else f"{least} to {count(most, *nouns)}"
    return (
        f"{where.capitalize()} {'rests' if len(few) == 1 else 'rest'} on {amount}, and others may be read in "
        f"another way: more {nouns[1]} would tell, more clicks of these would not."
    )


def plan_traffic(
    interventions: Interventions, *, anchor: int = 1, days: float | None = None, width: float = TOLERANCE
) -> Plan | None:
    """Return a plan from interventions; None where nothing is linked, at places, or for a part of the log.

    A plan from a part of the log would count in parts, not in logs. With many contexts, all are planned together.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> plan = plan_traffic(harvest(read_log(simulate_ab_log(pages=2_000)[0], context=["device"])))
        >>> plan.segments
        ['device = mobile', 'device = desktop']
    """
    if interventions.thinned_from or interventions.places is not None:
        return None
    columns = list(interventions.contexts.values())
    if len(columns) > MOST_COLUMNS or (columns and len(distinct(*map(code_values, columns))[0]) > MOST_SEGMENTS):
        interventions = replace(interventions, contexts={})
    try:
        return plan_from_log(interventions, anchor=anchor, days=days, width=width)
    except NotIdentifiedError:
        return None


def times_needed(
    interventions: Interventions, tolerance: float, positions: Collection[int], *, anchor: int = 1
) -> float | None:
    """Return how many times this log brings noise within the tolerance at all these positions, infinite if never.

    None where no plan can be made, or only one of all contexts together.
    """
    plan = plan_traffic(interventions, anchor=anchor, width=tolerance)
    if plan is None or len(plan.contexts) != len(interventions.contexts):
        return None
    wanted = np.isin(plan.positions, sorted(positions))
    return float(plan.times[:, wanted].max()) if wanted.any() else None
