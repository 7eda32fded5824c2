"""Tests of how pages were assigned to rankers: does the choice depend on query or context, is the traffic as meant?

A page is one impression at position 1; where the log has a page column, pages are counted, not rows, so that positions
that restart or repeat on a page count once. A/B tests assign users, not pages, and pages of one user are alike: where
the log has a user column, tests sum what each user adds to what was observed less what was expected, d = Σ_u d_u. All
follows from sums over pairs of a user's counts, by a join of the counts with themselves. Without such a column pages
are taken as independent, and sentences say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.finding import Finding, sign_of, spell_p, spell_percent, spell_sign
from clickharvest.checks.laws import chi_square_tail, hotelling_tail, squares_tail
from clickharvest.checks.overlap import level_of
from clickharvest.checks.users import count_moments, pairs_of_counts, with_user
from clickharvest.errors import InputError
from clickharvest.parameters import require_number

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

Array = NDArray[np.float64]

ONE_RANKER = 0.99
"""Where at least so many users met one ranker only, users were assigned, and users are counted."""


def ranker_independence(log: ClickLog) -> list[Finding]:
    """Test Pr(ranker | x) = Pr(ranker), for the query and each context column.

    Pearson's χ² on pages by ranker and level, with users as in `_by_user`; the number is the largest difference of a
    ranker's traffic mix from the whole, in total variation ½ Σ |share − share|.
    """
    if not log.has("ranker"):
        return []
    findings = []
    plain = log.with_plain_contexts()
    for column, own in zip(("query", *log.context), ("query", *plain.context), strict=True):
        name = f"ranker and {column}"
        pages = _pages(plain, own)
        levelled = pages.mutate(level=level_of(pages, own, log.engine, weight="pages"))
        counted = _Counted.of(levelled, ["arm", "level"], log, f"Testing {name}")
        groups = counted.groups()
        if groups is None:
            told = f"Too few pages to test whether the ranker depends on {column}."
            if len(counted.levels) == 1:
                told = f"{column} has one value on all pages, on which no choice of ranker can depend."
            findings.append(Finding(name, "note", told))
            continue
        table = counted.grouped(groups)
        whole = table.sum(0) / table.sum()
        expected, mix = table.sum(1, keepdims=True) * whole, table / table.sum(1, keepdims=True)
        if counted.cells is None:
            p_value = _chi_square(table, expected, (table.shape[0] - 1) * (table.shape[1] - 1))
        else:
            p_value = _by_user(counted, groups, table, log.engine, f"Testing {name}")
        distance = float(0.5 * np.abs(mix - whole).sum(1).max())
        status, told = sign_of(p_value), f"{spell_p(p_value)}, {counted.told}"
        sentence = f"{spell_sign(p_value)} that the choice of ranker depends on {column} ({told})."
        if status == "warning":
            sentence = (
                f"The choice of ranker depends on {column} (traffic mixes differ by {spell_percent(distance)}, "
                f"{told}): design exposures and AllPairs would be biased; realised exposures with "
                "ClickShare are not affected."
            )
        findings.append(Finding(name, status, sentence, value=distance, p=p_value))
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

    Users are counted where (nearly) all of them met one ranker only: how many pages a user sees is up to the ranker,
    too. Where users met several, pages are counted, with d = N_a − N · share_a,

        T = dᵀ V⁺ d,   V = Σ_u d_u d_uᵀ,   T / U ~ Beta(r/2, (U − r)/2),   r = rank V, U users.
    """
    if not log.has("ranker"):
        return []
    counted = _Counted.of(_pages(log, None), ["arm"], log, "Testing the traffic")
    seen = dict(zip(counted.arms, counted.table.sum(axis=1), strict=True))
    if len(seen) < 2:
        return [Finding("sample ratio", "note", "Fewer than two rankers with a result at position 1: nothing to test.")]
    meant = dict.fromkeys(seen, 1.0) if traffic is None else {str(arm): share for arm, share in traffic.items()}
    meant = {arm: share for arm, share in meant.items() if share > 0}
    if unexpected := sorted(seen.keys() - meant.keys()):
        sentence = f"Rankers outside the given traffic served pages: {', '.join(unexpected)}."
        return [Finding("sample ratio", "warning", sentence)]
    shares = np.array(list(meant.values())) / sum(meant.values())
    observed = np.array([seen.get(arm, 0.0) for arm in meant])
    expected = observed.sum() * shares
    if counted.cells is None:
        p_value = _chi_square(observed, expected, len(observed) - 1)
    else:
        place = np.array([[arm == other for other in counted.arms] for arm in meant], dtype=np.float64)
        linear = place - shares[:, None]
        users = counted.cells.agg(users=counted.cells._user.nunique())
        total = int(log.engine.fetch(users, task="Testing the traffic")["users"][0].as_py())
        moments = count_moments(counted.cells, {"arm": counted.arms}, log.engine, "Testing the traffic")
        p_value = _robust(observed - expected, linear @ moments @ linear.T, total)
    value = float(np.max(np.abs(observed - expected)) / observed.sum())
    told = f"{', '.join(f'{arm} {spell_percent(n / observed.sum())}' for arm, n in seen.items())} of {counted.what}"
    status, how = sign_of(p_value), f"{spell_p(p_value)}, {counted.told}"
    if traffic is None:
        sentence = f"Traffic: {told}. If equal shares were meant, {how}; test other shares with --traffic."
        return [Finding("sample ratio", "ok" if status == "ok" else "note", sentence, value=value, p=p_value)]
    verdict = {
        "ok": "as meant",
        "note": "perhaps not as meant, a weak sign",
        "warning": "not as meant: is part of the traffic lost or logged twice?",
    }[status]
    return [Finding("sample ratio", status, f"Traffic: {told}, {verdict} ({how}).", value=value, p=p_value)]


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
class _Counted:
    """Pages, or users, by ranker and level.

    Attributes:
        arms: the rankers.
        levels: the levels.
        table: counts, [rankers, levels].
        backing: how many independent counts are behind each: pages or users.
        cells: pages of each user by ranker and level; None where counts are independent.
        what: what is counted.
        told: what is taken as independent.
    """

    arms: list[str]
    levels: list[str]
    table: Array
    backing: Array
    cells: ir.Table | None
    what: str
    told: str

    @classmethod
    def of(cls, pages: ir.Table, by: list[str], log: ClickLog, task: str) -> _Counted:
        """Count pages by `by`, the arm first; with users, users where each met one arm and there are no levels."""
        if not log.has("user"):
            counts = pages.group_by(*by).agg(pages=pages.pages.sum())
            rows = log.engine.fetch(counts.order_by(*by), task=task).to_pylist()
            arms, levels = _names(rows, "arm"), _names(rows, "level")
            table = _filled(rows, "pages", arms, levels)
            return cls(arms, levels, table, table, None, "pages", "pages taken as independent")
        cells = log.engine.materialise(pages.group_by("_user", *by).agg(pages=pages.pages.sum()), task=task)
        if by == ["arm"]:
            met = cells.group_by("_user").agg(arms=cells.count(), arm=cells.arm.min())
            single = met.filter(met.arms == 1)
            share = met.agg(share=(met.arms == 1).ifelse(1.0, 0.0).mean())
            if (log.engine.fetch(share, task=task)["share"][0].as_py() or 0.0) >= ONE_RANKER:
                counts = single.group_by("arm").agg(users=single.count().cast("float64"))
                rows = log.engine.fetch(counts.order_by("arm"), task=task).to_pylist()
                arms = _names(rows, "arm")
                table = _filled(rows, "users", arms, [""])
                return cls(arms, [""], table, table, None, "users", "users counted")
        counts = cells.group_by(*by).agg(pages=cells.pages.sum(), users=cells.count())
        rows = log.engine.fetch(counts.order_by(*by), task=task).to_pylist()
        arms, levels = _names(rows, "arm"), _names(rows, "level")
        table, users = (_filled(rows, name, arms, levels) for name in ("pages", "users"))
        return cls(arms, levels, table, users, cells, "pages", "clustered by user")

    def groups(self) -> dict[str, int] | None:
        """Return the group of each level: levels with fewer than 5 expected are put together.

        If they are still too few, they join the least frequent other one. None where fewer than two groups, or rankers,
        are left.
        """
        if self.table.size == 0 or len(self.arms) < 2:
            return None
        expected = self.backing.sum(0) * self.table.sum(1).min() / self.table.sum()
        order = np.argsort(-expected, kind="stable")
        group = np.minimum(np.arange(len(order)), (expected >= 5).sum())
        if group[-1] and expected[order[group == group[-1]]].sum() < 5:
            group = np.minimum(group, group[-1] - 1)
        return dict(zip((self.levels[i] for i in order), group.tolist(), strict=True)) if group[-1] else None

    def grouped(self, groups: Mapping[str, int]) -> Array:
        """Return the counts by ranker and group, [rankers, groups]."""
        table = np.zeros((len(self.arms), max(groups.values()) + 1))
        for level, group in groups.items():
            table[:, group] += self.table[:, self.levels.index(level)]
        return table


