"""Tests of what harvesting takes for granted, on the log itself.

Each returns `Finding`s: a number, a p-value where there is one, and a plain sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
from numpy.typing import NDArray

from clickharvest.diagnosis.findings import ALARM, Status, spell_p
from clickharvest.diagnosis.findings import Finding as Finding
from clickharvest.diagnosis.overlap import level_of

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog


def repetition(log: ClickLog) -> list[Finding]:
    """Tell which context columns vary inside a query, and whether units are ever shown twice.

    A unit is a query, context and document. If contexts are unique to each impression, no unit is seen at two
    positions, and realised exposures identify nothing.
    """
    if not log.context:
        return []
    t = log.table
    units = t.group_by("query", *log.context, "doc").agg(_shown=t.impressions.sum())
    bare = t.group_by("query", "doc").agg(_shown=t.impressions.sum())
    again = {name: g._shown.sum(where=g._shown > 1) / g._shown.sum() for name, g in (("units", units), ("bare", bare))}
    row = units.agg(units=again["units"]).cross_join(bare.agg(bare=again["bare"]))
    shares = {k: v or 0.0 for k, v in log.engine.fetch(row, task="Looking for repetition").to_pylist()[0].items()}
    remedy = (
        "make units of query and document alone (--unit query), use coarser context columns, or give the rankings "
        "of all rankers (--rankings)"
    )
    told = f"{_percent(shares['units'])} of impressions show a query, context and document seen more than once"
    if shares["units"] == 0 and shares["bare"] > 0:
        sentence = (
            f"With the context columns every impression is unique, so nothing is shown twice (without them "
            f"{_percent(shares['bare'])} of impressions would be): {remedy}."
        )
        findings = [Finding("repetition", "warning", sentence, 0.0)]
    elif shares["units"] < 0.2 * shares["bare"]:
        sentence = f"Only {told}, against {_percent(shares['bare'])} without the context: {remedy}."
        findings = [Finding("repetition", "warning", sentence, shares["units"])]
    else:
        findings = [Finding("repetition", "ok", f"{told[0].upper()}{told[1:]}.", shares["units"])]
    return findings + _constancy(log)


def _constancy(log: ClickLog) -> list[Finding]:
    t = log.table
    ranges = {f"low_{i}": t[c].min() for i, c in enumerate(log.context)}
    ranges |= {f"high_{i}": t[c].max() for i, c in enumerate(log.context)}
    by_query = t.group_by("query").agg(**ranges)
    varying = {
        f"varying_{i}": (by_query[f"low_{i}"] != by_query[f"high_{i}"]).fill_null(False).ifelse(1.0, 0.0).mean()
        for i in range(len(log.context))
    }
    shares = log.engine.fetch(by_query.agg(**varying), task="Looking for repetition").to_pylist()[0]
    fixed = [c for i, c in enumerate(log.context) if shares[f"varying_{i}"] == 0]
    moving = {c: shares[f"varying_{i}"] for i, c in enumerate(log.context) if shares[f"varying_{i}"] > 0}
    parts = []
    if fixed:
        parts.append(f"{', '.join(fixed)}: constant within every query")
    parts += [f"{column} varies within {_percent(share)} of queries" for column, share in moving.items()]
    return [Finding("context within queries", "ok" if not moving else "note", "; ".join(parts) + ".")]


def ranker_independence(log: ClickLog) -> list[Finding]:
    """Test Pr(ranker | x) = Pr(ranker), for the query and each context column.

    Pearson's χ² on result pages (impressions at position 1) by ranker and level; the number is the largest
    difference of a ranker's traffic mix from the whole, in total variation ½ Σ |share − share|.
    """
    if not log.has("ranker"):
        return []
    top = log.table.filter(log.table.position == 1)
    findings = []
    for column in ("query", *log.context):
        name = f"ranker and {column}"
        levelled = top.mutate(arm=top.ranker.cast("string"), level=level_of(top, column, log.engine))
        counts = levelled.group_by("arm", "level").agg(pages=levelled.impressions.sum().cast("float64"))
        table = _contingency(log.engine.fetch(counts.order_by("arm", "level"), task=f"Testing {name}").to_pylist())
        if table is None:
            findings.append(Finding(name, "note", f"Too few pages to test whether the ranker depends on {column}."))
            continue
        mix, whole = table / table.sum(1, keepdims=True), table.sum(0) / table.sum()
        expected = table.sum(1, keepdims=True) * whole
        p_value = _chi_square(table, expected, (table.shape[0] - 1) * (table.shape[1] - 1))
        distance = float(0.5 * np.abs(mix - whole).sum(1).max())
        if p_value < ALARM:
            sentence = (
                f"The choice of ranker depends on {column} (traffic mixes differ by {_percent(distance)}, "
                f"{spell_p(p_value)}): design exposures and AllPairs would be biased; realised exposures with "
                "ClickShare are not affected."
            )
            findings.append(Finding(name, "warning", sentence, distance, p_value))
        else:
            sentence = f"No sign that the choice of ranker depends on {column} ({spell_p(p_value)})."
            findings.append(Finding(name, "ok", sentence, distance, p_value))
    return findings


def _contingency(rows: list[dict[str, Any]]) -> NDArray[np.float64] | None:
    """Return counts [rankers, levels], levels with an expected count under 5 put together; None if too few."""
    arms = sorted({str(row["arm"]) for row in rows})
    levels = sorted({str(row["level"]) for row in rows})
    table = np.zeros((len(arms), len(levels)))
    for row in rows:
        table[arms.index(str(row["arm"])), levels.index(str(row["level"]))] = row["pages"]
    if table.size == 0 or len(arms) < 2:
        return None
    rare = table.sum(0) * table.sum(1).min() / table.sum() < 5
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(1)]) if rare.any() else table
    table = table[:, table.sum(0) * table.sum(1).min() / table.sum() >= 5]
    return table if table.shape[1] > 1 else None


def sample_ratio(log: ClickLog, traffic: Mapping[str, float] | None) -> list[Finding]:
    """Test the traffic each ranker got against what was meant: equal shares unless `traffic` says otherwise."""
    if not log.has("ranker"):
        return []
    top = log.table.filter(log.table.position == 1)
    counts = top.group_by(arm=top.ranker.cast("string")).agg(pages=top.impressions.sum().cast("float64"))
    rows = log.engine.fetch(counts.order_by("arm"), task="Testing the traffic").to_pylist()
    pages = {row["arm"]: row["pages"] for row in rows}
    if len(pages) < 2:
        return [Finding("sample ratio", "note", "Fewer than two rankers with a result at position 1: nothing to test.")]
    meant = dict.fromkeys(pages, 1.0) if traffic is None else {str(arm): share for arm, share in traffic.items()}
    unexpected = sorted(pages.keys() - {arm for arm, share in meant.items() if share > 0})
    if unexpected:
        sentence = f"Rankers outside the given traffic served pages: {', '.join(unexpected)}."
        return [Finding("sample ratio", "warning", sentence)]
    observed = np.array([pages.get(arm, 0.0) for arm, share in meant.items() if share > 0])
    shares = np.array([share for share in meant.values() if share > 0])
    expected = observed.sum() * shares / shares.sum()
    p_value = _chi_square(observed, expected, len(observed) - 1)
    value = float(np.max(np.abs(observed - expected)) / observed.sum())
    told = ", ".join(f"{arm} {_percent(n / observed.sum())}" for arm, n in pages.items())
    if traffic is None:
        sentence = f"Traffic: {told}. If equal shares were meant, {spell_p(p_value)}; test other shares with --traffic."
        return [Finding("sample ratio", "note" if p_value < ALARM else "ok", sentence, value, p_value)]
    verdict = "as meant" if p_value >= ALARM else "not as meant: is part of the traffic lost or logged twice?"
    status: Status = "ok" if p_value >= ALARM else "warning"
    return [Finding("sample ratio", status, f"Traffic: {told}, {verdict} ({spell_p(p_value)}).", value, p_value)]


def drift(log: ClickLog) -> list[Finding]:
    """Test whether units are clicked alike in the first and the second half of their displays.

    Within each unit and position the early clicks a follow, if nothing drifts, a hypergeometric law with mean E
    and variance V. Two tests: do all units drift one way, Σ(a − E) / √ΣV (Mantel-Haenszel); do units drift each
    its own way, Σ((a − E)² − V) over its query-clustered standard error.
    """
    if not log.has("time"):
        return []
    t = log.table
    unit = ["query", *log.context, "doc"]
    order = [t.time, t.position, t.clicks]
    running = t.impressions.sum().over(ibis.window(group_by=unit, order_by=order, preceding=None, following=0))
    whole = t.impressions.sum().over(ibis.window(group_by=unit))
    halves = t.mutate(_early=running * 2 <= whole)
    strata = halves.group_by(*unit, "position").agg(
        _early_clicks=halves.clicks.sum(where=halves._early).fill_null(0).cast("float64"),
        _clicks=halves.clicks.sum().cast("float64"),
        _early=halves.impressions.sum(where=halves._early).fill_null(0).cast("float64"),
        _shown=halves.impressions.sum().cast("float64"),
    )
    early, shown, clicks = strata._early, strata._shown, strata._clicks
    strata = strata.filter((early > 0) & (early < shown) & (clicks > 0) & (clicks < shown))
    early, shown, clicks = strata._early, strata._shown, strata._clicks
    strata = strata.select(
        "query",
        early_clicks=strata._early_clicks,
        expected=clicks * early / shown,
        variance=clicks * (early / shown) * (1 - early / shown) * (shown - clicks) / (shown - 1),
    )
    excess = strata.early_clicks - strata.expected
    by_query = strata.group_by("query").agg(
        units=strata.count(),
        early_clicks=strata.early_clicks.sum(),
        expected=strata.expected.sum(),
        variance=strata.variance.sum(),
        spread=(excess * excess).sum(),
    )
    surplus = by_query.spread - by_query.variance
    sums = by_query.agg(
        **{name: by_query[name].sum() for name in ("units", "early_clicks", "expected", "variance", "spread")},
        noise=(surplus * surplus).sum(),
    )
    s = log.engine.fetch(sums, task="Testing drift").to_pylist()[0]
    if not s["units"] or not s["variance"]:
        return [Finding("drift", "note", "No unit was shown at one position early and late: drift cannot be tested.")]
    return [_common_drift(s), _single_drift(s)]


def _common_drift(s: Mapping[str, float]) -> Finding:
    p_value = 2 * _normal_tail(abs(s["early_clicks"] - s["expected"]) / math.sqrt(s["variance"]))
    value = s["early_clicks"] / s["expected"] - 1
    if p_value < ALARM:
        sentence = (
            f"First halves of units got {value:+.1%} of the clicks expected without drift ({spell_p(p_value)}): "
            "clicking changed over time. Harmless if it changed at all positions alike; else fit a shorter period."
        )
        return Finding("common drift", "warning", sentence, value, p_value)
    sentence = f"No common drift: first halves of units got {value:+.1%} of the expected clicks ({spell_p(p_value)})."
    return Finding("common drift", "ok", sentence, value, p_value)


def _single_drift(s: Mapping[str, float]) -> Finding:
    noise = math.sqrt(s["noise"])
    p_value = _normal_tail((s["spread"] - s["variance"]) / noise) if noise else 1.0
    value = s["spread"] / s["variance"]
    if p_value < ALARM:
        sentence = (
            f"Units change between the halves of their displays {value:.2f} times as much as chance allows "
            f"({spell_p(p_value)}): their relevance drifts. Fit a shorter period, or use design exposures."
        )
        return Finding("drift of single units", "warning", sentence, value, p_value)
    sentence = f"Units change between halves {value:.2f} times as much as chance allows ({spell_p(p_value)})."
    return Finding("drift of single units", "ok", sentence, value, p_value)


def _chi_square(observed: NDArray[np.float64], expected: NDArray[np.float64], freedom: int) -> float:
    return _chi_square_tail(float(((observed - expected) ** 2 / expected).sum()), freedom)


def _normal_tail(z: float) -> float:
    """Return the probability that a standard normal variable exceeds z."""
    return math.erfc(z / math.sqrt(2)) / 2


def _chi_square_tail(x: float, freedom: int) -> float:
    """Return the probability that a χ² variable exceeds x.

    The closed form for whole degrees of freedom, h = x/2: Σ e^{−h} h^i / Γ(i+1) over i = 0, 1, … < freedom/2 where they
    are even; over i = ½, 3/2, … and erfc √h where they are odd. SciPy's would cost a quick check a third of its time.
    """
    h, odd = x / 2, freedom % 2
    if not h:
        return 1.0
    powers = (i + odd / 2 for i in range(freedom // 2))
    terms = (math.exp(i * math.log(h) - h - math.lgamma(i + 1)) for i in powers)
    return math.fsum([math.erfc(math.sqrt(h)) * odd, *terms])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
