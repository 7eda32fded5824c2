"""Do rankers go by more than the log tells? A result at one position, where some rankers usually show it elsewhere.

An estimate compares displays of a document at several positions, and takes for granted that chance, or who was assigned
to which ranker, put it there. A ranker that knows its users puts it higher for those who want it more, and the curve is
too steep. A logged position that is not where the result stood, such as the rank before a shuffle, makes it too flat.
Either way clicks at one position depend on where the result *usually* stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.diagnosis.arm_displays import MOST_ROWS, TASK
from clickharvest.diagnosis.findings import Finding, percent, sign_of, spell_p, spell_sign
from clickharvest.diagnosis.laws import FEWEST, clustered_tail
from clickharvest.diagnosis.users import with_user
from clickharvest.harvesting.numbering import as_array, distinct
from clickharvest.logs.click_log import same
from clickharvest.logs.hashing import is_drawn

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.logs.click_log import ClickLog

Array = NDArray[np.float64]
Integers = NDArray[np.intp]

NAME = "usual position"
STILL = 0.05
"""Share of all movement that is within rankers, up to which it is too little to bias anything."""
MATTERS = 0.1
"""Power of the usual position that is too small to matter: a fifth at position 8, if all of it were bias."""
ROUNDS, EXACT = 200, 1e-9
"""Rounds of the null fit and of the projection at most, and the change that ends them."""


def usual_position(log: ClickLog, cells: ir.Table) -> list[Finding]:
    """Test whether a unit at a position is clicked alike with rankers that usually show it higher and lower.

    With m_{u,a} the mean log position at which ranker a shows unit u, the clicks of u at position k fall to rankers as

        C_{u,a,k} ∝ n_{u,a,k} θ_{a,k} e^{γ m_{u,a}},

    n displays and θ_{a,k} whatever else differs between rankers (layout, season, users). γ = 0 where chance decides on
    which of its pages a ranker moves a result: at a given position, it does not matter then where the result usually
    stands. The score of γ is U = Σ s (C − μ), μ the clicks expected with γ = 0, and s what is left of m once units at
    positions, and θ, are taken out. Its law is that of queries, and of users where they are known, that differ
    (`clustered_tail`).

    The number is U / Σ μ s², the one-step estimate of γ: how much flatter the curve is, as a power of k, where rankers
    are compared with each other rather than the pages of each.

    Rankers that show a result at one position go by nothing that is unknown, and are not tested.

    Args:
        log: a log with a ranker column.
        cells: its `count_displays`.
    """
    unit = ["query", *log.context, "doc"]
    moved = log.engine.fetch(_movement(cells, unit), task=TASK).to_pylist()[0]
    if not moved["whole"]:
        return []
    within = moved["within"] / moved["whole"]
    if within <= STILL:
        sentence = "Each ranker shows a result at one position, or nearly so: none can put it higher for some users."
        return [Finding(NAME, "ok", sentence)]
    share = MOST_ROWS / moved["shown"]
    test = _score(log.engine.fetch(_compared(log, cells, unit, share), task=TASK), unit)
    if test is None:
        sentence = (
            f"Each ranker moves results from page to page ({percent(within)} of all that they move), and none is shown "
            "at one position by rankers that usually show it elsewhere: whether rankers put it higher for users who "
            "want it more cannot be tested."
        )
        return [Finding(NAME, "note", sentence)]
    return [_tell(*test)]


def _movement(cells: ir.Table, unit: list[str]) -> ir.Table:
    """Return the squares by which clicked units move, in log position: within rankers, and in all; and displays."""
    clicked = cells.mutate(
        log_k=cells.position.cast("float64").ln(), _clicks=cells.clicks.sum().over(ibis.window(group_by=unit))
    )
    clicked = clicked.filter(clicked._clicks > 0)
    height = clicked.shown * clicked.log_k
    means = {
        name: height.sum().over(w := ibis.window(group_by=keys)) / clicked.shown.sum().over(w)
        for name, keys in (("own", [*unit, "arm"]), ("mean", unit))
    }
    clicked = clicked.select("shown", "log_k", **means)
    off, away = clicked.log_k - clicked.own, clicked.log_k - clicked["mean"]
    return clicked.agg(
        within=(clicked.shown * off * off).sum(),
        whole=(clicked.shown * away * away).sum(),
        shown=clicked.shown.sum(),
    )


def _compared(log: ClickLog, cells: ir.Table, unit: list[str], share: float) -> ir.Table:
    """Return displays and clicks of units at positions where several rankers show them, with what is usual of each.

    By user, if users are known: all of some users, where rows are so many that `share` of them will do.
    """
    by_ranker, place = ibis.window(group_by=[*unit, "arm"]), ibis.window(group_by=[*unit, "position"])
    height = cells.shown * cells.position.cast("float64").ln()
    cells = cells.mutate(usual=height.sum().over(by_ranker) / cells.shown.sum().over(by_ranker))
    cells = cells.mutate(
        _apart=cells.usual.max().over(place) - cells.usual.min().over(place),
        _clicks=cells.clicks.sum().over(place),
        _shown=cells.shown.sum().over(place),
    )
    cells = cells.filter((cells._apart > EXACT) & (cells._clicks > 0) & (cells._clicks < cells._shown))
    keys = [*unit, "position", "arm"]
    cells = cells.select(*keys, "usual", "shown", "clicks")
    if not log.has("user"):
        return cells
    rows = with_user(log, log.table)
    if share < 1:
        rows = rows.filter(is_drawn(rows._user, share))
    rows = rows.group_by(*unit, "position", "_user", arm=rows.ranker.cast("string")).agg(
        shown=rows.impressions.sum().cast("float64"), clicks=rows.clicks.sum().cast("float64")
    )
    joined = rows.join(cells, same(rows, cells, keys), rname="all_{name}")
    return joined.select(*keys, "usual", "shown", "clicks", "_user")


def _score(rows: pa.Table, unit: list[str]) -> tuple[float, float] | None:
    """Return the estimate of γ and its p-value; None where nothing is compared."""
    if not rows.num_rows:
        return None
    codes = {name: _numbered(rows[name]) for name in (*unit, "position", "arm")}
    shown, clicks = as_array(rows["shown"]), as_array(rows["clicks"])
    first, cell = distinct(*codes.values())
    at = distinct(*(codes[name][first] for name in (*unit, "position")))[1]
    look = distinct(codes["arm"][first], codes["position"][first])[1]
    n, c = (np.bincount(cell, column).astype(np.float64) for column in (shown, clicks))
    usual = as_array(rows["usual"])[first]
    c_at, n_at = np.bincount(at, c), np.bincount(at, n)
    share = _null_shares(n, c, at, look)
    mu = c_at[at] * share
    s = _left_of(usual, share, mu, at, look)
    spread = np.bincount(at, share * s * s)
    information = c_at * spread
    if not information.sum() > EXACT:
        return None
    score = s[cell] * (clicks - (mu / n)[cell] * shown)
    variance = (s * s * mu * ((n_at - c_at) / (n_at - 1))[at] / n)[cell] * shown
    user = _numbered(rows["_user"]) if "_user" in rows.column_names else None
    return float(score.sum() / information.sum()), _tail(score, variance, codes["query"], user)


def _numbered(column: pa.ChunkedArray) -> Integers:
    """Return numbers for the values of a column; what is empty is a value, too."""
    codes: Integers = np.from_dlpack(column.combine_chunks().dictionary_encode("encode").indices).astype(np.intp)
    return codes


def _null_shares(n: Array, c: Array, at: Integers, look: Integers) -> Array:
    """Return how the clicks of a unit at a position fall to rankers if γ = 0, by iterative scaling."""
    clicks, seen = np.bincount(at, c)[at], np.bincount(look, c)
    weighed = n
    for _ in range(ROUNDS):
        share: Array = weighed / np.bincount(at, weighed)[at]
        expected = np.bincount(look, clicks * share)
        if np.abs(seen - expected).max(initial=0.0) <= EXACT * clicks.sum():
            break
        weighed = weighed * (np.maximum(seen, EXACT) / np.maximum(expected, EXACT))[look]
    return share


def _left_of(usual: Array, share: Array, mu: Array, at: Integers, look: Integers) -> Array:
    """Return what units at positions, and rankers at positions, leave of what is usual: least squares weighted by μ."""
    s, weight = usual - np.bincount(at, share * usual)[at], np.maximum(np.bincount(look, mu), EXACT)
    for _ in range(ROUNDS):
        mean = np.bincount(look, mu * s) / weight
        s = s - mean[look]
        s = s - np.bincount(at, share * s)[at]
        if np.abs(mean).max(initial=0.0) <= EXACT:
            break
    return s


def _tail(score: Array, variance: Array, query: Integers, user: Integers | None) -> float:
    """Return the p-value of a sum of scores that depend within queries, and within users where they are known.

    What depends in two ways has the squares of both, less those that both have in common. Few queries tell nothing of
    how queries differ, and then users alone count.
    """
    sums = _sums(score, variance, query)
    if user is not None:
        own = _sums(score, variance, user)
        few = variance.sum() ** 2 < FEWEST * sums[2]
        sums = own if few else sums + own - _sums(score, variance, distinct(query, user)[1])
    return clustered_tail(float(score.sum()), float(variance.sum()), *map(float, sums))


def _sums(score: Array, variance: Array, group: Integers) -> Array:
    """Return Σ U_g², Σ U_g V_g and Σ V_g², which `clustered_tail` takes, [3]."""
    own, size = np.bincount(group, score), np.bincount(group, variance)
    return np.array([own @ own, own @ size, size @ size])


def _tell(power: float, p_value: float) -> Finding:
    """Return what is told of γ."""
    told = f"power of its usual position {power:+.2f}, {spell_p(p_value)}"
    status = sign_of(p_value)
    if status != "warning":
        sentence = (
            f"{spell_sign(p_value)} that the same result at the same position is clicked more, or less, with rankers "
            f"that usually show it elsewhere ({told})."
        )
        return Finding(NAME, status, sentence, power, p_value)
    how = "more" if power > 0 else "less"
    begin = f"The same result at the same position is clicked {how} with rankers that usually show it lower ({told})"
    if abs(power) < MATTERS:
        return Finding(NAME, "note", f"{begin}: too little to matter.", power, p_value)
    if power > 0:
        sentence = (
            f"{begin}: they put it higher for users who want it more, by something that the log does not name, and the "
            "curve is too steep. Name what they go by (--context), or swap ranks at random on part of the traffic."
        )
    else:
        sentence = (
            f"{begin}, as if it had stood where it usually does: results were shuffled, filtered or moved after their "
            "position was logged, and the curve is too flat. Log positions as users see them."
        )
    return Finding(NAME, "warning", sentence, power, p_value)
