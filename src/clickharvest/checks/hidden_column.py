"""Does examination depend on a column that is not named, or how much would one change that the log lacks?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.clustered_tests import hotelling_tail
from clickharvest.checks.conditional_logit import Estimate
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import ALARM, MATTERS, NORMAL, Check, Finding, spell_change
from clickharvest.checks.log_rows import follows
from clickharvest.harvesting.numbering import distinct
from clickharvest.words import clean_text

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
ENOUGH = 200
"""Clicks of a value below which its curve is not estimated."""
LEVEL = 3.0
"""Largest ratio of click rates of two values; above, the column seems to be made of clicks."""
ALIKE = 1.5
"""Largest ratio of a value's frequency at two positions; above, it belongs to results. Only where pages are unknown."""
PERIODS = 20
"""Changes per value below which a column stands for a period of time."""


@dataclass(frozen=True)
class Difference:
    """How examination differs by the values of a column.

    Attributes:
        column: the column.
        at: index of the position at which it differs most.
        shares: examination there by value, the lowest first.
        p: probability of such a difference, or a larger one, by chance, corrected for all columns and values.
    """

    column: str
    at: int
    shares: dict[str, float]
    p: float


class HiddenColumn(Check):
    """The curve where a column that is not named has one value, less the curve of all; or as much of a named column.

    Columns of a few values which tell pages apart are tried; p-values are multiplied by the number of columns and
    values, and a difference must be larger than the interval of the curve. The budget does not count it: the curve is
    right in the mean. A column that the log lacks may be as strong as the strongest that is named: leaving that out
    bends the curve where rankers show a result higher in one context than in another.
    """

    kind = "hidden column"
    question = "Does examination depend on a column that is not named?"
    assumption = "every column that examination depends on is named"

    def run(self, evidence: Evidence) -> Finding:
        """Return the answer."""
        columns = {name: code for name, (_, code) in evidence.displays.unnamed.items() if _tells_pages(evidence, code)}
        if not columns or not len(evidence.moved):
            return self._as_strong(evidence)
        pooled = evidence.moves(by_viewer=False)
        differences = [_difference(evidence, name, len(columns), pooled) for name in columns]
        clear = [one for one in differences if one is not None and not _is_period(evidence, columns[one.column])]
        if not clear:
            return self._as_strong(evidence)
        worst = min(clear, key=lambda difference: difference.p)
        name, position = clean_text(worst.column, 24), evidence.positions[worst.at]
        (low, least), *_, (high, most) = worst.shares.items()
        usual = np.exp(np.median(evidence.table[:, worst.at]))
        sentence = (
            f"{name} matters: at position {position}, examination is {most:.2g} where {name} = {high} and {least:.2g} "
            f"where it is {low}; everybody gets {usual:.2g}."
        )
        others = [clean_text(difference.column, 24) for difference in clear if difference is not worst]
        more = f"; then look at {', '.join(others[:3])}" if others else ""
        return Finding(self.kind, "warning", sentence, f"name it: --context {name}{more}", p=worst.p)

    def _as_strong(self, evidence: Evidence) -> Finding:
        """Return how far the curve would be off without the named column that matters most."""
        d, names = evidence.displays, evidence.model.context
        if not names or d.doc is None or not len(evidence.moved):
            return self.passed("No column that is not named changes the curve.")
        codes, known = {name: d.codes[name] for name in names}, evidence.moves(beside_model=False)
        moved = {}
        for name in names:
            result = distinct(d.query, d.doc, *(code for other, code in codes.items() if other != name))[1]
            moved[name] = evidence.basis @ (evidence.moves(unit=result, beside_model=False).theta - known.theta)
        strongest = max(moved, key=lambda name: float(np.abs(moved[name]).max()))
        at = int(np.argmax(np.abs(moved[strongest])))
        return self.passed(
            f"A column that is not named, as strong as {clean_text(strongest, 24)}, would move position "
            f"{evidence.positions[at]} by {spell_change(float(moved[strongest][at]))}."
        )


