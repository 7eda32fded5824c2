"""Plans from a log: how many times as much of its traffic gives each position the wanted width."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.harvesting.interventions import Interventions
from clickharvest.planning.forecast import Forecast, forecast
from clickharvest.words import count, spell_positions

Array = NDArray[np.float64]

WIDTH = 0.1
"""Half-width that is wanted unless told otherwise: ±10 %."""
MOST = 1e4
"""Times the traffic of the log beyond which it is called never."""
LEAST = 1e-3
HALVINGS = 30


@dataclass(frozen=True, eq=False)
class Plan:
    """How precise each position is, and how much traffic the wanted precision takes.

    Attributes:
        positions: the positions linked to the anchor, but for the anchor, [K].
        unlinked: positions that were shown but that nothing links: no traffic of this kind gives them a number.
        contexts: the segments, as columns of values, [c] each; empty where there is no context: then c = 1.
        clicks: clicks on intervened units in each, [c].
        margin: present half-width, e^{z sd} − 1, [c, K].
        times: times the log's traffic until it is at most the width; infinite where it never is, [c, K].
        width: the half-width that is wanted.
        level: level of the intervals.
        days: days that the log covers; None where nothing tells.
        new_queries: whether further traffic is of other queries.
        source: what was scaled.
    """

    positions: tuple[int, ...]
    unlinked: tuple[int, ...]
    contexts: dict[str, NDArray[np.object_]]
    clicks: Array
    margin: Array
    times: Array
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

    @property
    def sentence(self) -> str:
        """What it takes, in one line."""
        if not self.positions:
            return "No position is linked to the anchor: no amount of such traffic gives a number."
        worst = np.unravel_index(np.argmax(np.where(np.isfinite(self.times), self.times, MOST * 10)), self.times.shape)
        where = f"position {self.positions[worst[1]]}" + (f" where {self.segments[worst[0]]}" if self.contexts else "")
        wanted = f"±{100 * self.width:g} % at every position"
        now = f"{where} has ±{_percent(self.margin[worst])} now"
        needed = float(self.times[worst])
        if math.isinf(needed):
            return (
                f"No amount of such traffic gives {wanted}: {now}, and its queries read differently; other queries, or "
                "an experiment that moves documents in all of them, would help."
            )
        if needed <= 1:
            return f"This log has {wanted}: the widest is ±{_percent(self.margin.max())}, at {where}."
        return f"For {wanted} it takes {spell_traffic(needed, self.days)}: {now}."

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it; null stands for never."""
        rows = [
            {
                **{name: _plain(values[i]) for name, values in self.contexts.items()},
                "position": k,
                "margin": float(self.margin[i, j]),
                "times": _finite(self.times[i, j]),
                "days": None if self.days is None else _finite(self.times[i, j] * self.days),
            }
            for i in range(len(self.clicks))
            for j, k in enumerate(self.positions)
        ]
        return {
            "advice": self.sentence,
            "width": self.width,
            "level": self.level,
            "days_of_log": self.days,
            "new_queries": self.new_queries,
            "unlinked": list(self.unlinked),
            "needed": rows,
        }

    def __str__(self) -> str:
        lines = [self.sentence]
        for i, segment in enumerate(self.segments):
            lines += [f"\n{segment} ({count(self.clicks[i], 'click')}):"] if self.contexts else [""]
            lines.append("position     now   traffic needed")
            for j, k in enumerate(self.positions):
                told = spell_traffic(float(self.times[i, j]), self.days)
                lines.append(f"{k:>8} {'±' + _percent(self.margin[i, j]):>8}   {told}")
        if self.unlinked:
            lines.append(f"\nNot linked, whatever the traffic: {spell_positions(self.unlinked)}.")
        return "\n".join(lines)


def plan_from_log(
    interventions: Interventions,
    *,
    width: float = WIDTH,
    level: float = 0.95,
    days: float | None = None,
    anchor: int = 1,
    new_queries: bool = False,
) -> Plan:
    """Tell how much traffic like that of a log gives each position, in each context, the wanted width.

    Widths are those that `PBM`, or with contexts `CPBM(curve="linear")`, gives with `clustered` intervals.

    Args:
        interventions: the harvest of the log.
        width: half-width that is wanted: .1 for ±10 %.
        level: level of the intervals.
        days: days that the log covers.
        anchor: the position others are compared with.
        new_queries: whether further traffic is of other queries than the log's; by default of the same stream of
            queries, in which those that came often come often again.

    Raises:
        InputError: the width is not positive.
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

    def sd(scale: float | Array) -> Array:
        every = np.ones((len(source.clicks), len(source.positions)))
        every[:, others] = scale
        return source.log_sd(every, new_queries=new_queries)[:, others]

    shown = {int(k) for k in np.unique(interventions.position)}
    return Plan(
        positions=tuple(source.positions[i] for i in others),
        unlinked=tuple(sorted(shown - set(source.positions))),
        contexts=source.contexts,
        clicks=source.clicks,
        margin=np.expm1(z_value(level) * sd(1.0)),
        times=_times(sd, wanted),
        width=width,
        level=level,
        days=days,
        new_queries=new_queries,
        source=source,
    )


def _times(sd: Callable[[float | Array], Array], wanted: float) -> Array:
    """Return for every entry of sd(s), which falls with s, the s at which it is `wanted`; infinite beyond `MOST`."""
    never = sd(MOST) > wanted
    low, high = (np.full(never.shape, math.log(bound)) for bound in (LEAST, MOST))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        reached = sd(np.exp(middle)) <= wanted
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(never, np.inf, np.exp(high))


def log_margin(width: float) -> float:
    """Return the half-width on the log scale, log(1 + width).

    Raises:
        InputError: it is not a positive number.
    """
    if not (width > 0 and math.isfinite(width)):
        raise InputError(f"the width wanted is {width}: expected a positive number, such as 0.1 for ±10 %")
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


def spell_traffic(times: float, days: float | None) -> str:
    """Return how much traffic that is, in words.

    Example:
        >>> spell_traffic(3.2, None), spell_traffic(3.2, 7.0), spell_traffic(math.inf, 7.0)
        ('3.2 × this log', '3.2 × this log, 23 days', 'never with these queries')
    """
    if math.isinf(times):
        return "never with these queries"
    told = f"{times:.2g} × this log" if times < 10 else f"{times:,.0f} × this log"
    if days is None:
        return told
    whole = times * days
    return f"{told}, {count(math.ceil(whole), 'day')}"


def _percent(margin: float) -> str:
    return f"{100 * margin:.0f} %" if margin < 10 else "over 1,000 %"


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
