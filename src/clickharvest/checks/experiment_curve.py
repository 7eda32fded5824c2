"""The examination curve that an experiment shows, and the one it would have shown if a model were true.

On pages in random order, the results at every position are equally good, so that the clicks of a page fall as
C_k ∝ p_k: a stratum is a page. Where results were swapped, the clicks on a result fall as C_uk ∝ q_k(u) p_k, with
q_k(u) the probability that the swap puts u at k: a stratum is a result. `fit_strata` estimates log p_k/p_anchor from
either, and the power γ of p_k ∝ k^−γ that comes closest.

If a model p̂ were true, n_t clicks of a stratum would fall as n_t p̂_k(x) / Σ p̂; the same two curves are fitted to
these. Both answers are then means over the same contexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.conditional_logit import Estimate, cells_of_strata, centred, fit_strata, inverse
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL
from clickharvest.errors import NotIdentifiedError
from clickharvest.harvesting.numbering import distinct
from clickharvest.positions.places import name_place

if TYPE_CHECKING:
    from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

ENDS = (0.0, -NORMAL, NORMAL)
"""Standard errors from an estimate to itself, and to the ends of its interval."""
NOT_RANDOM = 3.29
"""Standard errors from which on an order is beyond chance."""


@dataclass(frozen=True, eq=False)
class CurveEstimate:
    """A curve by position, and as one power.

    Attributes:
        log_p: log p_k / p_anchor, [K].
        covariance: its covariance, [K, K]; 0 where numbers came without intervals.
        power: γ of p_k ∝ k^−γ; NaN where positions are places of a grid.
        power_error: its standard error.
    """

    log_p: Array
    covariance: Array
    power: float
    power_error: float

    @property
    def error(self) -> Array:
        """Standard errors of log p, [K]."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def interval(self, k: int) -> list[float]:
        """Return the propensity at a position by index, and the ends of its 95 % interval."""
        return [float(np.exp(self.log_p[k] + z * self.error[k])) for z in ENDS]

    @property
    def power_interval(self) -> list[float]:
        """The power and the ends of its 95 % interval."""
        return [float(self.power + z * self.power_error) for z in ENDS]


