"""Suspects: what many users do not do. Few of them who make all clicks, clicks on every display, contexts of clicks.

None of it is a test with a level: what is looked for is plain where it is there, and would be a miracle elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.diagnosis.findings import Finding, percent
from clickharvest.diagnosis.overlap import level_of
from clickharvest.diagnosis.users import with_user
from clickharvest.logs.hashing import is_drawn
from clickharvest.words import clean_text

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.engines import Engine

ONE_USER = 0.1
"""Share of the clicks from which on one user speaks for the others."""
FEWEST_USERS = 20
"""Of fewer users each may well have a tenth of the clicks."""
FEW_USERS = 50
"""Effective users, (Σ clicks)² / Σ clicks², below which their habits may look like the position."""
ENOUGH = 50
"""What was shown again and clicked, and clicks that are expected, below which nothing is told."""
MOST_ROWS = 1_000_000
"""Rows, all of some users, that tell whether clicks are repeated."""
MIXED = 0.02
"""Share of what was clicked and shown again that was also left once: whoever comes back leaves more than that."""


def suspects(log: ClickLog, harvested: ir.Table) -> list[Finding]:
    """Return what looks like a robot, a wrong join or a context that is known after the click only; all may be.

    Args:
        log: the log.
        harvested: its units at two positions or more, as `harvest_table` returns them.
    """
    return [*_users(log), *_repeated_clicks(log, harvested), *_contexts_of_clicks(log, harvested)]


def _users(log: ClickLog) -> list[Finding]:
    """Warn of a user with a tenth of all clicks or more, or else of few users. Who is not known is nobody."""
    if not log.has("user"):
        return []
    t = log.table
    users = t.filter(t.user.notnull()).group_by(name=t.user.cast("string")).agg(clicks=t.clicks.sum().cast("float64"))
    top = users.agg(
        users=users.count(),
        known=users.clicks.sum(),
        squares=(users.clicks * users.clicks).sum(),
        name=users.name.argmax(users.clicks),
        most=users.clicks.max(),
    )
    found = log.engine.fetch(top.cross_join(t.agg(clicks=t.clicks.sum())), task="Looking at users").to_pylist()[0]
    if not found["known"]:
        return []
    if found["users"] < FEWEST_USERS or found["most"] < ONE_USER * found["clicks"]:
        return _few_users(found["known"] ** 2 / found["squares"], found["known"] / found["clicks"])
    share = float(found["most"] / found["clicks"])
    sentence = (
        f"User {clean_text(found['name'], 24)} makes {percent(share)} of all clicks, of {found['users']:,} users: a "
        "robot, or one name for all who have none, and the curve is largely its own. Leave these rows out, or leave "
        "the user empty where it stands for unknown visitors."
    )
    return [Finding("one user", "warning", sentence, share)]


def _few_users(effective: float, known: float) -> list[Finding]:
    """Warn where nearly all clicks are those of few users.

    Args:
        effective: the effective number of users.
        known: share of the clicks whose users are known.
    """
    if effective >= FEW_USERS or known < 1 - ONE_USER:
        return []
    sentence = (
        f"The clicks are those of {effective:.0f} effective users: intervals that cluster by query hold for users who "
        "read as these do, and are too narrow for all others. Fit with --cluster user."
    )
    return [Finding("few users", "warning", sentence, effective)]


def _repeated_clicks(log: ClickLog, harvested: ir.Table) -> list[Finding]:
    """Warn where whatever was clicked once is clicked on every display: clicks that were joined without their page.

    Of what was shown twice or more (to one user, where users are known) and clicked, some is left on other displays,
    even by those who come back for it.
    """
    if "click" not in log.roles:
        return []
    shown = harvested.group_by("unit").agg(_shown=harvested.impressions.sum(), _clicks=harvested.clicks.sum())
    if log.has("user"):
        t = with_user(log, log.table)
        if log.facts is not None and log.facts.rows > MOST_ROWS:
            t = t.filter(is_drawn(t._user, MOST_ROWS / log.facts.rows))
        shown = t.group_by("query", "doc", "_user").agg(_shown=t.count(), _clicks=t.clicks.sum())
    again = shown.filter((shown._shown > 1) & (shown._clicks > 0))
    counts = again.agg(again=again.count(), mixed=again.count(where=again._clicks < again._shown))
    found = log.engine.fetch(counts, task="Looking at clicks").to_pylist()[0]
    if found["again"] < ENOUGH or found["mixed"] >= MIXED * found["again"]:
        return []
    facts = log.facts
    if facts is not None and 2 * facts.clicks > facts.impressions:
        return []  # where most is clicked, some of it is clicked always
    whom = "to one user " if log.has("user") else ""
    sentence = (
        f"Of {found['again']:,} documents that were shown {whom}for a query again and clicked, {found['mixed']:,} were "
        "left on some display: a click seems to count for every display of its document, as when clicks are joined "
        "to displays without the page. Clicks made high up then count further down, and the curve is too flat. Join "
        "clicks by page, too."
    )
    return [Finding("repeated clicks", "warning", sentence, found["mixed"] / found["again"])]


def _contexts_of_clicks(log: ClickLog, harvested: ir.Table) -> list[Finding]:
    """Warn of context columns with a value that is never clicked, where the same queries are clicked otherwise."""
    findings = []
    for column in log.context:
        found = _never_clicked(harvested, column, log.engine)
        if found is None:
            continue
        level, expected = found
        sentence = (
            f"{column} = {clean_text(level, 24)} is never clicked, where other values of the same queries would make "
            f"{expected:,.0f} clicks: the column seems to be made of clicks. What is known only after the click is no "
            "context, and curves by it mean nothing: leave it out."
        )
        findings.append(Finding("context of clicks", "warning", sentence, expected))
    return findings


def _never_clicked(harvested: ir.Table, column: str, engine: Engine) -> tuple[str, float] | None:
    """Return the value without a click at which most are expected by its queries' click rates, if enough are."""
    rows = harvested.select(
        "query",
        level=level_of(harvested, column, engine),
        clicks=harvested.clicks.cast("float64"),
        shown=harvested.impressions.cast("float64"),
    )
    cells = rows.group_by("query", "level").agg(clicks=rows.clicks.sum(), shown=rows.shown.sum())
    queries = cells.group_by("query").agg(rate=cells.clicks.sum() / cells.shown.sum())
    joined = cells.inner_join(queries, "query")
    levels = joined.group_by("level").agg(clicks=joined.clicks.sum(), expected=(joined.shown * joined.rate).sum())
    empty = levels.filter((levels.clicks == 0) & (levels.expected >= ENOUGH))
    first = empty.order_by(empty.expected.desc(), empty.level).limit(1)
    found = engine.fetch(first, task="Looking at contexts").to_pylist()
    return (str(found[0]["level"]), float(found[0]["expected"])) if found else None