def _difference(evidence: Evidence, name: str, columns: int, pooled: Estimate) -> Difference | None:
    """Return how the curve differs by the values of a column; None where it does not, or too little to matter."""
    values, code = evidence.displays.unnamed[name]
    rows, clicks = evidence.moved, evidence.displays.clicks
    common = np.flatnonzero(np.bincount(code[rows] + 1, clicks[rows], len(values) + 1) >= ENOUGH) - 1
    if len(common) < 2:
        return None
    of_query = np.bincount(evidence.query[rows], clicks[rows])
    n_queries = int(of_query.sum() ** 2 / (of_query @ of_query))
    matters = np.maximum(_half_width(evidence), MATTERS)
    least, curves = 1.0, np.zeros((len(common), len(evidence.positions)))
    for by_viewer in (False, True):  # the latter takes longer, and is seldom needed
        pooled = evidence.pooled if by_viewer else pooled
        least = 1.0
        for i, value in enumerate(common):
            of_value = evidence.moves(rows=rows[code[rows] == value], by_viewer=by_viewer)
            change, covariance = of_value.minus(pooled)
            effect, error = evidence.along(change, covariance)
            curves[i] = evidence.basis @ of_value.theta
            if (np.abs(effect) > np.maximum(NORMAL * error, matters)).any():
                statistic = float(change @ np.linalg.pinv(covariance, hermitian=True) @ change)
                least = min(least, hotelling_tail(statistic, len(change), n_queries) * len(common) * columns)
        if least >= ALARM:
            return None
    at = int(np.argmax(np.ptp(curves, axis=0)))
    usual = float(np.median(evidence.table[:, at]))
    order = np.argsort(curves[:, at], kind="stable")
    names = ["empty" if value < 0 else clean_text(str(values[value]), 24) for value in common]
    return Difference(name, at, {names[i]: float(np.exp(usual + curves[i, at])) for i in order}, least)


def _half_width(evidence: Evidence) -> Array:
    """Return the half-width of the curve's interval in log p, the median of its contexts, [K]."""
    estimated = np.isin(evidence.prediction.positions, evidence.positions)
    with np.errstate(divide="ignore", invalid="ignore"):
        half_width = np.log(evidence.prediction.upper[:, estimated]) - evidence.table
    return np.asarray(np.median(np.nan_to_num(half_width, nan=0.0, posinf=0.0), axis=0), dtype=np.float64)


def _tells_pages(evidence: Evidence, code: Integers) -> bool:
    """Whether a column describes the page or its user: not the result, the place, the ranker or the clicks."""
    d = evidence.displays
    value = code + 1
    shown = np.bincount(value, d.shown)
    common = shown > 0.01 * shown.sum()
    if common.sum() < 2 or (d.ranker is not None and follows(value, d.ranker)):
        return False
    rate = np.bincount(d.query, d.clicks) / np.maximum(np.bincount(d.query, d.shown), 1)
    expected = np.bincount(value, d.shown * rate[d.query] * np.exp(evidence.log_p), len(shown))[common]
    level = np.bincount(value, d.clicks, len(shown))[common] / np.maximum(expected, 1e-9)
    if level.max() > LEVEL * level.min():
        return False
    if d.page is not None:
        of_page = np.zeros(int(d.page.max()) + 1, dtype=np.int64)
        of_page[d.page] = value
        several = (np.bincount(d.page) > 0, np.bincount(d.page, d.clicks) > 0)
        pages, clicked = (np.bincount(of_page[some], minlength=len(shown))[common] for some in several)
        always = clicked == pages
        return follows(value, d.page) and (not always.any() or bool(always.all()))
    if d.doc is None or (follows(value, d.doc) and not follows(value, d.query)):
        return False
    places = len(evidence.positions)
    table = np.bincount(value * places + evidence.place, d.shown, len(shown) * places).reshape(-1, places)[common]
    table = table / np.maximum(table.sum(axis=0), 1)
    return bool((table.max(axis=1) < ALIKE * table.min(axis=1)).all())


def _is_period(evidence: Evidence, code: Integers) -> bool:
    """Whether the values of a column follow each other in time: then the results may differ."""
    time = evidence.displays.time
    if time is None:
        return False
    changes = int(np.count_nonzero(np.diff(code[np.argsort(time, kind="stable")])))
    return changes < PERIODS * len(np.unique(code))