class Experiment:
    """Displays in strata within which clicks fall by examination alone.

    The power is that of all positions, also of those without a click. Other numbers are of positions with a click.

    Args:
        evidence: the displays.
        stratum: number of the stratum, [n].
        positions: those with a number, ascending; those with a click without.
        what: how the displays are called.

    Raises:
        NotIdentifiedError: no clicks, or none at the anchor.
    """

    def __init__(
        self, evidence: Evidence, stratum: Integers, positions: Integers | None = None, what: str = "ordinary pages"
    ) -> None:
        self.evidence = evidence
        d, model = evidence.displays, evidence.model
        self.stratum = distinct(stratum)[1]
        self.cluster = d.query if evidence.many_queries else self.stratum
        self.positions = np.unique(d.position[d.clicks > 0]) if positions is None else positions
        if model.curve.anchor not in self.positions or len(self.positions) < 2:
            where = name_place(model.curve.anchor, model.places)
            raise NotIdentifiedError(f"the {what} have no clicks at {where} and elsewhere: nothing can be compared")
        known = np.flatnonzero(np.isin(evidence.positions, self.positions))
        self.anchor = int(np.flatnonzero(known == evidence.anchor)[0])
        self.free = np.eye(len(evidence.positions))[:, np.delete(known, self.anchor)]
        self.rows = np.flatnonzero(np.isin(d.position, self.positions))
        self.slope = None if model.places is not None else (-evidence.distance[:, None], np.arange(len(d)))

    def curve(self) -> CurveEstimate:
        """Return the curve of the clicks."""
        clicks = self.evidence.displays.clicks
        free = self._fit(self.free, self.rows, clicks)
        if self.slope is None:
            return self._with_anchor(free.theta, free.covariance)
        slope = self._fit(*self.slope, clicks)
        return self._with_anchor(free.theta, free.covariance, slope.theta, slope.covariance)

    def of_model(self, model: Propensities) -> CurveEstimate:
        """Return the curve of the clicks that would be expected if a model were true."""
        d, evidence = self.evidence.displays, Evidence(self.evidence.displays, model)
        weight = np.maximum(d.shown, 1e-12) * np.exp(evidence.log_p)
        cell = evidence.context * len(evidence.positions) + evidence.place
        errors = None
        if model.draws is not None:
            # Contexts and positions side by side.
            errors = model.drawn_curves().deviations(evidence.x).reshape(len(model.draws), -1)

        def answer(columns: Array, rows: Integers) -> tuple[Array, Array]:
            cells, chosen = cells_of_strata(self.stratum[rows], weight[rows], d.clicks[rows])
            rows_of_cells, share = rows[chosen], cells.shares_of(np.zeros(len(chosen))).share
            expected = np.zeros(len(d))
            expected[rows_of_cells] = cells.clicks_of_unit * share
            fit = self._fit(columns, rows, expected)
            if errors is None:
                return fit.theta, np.zeros((columns.shape[1],) * 2)
            slopes = centred(cells, share, columns[self.evidence.place[rows_of_cells]])
            slopes *= expected[rows_of_cells, None]
            pulls = [np.bincount(cell[rows_of_cells], column, errors.shape[1]) for column in slopes.T]
            moved = errors @ np.stack(pulls, axis=1) @ inverse(fit.information)
            return fit.theta, moved.T @ moved / max(len(moved) - 1, 1)

        return self._with_anchor(*answer(self.free, self.rows), *(answer(*self.slope) if self.slope else ()))

    def within_results(self) -> tuple[float, float, float] | None:
        """Return the power from results seen at several positions, and the ends of its interval; None without such."""
        d = self.evidence.displays
        if self.slope is None or not (fit := self._fit(*self.slope, d.clicks, stratum=d.unit)).clicks:
            return None
        estimate, lower, upper = (float(fit.theta[0] + z * np.sqrt(fit.covariance[0, 0])) for z in ENDS)
        return estimate, lower, upper

    def order(self) -> float:
        """Return how much of a result's position is the same on all pages, from 0 to 1; 0 if that may be chance.

        With z the log position less the page's mean, the products z_i z_j of two pages of a result are 0 in the mean
        where chance has drawn the order, and z² where it is the same on both.
        """
        d = self.evidence.displays
        page = distinct(d.query if d.page is None else d.page)[1]
        log_k = np.log(d.position)
        z = log_k - (np.bincount(page, log_k) / np.bincount(page))[page]
        sums, squares, many = (np.bincount(d.unit, column) for column in (z, z**2, np.ones(len(z))))
        several = many > 1
        products = (sums**2 - squares)[several] / (many - 1)[several]
        if products.sum() <= NOT_RANDOM * np.sqrt(products @ products):
            return 0.0
        return float(products.sum() / squares[several].sum())

    def _fit(self, columns: Array, rows: Integers, clicks: Array, stratum: Integers | None = None) -> Estimate:
        """Return the estimate from some rows, x being columns by position, [K, size]."""
        shown, place = self.evidence.displays.shown[rows], self.evidence.place[rows]
        stratum = (self.stratum if stratum is None else stratum)[rows]
        cell = stratum * len(self.evidence.positions) + place
        return fit_strata(stratum, cell, shown, np.zeros(len(rows)), clicks[rows], columns[place], self.cluster[rows])

    def _with_anchor(
        self, log_p: Array, covariance: Array, power: Array | None = None, variance: Array | None = None
    ) -> CurveEstimate:
        """Return a curve with the anchor's 0."""
        whole = np.delete(np.eye(len(self.positions)), self.anchor, axis=1)
        power_error = np.nan if variance is None else float(np.sqrt(variance[0, 0]))
        return CurveEstimate(
            whole @ log_p, whole @ covariance @ whole.T, np.nan if power is None else float(power[0]), power_error
        )
