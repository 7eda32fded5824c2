"""Tests of how pages were assigned to rankers: does the choice depend on query or context, is the traffic as meant?

A page is one impression at position 1; where the log has a page column, pages are counted, not rows, so that positions
that restart or repeat on a page count once. A/B tests assign users, not pages, and pages of one user are alike: where
the log has a user column, tests are clustered by user. Without such a column pages are taken as independent, and
sentences say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.clustered_tests import (
    chi_square_tail,
    count_moments,
    independence_tail,
    whitened_tail,
    with_user,
)
from clickharvest.checks.finding import Finding, sign_of, spell_p, spell_percent, spell_sign
from clickharvest.checks.overlap import level_of
from clickharvest.errors import InputError
from clickharvest.parameters import require_number

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

Array = NDArray[np.float64]

ONE_RANKER = 0.99
"""Share of users who met one ranker only from which on users are counted: then users were assigned, not pages."""
EXPECTED = 5
"""Expected pages, or users, of each level; levels with fewer are put together."""


def ranker_independence(log: ClickLog) -> list[Finding]:
    """Test Pr(ranker | x) = Pr(ranker), for the query and each context column.

    Pearson's χ² on pages by ranker and level, clustered by user as in `independence_tail`; the number is the largest
    difference of a ranker's traffic mix from the whole, in total variation ½ Σ |share − share|.
    """
    if not log.has("ranker"):
        return []
    findings = []
    plain = log.with_plain_contexts()
    for column, plain_column in zip(("query", *log.context), ("query", *plain.context), strict=True):
        name = f"ranker and {column}"
        task = f"Testing {name}"
        pages = _pages(plain, plain_column)
        pages = pages.mutate(level=level_of(pages, plain_column, log.engine, weight="pages"))
        counts = _PageCounts.of(pages, ["arm", "level"], log, task)
        groups = counts.groups()
        if groups is None:
            sentence = f"Too few pages to test whether the ranker depends on {column}."
            if len(counts.levels) == 1:
                sentence = f"{column} has one value on all pages, on which no choice of ranker can depend."
            findings.append(Finding(name, "note", sentence))
            continue
        table = np.zeros((len(counts.arms), max(groups.values()) + 1))
        for level, group in groups.items():
            table[:, group] += counts.table[:, counts.levels.index(level)]
        whole, mix = table.sum(0) / table.sum(), table / table.sum(1, keepdims=True)
        if counts.cells is None:
            freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
            p_value = chi_square_tail(table, table.sum(1, keepdims=True) * whole, freedom)
        else:
            cells = counts.cells
            cells = cells.mutate(level=ibis.cases(*((cells.level == level, group) for level, group in groups.items())))
            cells = cells.group_by("_user", "arm", "level").agg(pages=cells.pages.sum())
            arms = dict(zip(counts.arms, table.sum(1) / table.sum(), strict=True))
            shares: dict[str, dict[Any, float]] = {"arm": arms, "level": dict(enumerate(whole))}
            cells = log.engine.materialise(cells, task=task)
            p_value = independence_tail(cells, shares, table, table.size, log.engine, task)
        distance = float(0.5 * np.abs(mix - whole).sum(1).max())
        severity, details = sign_of(p_value), f"{spell_p(p_value)}, {counts.assumption}"
        sentence = f"{spell_sign(p_value)} that the choice of ranker depends on {column}."
        if severity == "warning":
            sentence = (
                f"The choice of ranker depends on {column}: traffic mixes differ by {spell_percent(distance)}. Design "
                "exposures and AllPairs would be biased; realised exposures with ClickShare are not affected."
            )
        findings.append(Finding(name, severity, sentence, value=distance, p=p_value, details=details))
    return findings


def require_shares(traffic: Mapping[str, float]) -> None:
    """Raise `InputError` unless the traffic that rankers were meant to get are shares of something.

    Example:
        >>> require_shares({"a": 0, "b": 0})
        Traceback (most recent call last):
        clickharvest.errors.InputError: traffic gives no ranker a share: expected such as {'a': 90, 'b': 10}
    """
    for ranker, share in traffic.items():
        require_number(f"the traffic of ranker {ranker}", share, 0.0)
    if not any(share > 0 for share in traffic.values()):
        raise InputError("traffic gives no ranker a share: expected such as {'a': 90, 'b': 10}")


def sample_ratio(log: ClickLog, traffic: Mapping[str, float] | None) -> list[Finding]:
    """Test the traffic each ranker got against what was meant: equal shares unless `traffic` says otherwise.

    Users are counted where (nearly) all of them met one ranker only: the number of pages a user sees depends on the
    ranker, too. Where users met several, pages are counted, with d = N_a − N · share_a,

        T = dᵀ V⁺ d,   V = Σ_u d_u d_uᵀ,   T / U ~ Beta(r/2, (U − r)/2),   r = rank V, U users.
    """
    if not log.has("ranker"):
        return []
    name, task = "sample ratio", "Testing the traffic"
    counts = _PageCounts.of(_pages(log, None), ["arm"], log, task)
    seen = dict(zip(counts.arms, counts.table.sum(axis=1), strict=True))
    if len(seen) < 2:
        return [Finding(name, "note", "Fewer than two rankers with a result at position 1: nothing to test.")]
    meant = dict.fromkeys(seen, 1.0) if traffic is None else {str(arm): share for arm, share in traffic.items()}
    meant = {arm: share for arm, share in meant.items() if share > 0}
    if unexpected := sorted(seen.keys() - meant.keys()):
        return [Finding(name, "warning", f"Rankers outside the given traffic served pages: {', '.join(unexpected)}.")]
    shares = np.array(list(meant.values())) / sum(meant.values())
    observed = np.array([seen.get(arm, 0.0) for arm in meant])
    expected = observed.sum() * shares
    if counts.cells is None:
        p_value = chi_square_tail(observed, expected, len(observed) - 1)
    else:
        linear = np.array([[arm == other for other in counts.arms] for arm in meant]) - shares[:, None]
        users = log.engine.fetch(counts.cells.agg(users=counts.cells._user.nunique()), task=task)["users"][0].as_py()
        moments = count_moments(counts.cells, {"arm": counts.arms}, log.engine, task)
        p_value = whitened_tail(observed - expected, linear @ moments @ linear.T, int(users))
    value = float(np.max(np.abs(observed - expected)) / observed.sum())
    split = f"{', '.join(f'{arm} {spell_percent(n / observed.sum())}' for arm, n in seen.items())} of {counts.what}"
    severity, details = sign_of(p_value), f"{spell_p(p_value)}, {counts.assumption}"
    if traffic is None:
        fair = "as for equal shares" if severity == "ok" else "not as for equal shares"
        sentence = f"Traffic: {split}, {fair}; test other shares with --traffic."
        severity = "ok" if severity == "ok" else "note"
        return [Finding(name, severity, sentence, value=value, p=p_value, details=details)]
    verdict = {
        "ok": "as meant",
        "note": "perhaps not as meant, a weak sign",
        "warning": "not as meant: is part of the traffic lost or logged twice?",
    }[severity]
    return [Finding(name, severity, f"Traffic: {split}, {verdict}.", value=value, p=p_value, details=details)]


def _pages(log: ClickLog, column: str | None) -> ir.Table:
    """Return one row per page: arm, `column`, pages (more than one in counted rows) and, if known, user."""
    t = log.table
    t = t.filter(t.position == 1).mutate(arm=t.ranker.cast("string"))
    keys = ["arm", *([column] if column else [])]
    if log.has("user"):
        t, keys = with_user(log, t), [*keys, "_user"]
    if log.has("page"):
        t = t.group_by("page", *keys).agg(pages=t.impressions.max().cast("float64"))
    else:
        t = t.mutate(pages=t.impressions.cast("float64"))
    return t.select(*keys, "pages")


@dataclass(frozen=True)
class _PageCounts:
    """Pages, or users, by ranker and level.

    Attributes:
        arms: the rankers.
        levels: the levels.
        table: counts, [rankers, levels].
        independent: how many independent counts are behind each: pages or users.
        cells: pages of each user by ranker and level; None where counts are independent.
        what: what is counted.
        assumption: what is taken as independent.
    """

    arms: list[str]
    levels: list[str]
    table: Array
    independent: Array
    cells: ir.Table | None
    what: str
    assumption: str

    @classmethod
    def of(cls, pages: ir.Table, by: list[str], log: ClickLog, task: str) -> _PageCounts:
        """Count pages by `by`, the arm first; with users, users where each met one arm and there are no levels."""

        def tabulate(counts: ir.Table, *names: str) -> tuple[list[str], list[str], list[Array]]:
            rows = log.engine.fetch(counts.order_by(*by), task=task).to_pylist()
            arms, levels = (sorted({str(row.get(name, "")) for row in rows}) for name in ("arm", "level"))
            tables = [np.zeros((len(arms), len(levels))) for _ in names]
            for row in rows:
                for table, name in zip(tables, names, strict=True):
                    table[arms.index(row["arm"]), levels.index(row.get("level", ""))] = row[name]
            return arms, levels, tables

        if not log.has("user"):
            arms, levels, [table] = tabulate(pages.group_by(*by).agg(pages=pages.pages.sum()), "pages")
            return cls(arms, levels, table, table, None, "pages", "pages taken as independent")
        cells = log.engine.materialise(pages.group_by("_user", *by).agg(pages=pages.pages.sum()), task=task)
        if by == ["arm"]:
            met = cells.group_by("_user").agg(arms=cells.count(), arm=cells.arm.min())
            single = met.filter(met.arms == 1)
            share = met.agg(share=(met.arms == 1).ifelse(1.0, 0.0).mean())
            if (log.engine.fetch(share, task=task)["share"][0].as_py() or 0.0) >= ONE_RANKER:
                users = single.group_by("arm").agg(users=single.count().cast("float64"))
                arms, levels, [table] = tabulate(users, "users")
                return cls(arms, levels, table, table, None, "users", "users counted")
        counts = cells.group_by(*by).agg(pages=cells.pages.sum(), users=cells.count())
        arms, levels, (table, independent) = tabulate(counts, "pages", "users")
        return cls(arms, levels, table, independent, cells, "pages", "clustered by user")

    def groups(self) -> dict[str, int] | None:
        """Return the group of each level: levels with fewer than `EXPECTED` expected are put together.

        If they are still too few, they join the least frequent other one. None where fewer than two groups, or rankers,
        are left.
        """
        if self.table.size == 0 or len(self.arms) < 2:
            return None
        expected = self.independent.sum(0) * self.table.sum(1).min() / self.table.sum()
        order = np.argsort(-expected, kind="stable")
        group = np.minimum(np.arange(len(order)), (expected >= EXPECTED).sum())
        if group[-1] and expected[order[group == group[-1]]].sum() < EXPECTED:
            group = np.minimum(group, group[-1] - 1)
        return dict(zip((self.levels[i] for i in order), group.tolist(), strict=True)) if group[-1] else None
