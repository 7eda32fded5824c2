"""Do rankers differ in more than the order of results?

Another layout, another season or other users in one arm of a test change how often everything is clicked there. Where
results move up as often as down between the arms, that cancels. Where they all move one way, as below a result that one
arm puts on top, it looks like position.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest.diagnosis.arm_displays import MOST_RANKERS, TASK, ArmDisplays
from clickharvest.diagnosis.arm_scores import ArmScores, Score
from clickharvest.diagnosis.findings import ALARM, MATTERS, Finding, percent, spell_p
from clickharvest.words import clean_text

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

NAME = "clicks by ranker"
UNSEEN = 0.35
"""Steepness that nothing may hide: a factor of two at position 8."""
ONE_WAY = 0.8
"""Share of the way that results move in one direction, less that in the other, from which on they move one way."""
FEWEST = 20
"""Units that moved, below which nothing is told."""
NORMAL = 1.96


def clicks_by_ranker(log: ClickLog, displays: ArmDisplays, scores: ArmScores | None) -> list[Finding]:
    """Tell whether one ranker's pages are clicked more or less than the others', and what that does to the curve.

    Of ranker a, the clicks of a unit at one position are compared with those of the others there (`ArmScores.tests`): θ
    is the log of how many times as often a is clicked. With m_u how much lower a unit stands with a than with the
    others, in log position, and w_u = C_u f_u (1 − f_u), C_u its clicks and f_u a's share of its displays, θ adds about

        θ · Σ w m / Σ w m²

    to the slope of log examination in log position; that is the number. Results move one way where Σ w m / Σ w |m| is
    near 1 or −1.

    Args:
        log: a log with a ranker column.
        displays: its `count_displays`.
        scores: its `arm_scores`.
    """
    moves = log.engine.fetch(_moves(displays.cells, displays.unit), task=TASK).to_pylist()
    moves = [row for row in moves if row["units"] >= FEWEST and row["squares"]]
    alike: Sequence[Score | None] = [None] * len(moves)
    if scores is not None:
        alike = [*scores.tests((scores.of(row["arm"]) for row in moves), np.zeros_like(scores.arm))]
    told = [_tell(row, test, len(moves)) for row, test in zip(moves, alike, strict=True)]
    # Two rankers are off by the same amount: rounded, so that the one with more clicks is told on every run.
    worst = max(told, key=lambda own: (own.status == "warning", round(abs(own.value or 0.0), 9)), default=None)
    return [] if worst is None else [worst]


def _moves(cells: ir.Table, unit: list[str]) -> ir.Table:
    """Return Σ w m, Σ w |m| and Σ w m² of each ranker, over clicked units that others showed, too."""
    import ibis

    cells = cells.mutate(height=cells.shown * cells.position.cast("float64").ln())
    own = cells.group_by(*unit, "arm").agg(n=cells.shown.sum(), height=cells.height.sum(), c=cells.clicks.sum())
    whole = ibis.window(group_by=unit)
    own = own.mutate(
        all_n=own.n.sum().over(whole), all_height=own.height.sum().over(whole), all_c=own.c.sum().over(whole)
    )
    own = own.filter((own.all_n > own.n) & (own.all_c > 0))
    share = own.n / own.all_n
    moved = own.height / own.n - (own.all_height - own.height) / (own.all_n - own.n)
    own = own.select("arm", moved=moved, weight=own.all_c * share * (1 - share), c=own.c)
    arms = own.group_by("arm").agg(
        units=own.count(where=own.moved.abs() > 1e-9),
        clicks=own.c.sum(),
        moved=(own.weight * own.moved).sum(),
        way=(own.weight * own.moved.abs()).sum(),
        squares=(own.weight * own.moved * own.moved).sum(),
    )
    return arms.order_by(arms.clicks.desc(), "arm").limit(MOST_RANKERS)


def _tell(moves: Mapping[str, Any], alike: Score | None, rankers: int) -> Finding:
    """Return what is told of one ranker."""
    slope, balance = moves["moved"] / moves["squares"], moves["moved"] / moves["way"]
    theta, error, p_value = (0.0, math.inf, None) if alike is None else alike
    p_value = None if p_value is None else min(1.0, rankers * p_value)
    off, differs = theta * slope, p_value is not None and p_value < ALARM
    stand = f"{'lower' if balance > 0 else 'higher'}"
    one_way = f"{percent(abs(balance))} of the way one direction outweighs the other"
    arm = clean_text(moves["arm"], 24)
    compared = (
        f"The same result at the same position is clicked {math.exp(min(theta, 50.0)):.2f} times as often with ranker "
        f"{arm} as with others ({spell_p(p_value or 0.0)})"
    )
    if differs and abs(off) >= MATTERS:
        sentence = (
            f"{compared}, and results mostly stand {stand} there ({one_way}): that looks like position, and the curve "
            f"is too {'flat' if off > 0 else 'steep'}, its power wrong by about {abs(off):.2f}. Compare rankers that "
            "differ in the order of results alone, or fit the pages of one ranker by themselves."
        )
        return Finding(NAME, "warning", sentence, off, p_value)
    if abs(balance) >= ONE_WAY and NORMAL * error * abs(slope) > UNSEEN:
        sentence = (
            f"With ranker {arm} nearly all results stand {stand} than with others ({one_way}), and too few keep their "
            "position to tell whether its pages are clicked more or less for other reasons (layout, season, users): "
            "any of these would look like position. Let some results keep their position, or swap ranks at random."
        )
        return Finding(NAME, "warning", sentence)
    if differs:
        return Finding(NAME, "note", f"{compared}: harmless, as results move both ways.", off, p_value)
    sentence = "No ranker's pages are clicked so much more or less than the others' that the curve would change."
    return Finding(NAME, "ok", sentence, off, p_value)
