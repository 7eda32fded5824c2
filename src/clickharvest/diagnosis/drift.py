"""Tests of change: are units clicked alike in both halves of their displays, and do they move as they change?

Change alone does not bias an estimate. Change that goes with position does: a document that gets worse and moves down
loses clicks to time that look like clicks lost to position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import ibis

from clickharvest.diagnosis.findings import Finding, sign_of, spell_p, spell_sign
from clickharvest.diagnosis.laws import skewed_tail, two_sided
from clickharvest.diagnosis.users import with_user
from clickharvest.logs.click_log import same

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog


def drift(log: ClickLog) -> list[Finding]:
    """Test whether units are clicked alike in the first and the second half of their displays.

    Within each unit and position the early clicks a follow, if nothing drifts, a hypergeometric law with mean E
    and variance V. Three tests:

    - Do units move as they drift? With D_u = Σ_k (a − E) and M_u the mean log position of the unit's early displays
      less that of its late ones, Σ_u D_u M_u over its query-clustered standard error. Only this biases estimates.
    - Do all units drift one way, Σ(a − E) / √ΣV (Mantel-Haenszel)?
    - Do units drift each its own way, Σ((a − E)² − V) over its query-clustered standard error? Parts are skewed, which
      `skewed_tail` counts; not with a user column, where V moves with a − E and takes most of it away (by simulation:
      counted, 10 % of logs without drift would be rejected at 5 %).

    Displays to one user are alike, and so are those on one page: with a user column, or else a page column, the parts
    c_{u'} that each user (or page) adds to a − E give the variance, for a unit and position Σ c² / (1 − h); for all of
    them the sum over users of (Σ c / √(1 − h))². The rate of clicks is fitted, which takes a share h from Σ c²: with f
    the early share of the n displays, of which n_{u'} were to the user, e_{u'} of them early,
    h = Σ (e_{u'} − f n_{u'})² / (n² f (1 − f)).
    """
    if not log.has("time"):
        return []
    log = log.with_plain_contexts()
    unit = ["query", *log.context, "doc"]
    halves = _halves(log, unit)
    strata = _counts(halves, [*unit, "position"])
    moves = log.engine.fetch(_moves(strata, unit), task="Testing drift").to_pylist()[0]
    told = "displays taken as independent"
    common: dict[str, float] = {}
    if log.has("user") or log.has("page"):
        told = f"clustered by {'user' if log.has('user') else 'page'}"
        strata, common = _by_user(log, strata, _counts(halves, [*unit, "position", "_user"]), [*unit, "position"])
    s = log.engine.fetch(_sums(_informative(strata)), task="Testing drift").to_pylist()[0] | common
    if not s["units"] or not s["variance"]:
        return [Finding("drift", "note", "No unit was shown at one position early and late: drift cannot be tested.")]
    if log.has("user"):
        s["skew"] = 0.0
    moving = [_moving_drift(moves)] if log.places is None else []  # places are neither up nor down
    return [*moving, _common_drift(s, told), _single_drift(s, told)]


def _halves(log: ClickLog, unit: list[str]) -> ir.Table:
    """Return the rows with `_early`, whether they are in the first half of their unit's displays.

    Displays of one time, such as a day, fall into one half: nothing tells which of them came first, and an order by
    what they hold would be one by clicks. Those of the unit's first time are early, however many.
    """
    t = log.table
    if log.has("user"):
        t = with_user(log, t)
    elif log.has("page"):
        t = t.mutate(_user=t.page)
    until = ibis.range_window(group_by=unit, order_by=t.time, preceding=None, following=0)
    of_unit = ibis.window(group_by=unit)
    half = t.impressions.sum().over(until) * 2 <= t.impressions.sum().over(of_unit)
    return t.mutate(_early=half | (t.time == t.time.min().over(of_unit)))


def _counts(halves: ir.Table, keys: list[str]) -> ir.Table:
    """Return clicks and displays by `keys`, early and in all."""
    return halves.group_by(*keys).agg(
        _early_clicks=halves.clicks.sum(where=halves._early).fill_null(0).cast("float64"),
        _clicks=halves.clicks.sum().cast("float64"),
        _early=halves.impressions.sum(where=halves._early).fill_null(0).cast("float64"),
        _shown=halves.impressions.sum().cast("float64"),
    )


def _informative(strata: ir.Table) -> ir.Table:
    """Return the strata shown early and late, clicked and not, with a, E and V."""
    early, shown, clicks = strata._early, strata._shown, strata._clicks
    strata = strata.filter((early > 0) & (early < shown) & (clicks > 0) & (clicks < shown))
    early, shown, clicks = strata._early, strata._shown, strata._clicks
    chance = clicks * (early / shown) * (1 - early / shown) * (shown - clicks) / (shown - 1)
    return strata.mutate(
        expected=clicks * early / shown,
        variance=strata._variance if "_variance" in strata.columns else chance,
    )


def _by_user(log: ClickLog, strata: ir.Table, cells: ir.Table, keys: list[str]) -> tuple[ir.Table, dict[str, float]]:
    """Return the strata with the variance that users give them, and the variance of Σ(a − E) over all."""
    known = _informative(strata).view()
    joined = cells.join(known, same(cells, known, keys), rname="all_{name}")
    early, rate = joined.all__early / joined.all__shown, joined.all__clicks / joined.all__shown
    part = joined._early_clicks - joined._early * rate - early * (joined._clicks - joined._shown * rate)
    apart = (joined._early - joined._shown * early) / joined.all__shown
    leverage = apart * apart / (early * (1 - early))
    parts = log.engine.materialise(joined.select(*keys, "_user", part=part, leverage=leverage), task="Testing drift")
    own = parts.group_by(*keys).agg(
        _squares=(parts.part * parts.part).sum(), _left=1 - parts.leverage.sum(), _users=parts.count()
    )
    own = own.filter(own._users > 1)
    own = own.select(*keys, _scale=1 / own._left, _variance=own._squares / own._left)
    scaled = parts.join(own, same(parts, own, keys), rname="own_{name}")
    users = scaled.group_by("_user").agg(part=(scaled.part * scaled._scale.sqrt()).sum())
    total = log.engine.fetch(users.agg(total=(users.part * users.part).sum()), task="Testing drift")["total"][0].as_py()
    more = own.view()
    with_variance = strata.join(more, same(strata, more, keys), how="inner", rname="own_{name}")
    return with_variance.select(*strata.columns, "_variance"), {"common": total or 0.0}


def _sums(strata: ir.Table) -> ir.Table:
    strata = strata.select("query", "expected", "variance", early_clicks=strata._early_clicks)
    excess = strata.early_clicks - strata.expected
    by_query = strata.group_by("query").agg(
        units=strata.count(),
        early_clicks=strata.early_clicks.sum(),
        expected=strata.expected.sum(),
        variance=strata.variance.sum(),
        spread=(excess * excess).sum(),
    )
    surplus = by_query.spread - by_query.variance
    return by_query.agg(
        **{name: by_query[name].sum() for name in ("units", "early_clicks", "expected", "variance", "spread")},
        noise=(surplus * surplus).sum(),
        skew=(surplus * surplus * surplus).sum(),
    )


def _moves(strata: ir.Table, unit: list[str]) -> ir.Table:
    """Return Σ D M, its clustered variance, Σ D² and Σ M²; units that could not drift or did not move add nothing."""
    early, late = strata._early, strata._shown - strata._early
    height = strata.position.cast("float64").ln()
    units = strata.group_by(*unit).agg(
        drifted=(strata._early_clicks - strata._clicks * early / strata._shown).sum(),
        early=early.sum(),
        early_height=(early * height).sum(),
        late=late.sum(),
        late_height=(late * height).sum(),
    )
    units = units.filter((units.early > 0) & (units.late > 0))
    moved = units.early_height / units.early - units.late_height / units.late
    units = units.select("query", drifted=units.drifted, moved=moved)
    own = units.group_by("query").agg(
        score=(units.drifted * units.moved).sum(),
        drifted=(units.drifted * units.drifted).sum(),
        moved=(units.moved * units.moved).sum(),
    )
    return own.agg(
        score=own.score.sum(), variance=(own.score * own.score).sum(), drifted=own.drifted.sum(), moved=own.moved.sum()
    )


def _moving_drift(s: Mapping[str, float]) -> Finding:
    name = "drift with position"
    if not s["variance"]:
        return Finding(
            name, "note", "No unit was clicked and moved: whether units move as they drift cannot be tested."
        )
    p_value = two_sided(s["score"], s["variance"])
    value = s["score"] / math.sqrt(s["drifted"] * s["moved"])
    status = sign_of(p_value)
    told = f"correlation {value:+.2f}, {spell_p(p_value)}"
    if status != "warning":
        return Finding(
            name, status, f"{spell_sign(p_value)} that units move as their clicks change ({told}).", value, p_value
        )
    how = "lose clicks move up" if value > 0 else "lose clicks move down"
    sentence = (
        f"Units that {how} ({told}): what time did looks like what position does. If documents change and rankers "
        f"follow, the curve is {'too flat' if value > 0 else 'too steep'}; if rankers follow clicks themselves, chance "
        "included, it is too flat. Fit a shorter period, or use design exposures."
    )
    return Finding(name, "warning", sentence, value, p_value)


def _common_drift(s: Mapping[str, float], told: str) -> Finding:
    p_value = two_sided(s["early_clicks"] - s["expected"], s.get("common", s["variance"]))
    value = s["early_clicks"] / s["expected"] - 1
    more = f"{abs(value):.1%} {'fewer' if value < 0 else 'more'}"
    told = f"first halves of units got {more} clicks than expected, {spell_p(p_value)}, {told}"
    if sign_of(p_value) == "warning":
        sentence = f"Clicking changed over time ({told}): harmless as long as units do not move with it."
        return Finding("common drift", "note", sentence, value, p_value)
    return Finding("common drift", sign_of(p_value), f"{spell_sign(p_value)} of common drift ({told}).", value, p_value)


def _single_drift(s: Mapping[str, float], told: str) -> Finding:
    p_value = skewed_tail(s["spread"] - s["variance"], s["noise"], s["skew"])
    value = s["spread"] / s["variance"]
    told = f"they change between halves {value:.2f} times as much as chance allows, {spell_p(p_value)}, {told}"
    if sign_of(p_value) == "warning":
        sentence = f"Single units drift ({told}): harmless as long as they do not move with it."
        return Finding("drift of single units", "note", sentence, value, p_value)
    status = sign_of(p_value)
    return Finding(
        "drift of single units", status, f"{spell_sign(p_value)} of drift of single units ({told}).", value, p_value
    )
