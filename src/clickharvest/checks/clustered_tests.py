"""Tests of counts of pages, clustered by user, and the tail probabilities of their distributions.

A user's counts n_u are pages by category, such as ranker and device. Statistics are sums of what each user adds, so
that all follows from sums over pairs of a user's counts, by a join of the counts with themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, chdtrc

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

Array = NDArray[np.float64]


def with_user(log: ClickLog, table: ir.Table) -> ir.Table:
    """Return rows of a log with users with a text column `_user`.

    Each page of an unknown user is a user of its own; without a page column such rows are left out.
    """
    known = table.user.cast("string")
    if log.has("page"):
        known = known.coalesce("page " + table.page.cast("string"))
    table = table.mutate(_user=known)
    return table.filter(table._user.notnull())


def _pairs_of_counts(cells: ir.Table) -> ir.Table:
    """Return all pairs of a user's counts (`_user`, `pages` and what they are of), with their product."""
    other = cells.view()
    both = cells.join(other, cells._user == other._user, rname="other_{name}")
    return both.mutate(product=both.pages * both.other_pages)


def count_moments(cells: ir.Table, names: Mapping[str, Sequence[Any]], engine: Engine, task: str) -> Array:
    """Return Σ_u n_u n_uᵀ over users, [counts, counts].

    Args:
        cells: a row of `_user`, `pages` and a column of each name for every count.
        names: the values of each column; counts are of all their combinations, the last fastest.
        engine: what holds the cells.
        task: what progress is called.
    """
    both = _pairs_of_counts(cells)
    sums = both.group_by(*names, *(f"other_{name}" for name in names)).agg(product=both["product"].sum())
    places = {name: {value: i for i, value in enumerate(values)} for name, values in names.items()}
    moments = np.zeros([len(values) for values in names.values()] * 2)
    for row in engine.fetch(sums, task=task).to_pylist():
        at = tuple(places[name][row[f"{side}{name}"]] for side in ("", "other_") for name in names)
        moments[at] = row["product"]
    return moments.reshape([int(np.sqrt(moments.size))] * 2)


def independence_tail(
    cells: ir.Table, shares: Mapping[str, Mapping[Any, float]], table: Array, entries: int, engine: Engine, task: str
) -> float:
    """Return the p-value of Pearson's X² for counts that are expected to be products of shares, clustered by user.

    X² = |d|², d_c = (N_c − E_c) / √E_c, E_c = N Π_a π_a(c), and d = Σ_u d_u is linear in the counts of users, with

        |d_u|² = Σ_{c,c'} n_uc n_uc' Π_a (δ_a(c, c') / π_a(c) − 1) / N.

    The distribution is `squares_tail`'s. Whitened by its covariance instead, d would follow the few users of a small
    arm, or of single ones of many arms and levels, and be far from normal: sound logs would be rejected by the dozen.

    Args:
        cells: pages of each user, as in `count_moments`.
        shares: the share π of each value of each column.
        table: N_c, [values of each column].
        entries: degrees of freedom at most.
        engine: what holds the cells.
        task: what progress is called.
    """
    import ibis

    names = {name: list(values) for name, values in shares.items()}
    moments, both = count_moments(cells, names, engine, task), _pairs_of_counts(cells)
    alike = both["product"]
    for name, values in shares.items():
        same = ibis.cases(*((both[name] == value, 1 / float(share)) for value, share in values.items()))
        alike = alike * ((both[name] == both[f"other_{name}"]).ifelse(same, 0.0) - 1)
    users = both.group_by("_user").agg(square=alike.sum() / float(table.sum()))
    fourth = engine.fetch(users.agg(fourth=(users.square * users.square).sum()), task=task)["fourth"][0].as_py()
    expected: Array = np.array([table.sum()])
    linear: Array = np.ones((1, 1))
    for values in shares.values():
        share = np.array(list(values.values()), dtype=np.float64)
        expected = np.kron(expected, share).astype(np.float64)
        linear = np.kron(linear, np.eye(len(share)) - share[:, None]).astype(np.float64)
    linear = linear / np.sqrt(expected)[:, None]
    variance = linear @ moments @ linear.T
    statistic = float(np.sum((table.ravel() - expected) ** 2 / expected))
    return squares_tail(statistic, float(np.trace(variance)), float(np.sum(variance**2)), fourth, entries)