def _by_user(counted: _Counted, groups: Mapping[str, int], table: Array, engine: Engine, task: str) -> float:
    """Return the p-value of Pearson's X² = |d|², d_al = (N_al − E_al) / √E_al, E_al = N π_a w_l, clustered by user.

    d = Σ_u d_u is linear in the counts n_u of users, so that Σ_u d_u d_uᵀ follows from Σ_u n_u n_uᵀ, and

        |d_u|² = Σ n_ual n_ubm (δ_ab / π_a − 1) (δ_lm / w_l − 1) / N.

    The law is `squares_tail`. Whitened by its covariance instead, d would follow the few users of a small arm, or of
    single ones of many arms and levels, and be far from normal: sound logs would be rejected by the dozen.

    Args:
        counted: the users' pages by ranker and level.
        groups: the group of each level.
        table: N_al by ranker and group, [rankers, groups].
        engine: what holds the pages.
        task: what progress is told of.
    """
    cells = counted.cells
    assert cells is not None
    cells = cells.mutate(level=ibis.cases(*((cells.level == level, group) for level, group in groups.items())))
    cells = engine.materialise(cells.group_by("_user", "arm", "level").agg(pages=cells.pages.sum()), task=task)
    arms, whole = table.sum(1) / table.sum(), table.sum(0) / table.sum()
    names: dict[str, Sequence[Any]] = {"arm": counted.arms, "level": range(len(whole))}
    moments = count_moments(cells, names, engine, task)
    scale = 1 / np.sqrt(table.sum() * np.outer(arms, whole).ravel())
    linear = np.kron(np.eye(len(arms)) - arms[:, None], np.eye(len(whole)) - whole[:, None]) * scale[:, None]
    both = pairs_of_counts(cells)
    alike = both["product"]
    for name, shares in (("arm", arms), ("level", whole)):
        same = ibis.cases(*((both[name] == one, 1 / shares[i]) for i, one in enumerate(names[name])))
        alike = alike * ((both[name] == both[f"other_{name}"]).ifelse(same, 0.0) - 1)
    users = both.group_by("_user").agg(square=alike.sum() / table.sum())
    fourth = engine.fetch(users.agg(fourth=(users.square * users.square).sum()), task=task)["fourth"][0].as_py()
    variance = linear @ moments @ linear.T
    return squares_tail(
        float(np.sum((table.ravel() * scale - 1 / scale) ** 2)),
        float(np.trace(variance)),
        float(np.sum(variance**2)),
        fourth,
        table.size,
    )


def _names(rows: list[dict[str, Any]], name: str) -> list[str]:
    return sorted({str(row.get(name, "")) for row in rows})


def _filled(rows: list[dict[str, Any]], value: str, arms: list[str], levels: list[str]) -> Array:
    table = np.zeros((len(arms), len(levels)))
    for row in rows:
        table[arms.index(row["arm"]), levels.index(row.get("level", ""))] = row[value]
    return table


def _chi_square(observed: Array, expected: Array, freedom: int) -> float:
    return chi_square_tail(float(((observed - expected) ** 2 / expected).sum()), freedom)


def _robust(total: Array, variance: Array, users: int) -> float:
    """Return the p-value of T = dᵀ V⁺ d over so many users."""
    scale = 1 / np.sqrt(np.maximum(np.diag(variance), 1e-300))
    values, vectors = np.linalg.eigh(variance * scale * scale[:, None])
    some = values > 1e-8
    along = (total * scale) @ vectors[:, some]
    return hotelling_tail(float(np.sum(along**2 / values[some])), int(some.sum()), users) if some.any() else 1.0
