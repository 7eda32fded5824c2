"""Does the log agree with the design of its exposures? Exposures by design are used whatever the log shows.

Impressions that stand elsewhere are left out with their clicks, from one position more than from others: a hundredth of
all impressions may be a tenth of those of one position among ten. And where swaps did not take place, or only on some
pages, exposures by design put results where they were not, and the curve is wrong by any factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.clustered_tests import chi_square_tail, independence_tail, with_user
from clickharvest.checks.finding import Finding, Severity, sign_of, spell_p, spell_percent, spell_sign
from clickharvest.harvesting.designs import Rankings, Swap, agreement
from clickharvest.harvesting.placements import LoggedPlacements
from clickharvest.logs.click_log import same
from clickharvest.words import count, spell_positions

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.harvesting.designs import Design
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

Array = NDArray[np.float64]

FEW = 0.01
"""Share of the impressions that may stand elsewhere, as after late changes of an index or a page in a cache: at one
position of ten it is a tenth of the clicks at most, which moves a curve by as much."""
SWAPS, TASK = "swap ranks", "Testing swaps"
EXPECTED = 5.0
"""Expected pages of a rank; ranks with fewer are put together."""
MATTERS = 0.1
"""Error of a rank's exposures, as a share, below which it does no harm."""
SURE = 2.0
"""Standard errors subtracted from a difference for its least size."""
WRONG = (
    " So the exposures are wrong: give the rankings, swaps and traffic that made these pages, or fit what was shown."
)
WRONG_SWAPS = (
    "Swaps were not drawn as the design says: {draws}. So the exposures are wrong: give the pages of the experiment "
    "alone, the rank before the swap (--original) and the ranks that were drawn (--swap), or fit what was shown, "
    "without --swap."
)


def design_findings(log: ClickLog, design: Design | None, max_position: int | None = None) -> list[Finding]:
    """Return whether a log agrees with the design of its exposures; nothing where exposures are realised.

    Args:
        log: the log.
        design: as in `harvest`.
        max_position: as in `harvest`.

    Raises:
        InputError: no impression is where the design says.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 4, "doc": list("abba"), "position": [1, 2, 1, 2], "click": [1, 0, 0, 1]}
        >>> ranked = {"query": ["q"] * 2, "ranker": ["f"] * 2, "doc": ["a", "b"], "position": [1, 2]}
        >>> design = Rankings(pa.table(ranked), traffic={"f": 1})
        >>> [finding] = design_findings(read_log(pa.table(shown)), design)
        >>> finding.severity, finding.value
        ('decisive', 0.5)
    """
    if design is None or isinstance(design, LoggedPlacements):  # the latter says nothing of where nothing stood
        return []
    name = "design"
    agreed = agreement(log, design, max_position)
    share = agreed.elsewhere / agreed.known
    wrong = (
        f"{agreed.elsewhere:,} of {count(agreed.known, 'impression')} ({spell_percent(share)}) stand where, by the "
        "design, they could not"
    )
    sound = "Every impression stands where, by the design, it could"
    if isinstance(design, Rankings) and log.has("ranker"):
        moved, known = _by_own_ranker(log, design, max_position)
        sound += " and its ranker has it" * (known > 0 and not moved)
        if known and moved / known > share:
            share = moved / known
            wrong = (
                f"{moved:,} of {count(known, 'impression')} ({spell_percent(share)}) do not stand where their ranker "
                "has them"
            )
    rest = agreed.shown - agreed.known
    left = f"; {count(rest, 'impression is', 'impressions are')} of results that the design does not have, and left out"
    left *= rest > 0
    swaps = swap_ranks(log, design, max_position) if isinstance(design, Swap) else []
    if not share:
        return [Finding(name, "ok", f"{sound}{left}.", value=0.0), *swaps]
    severity: Severity = "decisive" if share > FEW else "note"
    return [Finding(name, severity, f"{wrong}{left}.{WRONG * (share > FEW)}", value=share), *swaps]


def _by_own_ranker(log: ClickLog, design: Rankings, max_position: int | None) -> tuple[int, int]:
    """Return how many impressions do not stand where their ranker has them, of how many that its ranking has."""
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    t, ranked = t.mutate(ranker=t.ranker.cast("string")), design.read(log)
    keys = ["query", *(name for name in log.context if name in ranked.columns), "doc", "ranker"]
    has = ranked.select(*keys).distinct()
    known = t.semi_join(has, same(t, has, keys))
    moved = known.anti_join(ranked, same(known, ranked, [*keys, "position"]))
    counts = known.agg(known=known.impressions.sum().fill_null(0).cast("int64")).cross_join(
        moved.agg(moved=moved.impressions.sum().fill_null(0).cast("int64"))
    )
    row = log.engine.fetch(counts, task="Checking the design").to_pylist()[0]
    return row["moved"], row["known"]


