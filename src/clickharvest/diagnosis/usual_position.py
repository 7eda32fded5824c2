"""Do rankers go by more than the log tells? A result at one position, where some rankers usually show it elsewhere.

An estimate compares displays of a document at several positions, and takes for granted that chance, or who was assigned
to which ranker, put it there. A ranker that knows its users puts it higher for those who want it more, and the curve is
too steep. A logged position that is not where the result stood, such as the rank before a shuffle, makes it too flat.
Either way clicks at one position depend on where the result *usually* stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.diagnosis.arm_displays import TASK, ArmDisplays, count_displays
from clickharvest.diagnosis.arm_scores import EXACT, ROUGH, ArmScores, Score, arm_scores, spell_power
from clickharvest.diagnosis.findings import MATTERS, Finding, percent, sign_of, spell_sign
from clickharvest.harvesting.interventions import UnitKind
from clickharvest.harvesting.numbering import distinct

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

NAME, BY_USER = "usual position", "usual position by user"
STILL = 0.05
"""Share of all movement that is within rankers, up to which it is too little to bias anything."""

KNOWING = (
    ": they put it higher for users who want it more, or at times when it is wanted more, by something that the log "
    "does not name, and the curve is too steep. Name what they go by (--context), as part of units (--unit context), "
    "or swap ranks at random on part of the traffic."
)
MOVED = (
    ", as if it had stood where it usually does: results were shuffled, filtered or moved after their position was "
    "logged, and the curve is too flat. Log positions as users see them."
)
TIRED = (
    ", as when they are tired of what they have seen high up: what was seen before looks like position. Fit what users "
    "see for the first time."
)
PERSONAL = (
    ": rankings are personal, and put it higher for users who want it more, which looks like position; or it stood "
    "where it usually does, and not where the log says. Name what rankings go by (--context), log positions as users "
    "see them, or swap ranks at random on part of the traffic."
)


def usual_position(log: ClickLog, displays: ArmDisplays, scores: ArmScores | None) -> list[Finding]:
    """Test whether a unit at a position is clicked alike with rankers that usually show it higher and lower.

    With m_{u,a} the mean log position at which ranker a shows unit u, the clicks of u at position k fall to rankers as

        C_{u,a,k} ∝ n_{u,a,k} θ_{a,k} e^{γ m_{u,a}},

    n displays and θ_{a,k} whatever else differs between rankers (layout, season, users). γ = 0 where chance decides on
    which of its pages a ranker moves a result: at a given position, it does not matter then where the result usually
    stands. The number is the estimate of γ (`ArmScores.tests`): how much flatter the curve is, as a power of k, where
    rankers are compared with each other rather than the pages of each.

    Rankers that show a result at one position go by nothing that is unknown, and are not tested.

    Args:
        log: a log with a ranker column.
        displays: its `count_displays`.
        scores: its `arm_scores`.
    """
    moved = log.engine.fetch(_movement(displays.cells, displays.unit), task=TASK).to_pylist()[0]
    if (moved["whole"] or 0.0) < EXACT:
        return []
    within = moved["within"] / moved["whole"]
    if within <= STILL:
        sentence = "Each ranker shows a result at one position, or nearly so: none can put it higher for some users."
        return [Finding(NAME, "ok", sentence)]
    tests = [] if scores is None else [*scores.tests([scores.usual], distinct(scores.arm, scores.log_k)[1])]
    if not tests or tests[0] is None:
        sentence = (
            f"Each ranker moves results from page to page ({percent(within)} of all that they move), and none is shown "
            "at one position by rankers that usually show it elsewhere: whether rankers put it higher for users who "
            "want it more cannot be tested."
        )
        return [Finding(NAME, "note", sentence)]
    return [_tell(NAME, "with rankers that usually show it", tests[0], KNOWING, MOVED)]


def usual_position_by_user(log: ClickLog, unit_kind: UnitKind = "context") -> list[Finding]:
    """Test whether a unit at a position is clicked alike by users who usually see it higher and lower.

    As `usual_position`, users standing for rankers, and θ_a for how much a user clicks. It takes users to whom results
    are shown again, as on a home page, and neither several rankers nor their names. Where a ranker goes by what a user
    wants, who usually sees a result low wants it less, and γ < 0. It is > 0 where users are tired of what they have
    seen high up.

    Needs a user column.
    """
    if not log.has("user") or log.places is not None:
        return []
    log = log.with_plain_contexts()
    scores = arm_scores(log, count_displays(log, "user", unit_kind))
    test = None if scores is None else next(scores.tests([scores.usual], scores.arm))
    if test is None or test.error > ROUGH:
        return []
    return [_tell(BY_USER, "by users who usually see it", test, TIRED, PERSONAL)]


def _movement(cells: ir.Table, unit: list[str]) -> ir.Table:
    """Return the squares by which clicked units move, in log position: within rankers, and in all."""
    log_k = cells.position.cast("float64").ln()
    own = cells.group_by(*unit, "arm").agg(
        n=cells.shown.sum(),
        sum=(cells.shown * log_k).sum(),
        ss=(cells.shown * log_k * log_k).sum(),
        c=cells.clicks.sum(),
    )
    units = own.group_by(*unit).agg(
        n=own.n.sum(),
        sum=own["sum"].sum(),
        ss=own.ss.sum(),
        c=own.c.sum(),
        means=(own["sum"] * own["sum"] / own.n).sum(),
    )
    units = units.filter(units.c > 0)
    return units.agg(
        within=(units.ss - units.means).sum(), whole=(units.ss - units["sum"] * units["sum"] / units.n).sum()
    )


def _tell(name: str, who: str, test: Score, more: str, less: str) -> Finding:
    """Return what is told of γ.

    Args:
        name: the finding's.
        who: those who usually show, or see, a result elsewhere.
        test: the test.
        more: what it means, and what to do, if γ > 0.
        less: the same if γ < 0.
    """
    power, p_value = test.estimate, test.p_value
    told, status = spell_power("its usual position", test, p_value), sign_of(p_value)
    if status != "warning":
        sentence = (
            f"{spell_sign(p_value)} that the same result at the same position is clicked more, or less, {who} "
            f"elsewhere ({told})."
        )
        return Finding(name, status, sentence, power, p_value)
    how = "more" if power > 0 else "less"
    begin = f"The same result at the same position is clicked {how} {who} lower ({told})"
    if abs(power) < MATTERS:
        return Finding(name, "note", f"{begin}: too little to matter.", power, p_value)
    return Finding(name, "warning", f"{begin}{more if power > 0 else less}", power, p_value)
