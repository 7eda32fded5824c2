"""The answer: what a model found, as headline numbers, and what moves them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clickharvest.model.cautions import outcome_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import CANNOT_TELL
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import name_place
from clickharvest.report.charts import shorten
from clickharvest.report.importance import ColumnContrasts, Importance
from clickharvest.report.phrases import likely, queries, spell, typical_query
from clickharvest.report.standing import Standing, State, standings
from clickharvest.report.values import ColumnValues

MOST_HEADLINES = 4


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


def movement(
    model: Propensities,
    columns: list[ColumnValues],
    ranked: list[Importance],
    contrasts: ColumnContrasts | None,
    level: float = 0.95,
) -> str:
    """Return a sentence on what moves examination, and by how much where it does so most clearly.

    That some queries are read further down than others is said where they differ beyond chance, all that could have
    been said being counted.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> movement(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2)), [], [], None)
        'All queries get this one curve: the model was fitted without context columns.'
    """
    if not columns:
        return "All queries get this one curve: the model was fitted without context columns."
    if not ranked[0].effect:
        return "All queries get this one curve, whatever their context: the checks say whether contexts differ."
    if contrasts is None:
        return "Curves differ by context, but without error bars nothing tells whether by more than chance."
    if (clearest := contrasts.found.clearest()) is None:
        return "Curves differ by context, but the log cannot tell by how much."
    outcome = outcome_of(model)
    if not clearest.clear:
        which = f"any of the {len(columns)} context columns" if len(columns) > 1 else shorten(columns[0].part.name)
        what = "Which queries are read further down" if model.places is None else "Which queries look more at a place"
        what = what if outcome is None else f"After which queries' clicks {outcome} depends more on the position"
        return f"{what} the log cannot tell: no two values of {which} differ by more than chance might make them."
    deeper = clearest.deeper if model.places is None and outcome is None else None
    first = clearest.high if deeper is None else deeper
    (column, own), (_, other) = (contrasts.values[i] for i in (first, clearest.high + clearest.low - first))
    x = np.concatenate([typical_context(model, (column.start, choice.features)) for choice in (own, other)])
    standing, beside = (
        _with_interval(next(each for each in row if each.position == clearest.position))
        for row in standings(model, x, level=level)
    )
    there, anchor = (name_place(k, model.places) for k in (clearest.position, model.curve.anchor))
    depends = f"{'Most clearly it depends' if len(columns) > 1 else 'It depends'} on {shorten(column.part.name)}: "
    some, others = queries(column, own), queries(column, other)
    if outcome is not None:
        return (
            f"{depends}a click at {there} leads to {outcome} {standing} times as often as one at {anchor} for {some}, "
            f"against {beside} times for {others}."
        )
    more = f"look more at {there} than" if deeper is None else "are read further down than"
    return (
        f"{depends}{some} {more} {others}; {there} is looked at {standing} times as often as {anchor} there, against "
        f"{beside} times."
    )


def _with_interval(own: Standing) -> str:
    p, lower, upper = (spell(number or 0.0) for number in (own.propensity, own.lower, own.upper))
    return f"{p} ({lower} to {upper})"