@dataclass(frozen=True)
class _Drawn:
    """How often ranks were drawn.

    Attributes:
        ranks: the ranks of each group.
        meant: the probability of each group, π.
        pages: the pages of each, N.
        variance: that of N by the design.
        p_value: probability of such differences, or larger ones, by the design.
        assumption: what is taken as independent.
    """

    ranks: list[list[int]]
    meant: Array
    pages: Array
    variance: Array
    p_value: float
    assumption: str


def swap_ranks(log: ClickLog, design: Swap, max_position: int | None = None) -> list[Finding]:
    """Test whether the result that was first before the swap stands at each rank as often as the design says.

    Pearson's X² = |d|², d_s = (N_s − N π_s) / √(N π_s), N_s pages on which rank s was drawn. Users may keep their rank.
    Where the log has a user column, a user's pages n_us count m_us = n_us / √n_u, n_u = Σ_s n_us, so that the test is
    not dominated by the few users who come back most, and is clustered by user as in `independence_tail`.

    Ranks that the log never shows at all, as where it is cut, are left out, and the others' π sums to 1 again. The
    number is the least error of the share of some rank, |N_s − N π_s| − 2 SE over N π_s: the exposures of that rank are
    wrong by as much. Below `MATTERS` it does no harm, however certain.

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
        return [Finding(SWAPS, "note", "Too few pages, or ranks, to test whether swaps were drawn as the design says.")]
    return [_finding(drawn, design.pivot)]


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
        p_value = chi_square_tail(n, whole * pi, len(pi) - 1)
        return _Drawn(named, pi, n, whole * pi * (1 - pi), p_value, "pages taken as independent")
    group = ibis.cases(*((cells["rank"].isin(group), i) for i, group in enumerate(named)))
    cells = cells.mutate(group=group).group_by("_user", "group").agg(pages=lambda c: c.pages.sum())
    cells = log.engine.materialise(cells.mutate(all=cells.pages.sum().over(group_by="_user")), task=TASK)
    weighted = cells.select("_user", "group", pages=cells.pages / cells["all"].sqrt())
    table = np.zeros(len(pi))
    totals = weighted.group_by("group").agg(pages=weighted.pages.sum())
    for row in log.engine.fetch(totals, task=TASK).to_pylist():
        table[row["group"]] = row["pages"]
    p_value = independence_tail(weighted, {"group": dict(enumerate(pi))}, table, len(pi) - 1, log.engine, TASK)
    return _Drawn(named, pi, n, _variance(log.engine, cells, pi), p_value, "clustered by user")


def _variance(engine: Engine, cells: ir.Table, meant: Array) -> Array:
    """Return Σ_u (n_us − n_u π_s)² of every group s."""
    by_group = cells.group_by("group").agg(
        squares=(cells.pages * cells.pages).sum(), products=(cells.pages * cells["all"]).sum()
    )
    users = cells.group_by("_user").agg(all=cells["all"].max())
    sizes = engine.fetch(users.agg(sizes=(users["all"] * users["all"]).sum()), task=TASK)["sizes"][0].as_py()
    variance: Array = meant**2 * sizes
    for row in engine.fetch(by_group, task=TASK).to_pylist():
        variance[row["group"]] += row["squares"] - 2 * meant[row["group"]] * row["products"]
    return variance


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


def _finding(drawn: _Drawn, pivot: int) -> Finding:
    """Return what the draws say of the rank that is off most."""
    whole, p_value = drawn.pages.sum(), drawn.p_value
    expected = whole * drawn.meant
    off = np.abs(drawn.pages - expected)
    least = np.maximum(off - SURE * np.sqrt(drawn.variance), 0) / expected
    worst = int(np.lexsort((off / expected, least))[-1])
    value, severity = float(least[worst]), sign_of(p_value)
    several = "s" * (len(drawn.ranks[worst]) > 1)
    seen, meant = spell_percent(drawn.pages[worst] / whole), spell_percent(drawn.meant[worst])
    draws = (
        f"what stood at rank {pivot} before the swap stands at rank{several} {spell_positions(drawn.ranks[worst])} on "
        f"{seen} of the pages, by the design on {meant}"
    )
    if severity != "warning":
        sentence = f"{spell_sign(p_value)} that swaps were not drawn as the design says: {draws}."
    elif value < MATTERS:
        severity = "note"
        sentence = f"Swaps were not drawn quite as the design says: {draws}. This is too little to matter."
    else:
        severity, sentence = "decisive", WRONG_SWAPS.format(draws=draws)
    details = f"{spell_p(p_value)}, {drawn.assumption}"
    return Finding(SWAPS, severity, sentence, value=value, p=p_value, details=details)
