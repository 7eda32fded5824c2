"""Were swaps drawn as the design says? The result that was first before a swap stands at the rank that was drawn.

Where no swap took place, or only on some pages, exposures by design say that results stood where they did not, and the
curve is wrong by any factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.finding import Finding, sign_of, spell_p, spell_percent, spell_sign
from clickharvest.checks.laws import chi_square_tail, squares_tail
from clickharvest.checks.users import count_moments, with_user
from clickharvest.words import spell_positions

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.harvesting.designs import Swap
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

Array = NDArray[np.float64]

NAME = "swap ranks"
TASK = "Testing swaps"
EXPECTED = 5.0
"""Pages that a rank should have; rarer ranks are put together."""
MATTERS = 0.1
"""Share by which the exposures of a rank are off that does harm."""
SURE = 2.0
"""Standard errors that are taken off a difference before it is said how large it is at the least."""
WRONG = (
    "Swaps were not drawn as the design says: {told}. So the exposures are wrong: give the pages of the experiment "
    "alone, the rank before the swap (--original) and the ranks that were drawn (--swap), or fit what was shown, "
    "without --swap."
)


@dataclass(frozen=True)
class _Drawn:
    """How often ranks were drawn.

    Attributes:
        ranks: the ranks of each group.
        meant: the probability of each group, π.
        pages: the pages of each, N.
        variance: that of N by the design.
        p_value: how likely at least such differences are by the design.
        how: what is taken as independent.
    """

    ranks: list[list[int]]
    meant: Array
    pages: Array
    variance: Array
    p_value: float
    how: str


def swap_ranks(log: ClickLog, design: Swap, max_position: int | None = None) -> list[Finding]:
    """Test whether the result that was first before the swap stands at each rank as often as the design says.

    Pearson's X² = |d|², d_s = (N_s − N π_s) / √(N π_s), N_s pages on which rank s was drawn. Users may keep their rank.
    Where the log has a user column, a user's pages n_us count m_us = n_us / √n_u, n_u = Σ_s n_us, so that the test is
    not that of the few users who come back most; d = Σ_u d_u is clustered by user (`laws.squares_tail`), with

        |d_u|² = (Σ_s m_us² / π_s − m_u²) / M,   m_u = √n_u,   M = Σ_u m_u.

    Ranks that the log never shows at all, as where it is cut, are left out, and the others' π sums to 1 again. The
    number is how far the share of some rank is off at the least, |N_s − N π_s| − 2 SE over N π_s, as the exposures of
    that rank are wrong by as much: below `MATTERS` it does no harm, however certain.

    Args:
        log: the log.
        design: the design of the swaps.
        max_position: as in `harvest`.

    Example:
        No result ever moved.

        >>> import pyarrow as pa
        >>> from clickharvest.harvesting.designs import Swap
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 40, "doc": ["a", "b"] * 20, "position": [1, 2] * 20, "click": [1, 0] * 20}
        >>> log = read_log(pa.table(shown | {"original": [1, 2] * 20}))
        >>> [finding] = swap_ranks(log, Swap.uniform(2))
        >>> finding.severity, round(finding.value, 2)
        ('decisive', 0.55)
    """
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    shown = t.filter(t.position.isin([rank for rank, share in design.probabilities.items() if share > 0]))
    counted = shown.group_by(rank=shown.position.cast("int64")).agg(rows=shown.count())
    ranks = sorted(log.engine.fetch(counted, task=TASK)["rank"].to_pylist())
    firsts = design.firsts(log)
    firsts = firsts.filter(firsts.position.isin(ranks)) if ranks else firsts.filter(False)
    drawn = _draws(log, firsts, ranks, np.array([design.probabilities[rank] for rank in ranks]))
    if drawn is None:
        sentence = "Too few pages, or ranks, to test whether swaps were drawn as the design says."
        return [Finding(NAME, "note", sentence)]
    return [_tell(drawn, design.pivot)]


def _draws(log: ClickLog, firsts: ir.Table, ranks: list[int], meant: Array) -> _Drawn | None:
    """Return how often ranks were drawn, by user where users are known; None where they are too few to test."""
    rows = firsts.mutate(rank=firsts.position.cast("int64"))
    if log.has("user"):
        rows = with_user(log, rows)
    keys = ["rank", *(["_user"] if log.has("user") else [])]
    if log.has("page"):  # a page counts once, also where it shows the result again
        rows = rows.group_by("page", *keys).agg(impressions=rows.impressions.max())
    cells = rows.group_by(*keys).agg(pages=rows.impressions.sum().cast("float64"))
    cells = log.engine.materialise(cells, task=TASK)
    totals = cells.group_by("rank").agg(pages=cells.pages.sum())
    pages = {row["rank"]: row["pages"] for row in log.engine.fetch(totals, task=TASK).to_pylist()}
    whole = sum(pages.values())
    meant = meant / meant.sum() if len(meant) else meant
    groups = _groups(meant * whole)
    if len(groups) < 2:
        return None
    named = [[ranks[i] for i in group] for group in groups]
    pi = np.array([meant[group].sum() for group in groups])
    n = np.array([sum(pages.get(rank, 0.0) for rank in group) for group in named])
    if not log.has("user"):
        p_value = chi_square_tail(float(np.sum((n - whole * pi) ** 2 / (whole * pi))), len(pi) - 1)
        return _Drawn(named, pi, n, whole * pi * (1 - pi), p_value, "pages taken as independent")
    place = ibis.cases(*((cells["rank"].isin(group), i) for i, group in enumerate(named)))
    cells = cells.mutate(group=place).group_by("_user", "group").agg(pages=lambda c: c.pages.sum())
    cells = log.engine.materialise(cells.mutate(all=cells.pages.sum().over(group_by="_user")), task=TASK)
    return _Drawn(named, pi, n, _spread(log.engine, cells, pi), _by_user(log.engine, cells, pi), "clustered by user")


def _spread(engine: Engine, cells: ir.Table, meant: Array) -> Array:
    """Return Σ_u (n_us − n_u π_s)² of every group s."""
    own = cells.group_by("group").agg(
        squares=(cells.pages * cells.pages).sum(), products=(cells.pages * cells["all"]).sum()
    )
    users = cells.group_by("_user").agg(all=cells["all"].max())
    sizes = engine.fetch(users.agg(sizes=(users["all"] * users["all"]).sum()), task=TASK)["sizes"][0].as_py()
    found: Array = meant**2 * sizes
    for row in engine.fetch(own, task=TASK).to_pylist():
        found[row["group"]] += row["squares"] - 2 * meant[row["group"]] * row["products"]
    return found


def _by_user(engine: Engine, cells: ir.Table, meant: Array) -> float:
    """Return the p-value of X² where users' pages count m_us."""
    weighed = cells.select("_user", "group", "all", pages=cells.pages / cells["all"].sqrt())
    moments = count_moments(weighed, {"group": range(len(meant))}, engine, TASK)
    share = ibis.cases(*((weighed.group == i, float(one)) for i, one in enumerate(meant)))
    users = weighed.group_by("_user").agg(
        square=(weighed.pages * weighed.pages / share).sum(), all=weighed["all"].max()
    )
    users = users.mutate(square=users.square - users["all"], size=users["all"].sqrt())
    sums = users.agg(whole=users["size"].sum(), fourth=(users.square * users.square).sum())
    found = engine.fetch(sums, task=TASK).to_pylist()[0]
    whole = found["whole"]
    linear = (np.eye(len(meant)) - meant[:, None]) / np.sqrt(whole * meant)[:, None]
    variance = linear @ moments @ linear.T
    totals = engine.fetch(weighed.group_by("group").agg(pages=weighed.pages.sum()), task=TASK).to_pylist()
    off = -whole * meant
    for row in totals:
        off[row["group"]] += row["pages"]
    return squares_tail(
        float(np.sum(off**2 / (whole * meant))),
        float(np.trace(variance)),
        float(np.sum(variance**2)),
        found["fourth"] / whole**2,
        len(meant) - 1,
    )