def whitened_tail(total: Array, variance: Array, users: int) -> float:
    """Return the p-value of T = dᵀ V⁺ d, d being a sum over so many users and V the sum of their squares."""
    scale = 1 / np.sqrt(np.maximum(np.diag(variance), 1e-300))
    values, vectors = np.linalg.eigh(variance * scale * scale[:, None])
    some = values > 1e-8
    along = (total * scale) @ vectors[:, some]
    return hotelling_tail(float(np.sum(along**2 / values[some])), int(some.sum()), users) if some.any() else 1.0


def chi_square_tail(observed: Array, expected: Array, freedom: int) -> float:
    """Return the p-value of Pearson's χ² of independent counts.

    Example:
        >>> round(chi_square_tail(np.array([30.0, 10.0]), np.array([20.0, 20.0]), 1), 4)
        0.0016
    """
    return float(chdtrc(freedom, float(((observed - expected) ** 2 / expected).sum())))


def hotelling_tail(statistic: float, freedom: int, groups: int) -> float:
    """Return the probability that T = Uᵀ V⁻¹ U exceeds a value, U = Σ_g u_g, V = Σ_g u_g u_gᵀ over so many groups.

    T / G ~ Beta(r/2, (G − r)/2) for independent groups with normal u_g. T cannot exceed G: a χ² distribution, its limit
    for many groups, would seldom reject where groups are not many times the degrees of freedom.

    Example:
        >>> round(hotelling_tail(3.84, 1, 10_000), 3), round(hotelling_tail(30.1, 19, 100), 3)
        (0.05, 0.032)
    """
    share = min(max(statistic / groups, 0.0), 1.0)
    return float(betaincc(freedom / 2, (groups - freedom) / 2, share)) if groups > freedom else 1.0


def squares_tail(statistic: float, mean: float, products: float, fourth: float, entries: int) -> float:
    """Return the probability that X² = |Σ_g d_g|² exceeds a value, d_g being independent of each other, with mean 0.

    X² = Σ_g |d_g|² + Σ_{g≠h} d_g·d_h: the second part has mean 0, and the variance 2 v, v = Σ_{g≠h} (d_g·d_h)². So X²
    over Σ_g |d_g|² is about χ²_ν / ν with ν = (Σ_g |d_g|²)² / v, at most the number of entries of d. The larger some
    groups are, the less sure is v: with G = (Σ_g |d_g|²)² / Σ_g |d_g|⁴ groups of equal weight the distribution is F's
    with ν and 2 G ν degrees of freedom (the factor by simulation). No covariance is inverted: this holds with fewer
    groups than d has entries, and with d far from normal.

    Args:
        statistic: X².
        mean: Σ_g |d_g|².
        products: Σ_{g,h} (d_g·d_h)², which is tr (Σ_g d_g d_gᵀ)².
        fourth: Σ_g |d_g|⁴.
        entries: how many d has.

    Example:
        A thousand groups in one direction, at its 5 % point; three groups, all of which point to the same side.

        >>> round(squares_tail(3.84, 1.0, 1.0, 0.001, 1), 3), round(squares_tail(3.0, 1.0, 1.0, 1 / 3, 1), 2)
        (0.05, 0.13)
    """
    if not mean > 0:
        return 1.0
    freedom = mean**2 / max(products - fourth, mean**2 / entries)
    rest = 2 * freedom * mean**2 / fourth
    return float(betainc(rest / 2, freedom / 2, rest / (rest + freedom * statistic / mean)))
