"""The answer: what a model found, as headline numbers, and what moves them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from clickharvest.model.cautions import outcome_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.summary import typical_context
from clickharvest.model.support import CANNOT_TELL
from clickharvest.positions.places import name_place
from clickharvest.report.charts import shorten
from clickharvest.report.importance import Importance
from clickharvest.report.phrases import likely, queries, spell, typical_query
from clickharvest.report.standing import Standing, State, standings
from clickharvest.report.values import Choice, ColumnValues

NOTICEABLE = 0.05
"""Mean |Δ log p| from which a column is said to move the curve."""
MOST_HEADLINES = 4
TELLING: tuple[State, ...] = ("thin", "rough", "good")
"""What is known well enough to be told as a number."""


@dataclass(frozen=True)
class Headline:
    """One number of the report's top.

    Attributes:
        where: the position, or place, in words.
        words: the number in round words, or why there is none.
        exact: the number with its interval; nothing where there is none.
        state: how well it is known.
    """

    where: str
    words: str
    exact: str
    state: State


def headlines(model: Propensities, level: float = 0.95) -> list[Headline]:
    """Return the numbers to lead with: the position after the anchor, the last, and others between.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2, 4), anchor=1, n_features=0)
        >>> model = Propensities(curve, {"b": np.log([0.49, 0.034])}, None, shown=(1, 2, 3, 4))
        >>> for headline in headlines(model):
        ...     print(headline.where, headline.words, headline.exact)
        position 2 about half as likely 0.49
        position 4 about 30 times less likely 0.034
    """
    found = [own for own in standings(model, level=level)[0] if own.propensity is not None]
    at = np.unique(np.linspace(0, len(found) - 1, min(MOST_HEADLINES, len(found))).round().astype(int))
    return [_headline(found[i], name_place(found[i].position, model.places)) for i in at]


def _headline(own: Standing, where: str) -> Headline:
    p = own.propensity or 0.0
    if own.lower is None or own.upper is None:
        return Headline(where, likely(p), spell(p), own.state)
    interval = f"{spell(own.lower)} to {spell(own.upper)}"
    if own.state == "wide":
        return Headline(where, CANNOT_TELL, interval, own.state)
    told = f", {own.note}" if own.note else ""
    return Headline(where, likely(p), f"{spell(p)} ({interval}){told}", own.state)


def lead(model: Propensities, columns: list[ColumnValues], level: float = 0.95) -> str:
    """Return what the headline numbers are, in words that end in a colon, or that there are none."""
    where = f", for a typical query ({typical_query(columns)})" if columns else ""
    known = "" if model.draws is None else f", with {100 * level:g} % intervals"
    anchor = name_place(model.curve.anchor, model.places)
    outcome = outcome_of(model)
    what = "a result is to be looked at" if outcome is None else f"a click is to lead to {outcome}"
    told = any(own.propensity is not None for own in standings(model, level=level)[0])
    return f"How likely {what}, compared with one at {anchor}{where}{known}:{'' if told else ' nothing here can tell.'}"


def movement(model: Propensities, columns: list[ColumnValues], ranked: list[Importance], level: float = 0.95) -> str:
    """Return a sentence on what moves examination, and by how much where it moves most.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> movement(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2)), [], [])
        'All queries get this one curve: the model was fitted without context columns.'
    """
    if not columns:
        return "All queries get this one curve: the model was fitted without context columns."
    if not ranked[0].effect:
        return "All queries get this one curve, whatever their context: the checks say whether contexts differ."
    if ranked[0].effect < NOTICEABLE:
        which = f"none of the {len(columns)} context columns moves" if len(columns) > 1 else "its column does not move"
        return f"Context hardly matters: {which} the curve noticeably."
    column = next(column for column in columns if column.part.name == ranked[0].column)
    choices = [choice for choice in column.choices if choice.share > 0]
    x = np.repeat(typical_context(model), len(choices), axis=0)
    x[:, column.features] = [choice.features for choice in choices]
    known: dict[int, list[tuple[float, Choice]]] = {}
    for choice, row in zip(choices, standings(model, x, level=level), strict=True):
        for own in row:
            if own.state in TELLING and own.propensity:
                known.setdefault(own.position, []).append((own.propensity, choice))
    range_of = {k: (min(found, key=itemgetter(0)), max(found, key=itemgetter(0))) for k, found in known.items()}
    most = f"{'Most depends' if len(columns) > 1 else 'It depends'} on {shorten(column.part.name)}"
    if all(low is high for low, high in range_of.values()):
        return f"{most}, but the log cannot tell by how much."
    at = max(range_of, key=lambda k: (range_of[k][1][0] / range_of[k][0][0], k))
    (low, few), (high, many) = range_of[at]
    there, anchor = (name_place(k, model.places) for k in (at, model.curve.anchor))
    more = "are read further down than" if model.places is None else f"look more at {there} than"
    return (
        f"{most}: {queries(column, many)} {more} {queries(column, few)}; {there} is looked at {spell(high)} times as "
        f"often as {anchor} there, against {spell(low)} times."
    )