def _groups(expected: Array) -> list[NDArray[np.int64]]:
    """Return the ranks in groups with `EXPECTED` pages or more, rare ones together; a group of all where none has.

    Example:
        >>> [group.tolist() for group in _groups(np.array([50.0, 2.0, 9.0, 4.0]))]
        [[0], [2], [1, 3]]
    """
    order = np.argsort(-expected, kind="stable")
    many = int((expected >= EXPECTED).sum())
    rare = order[many:]
    if len(rare) and expected[rare].sum() < EXPECTED:
        many = max(many - 1, 0)
        rare = order[many:]
    return [np.array([i]) for i in order[:many]] + ([np.sort(rare)] if len(rare) else [])


def _tell(drawn: _Drawn, pivot: int) -> Finding:
    whole, p_value = drawn.pages.sum(), drawn.p_value
    off, expected = drawn.pages - whole * drawn.meant, whole * drawn.meant
    least = np.maximum(np.abs(off) - SURE * np.sqrt(drawn.variance), 0) / expected
    worst = int(np.lexsort((np.abs(off) / expected, least))[-1])
    value, status = float(least[worst]), sign_of(p_value)
    several = "s" * (len(drawn.ranks[worst]) > 1)
    seen, meant = spell_percent(drawn.pages[worst] / whole), spell_percent(drawn.meant[worst])
    told = (
        f"what stood at rank {pivot} before the swap stands at rank{several} {spell_positions(drawn.ranks[worst])} on "
        f"{seen} of the pages, by the design on {meant} ({spell_p(p_value)}, {drawn.how})"
    )
    if status != "warning":
        sentence = f"{spell_sign(p_value)} that swaps were not drawn as the design says: {told}."
        return Finding(NAME, status, sentence, value=value, p=p_value)
    if value < MATTERS:
        sentence = f"Swaps were not drawn quite as the design says: {told}. This is too little to matter."
        return Finding(NAME, "note", sentence, value=value, p=p_value)
    return Finding(NAME, "decisive", WRONG.format(told=told), value=value, p=p_value)
