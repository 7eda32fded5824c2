"""Arms of an A/B test as instruments: a curve that personalised rankers do not bias.

A ranker that knows its users shows a result higher to those who like it, and clicks within the result fall with
position too fast. But the arm of a user is independent of what the user likes. So within an arm, positions are
compared with the usual position of the result in that arm, and between arms, the result with itself.

Let a result have relevance r·w for a user, w a taste of mean 1 that is spread alike in every arm. If an arm shows it
higher the larger w is, a user who sees it at position k has a taste between two quantiles: those of the share of the
arm's pages that show it higher, and of those that show it at k or higher (pages that do not show it are the lowest).
With Φ the normal distribution and z of a page its normal score, let the clicks of all users, were it always examined,
be distributed over z as N(m, s²). Then displays at k are worth

    w̄ = (Φ((z₋ − m) / s) − Φ((z₊ − m) / s)) / (Φ(z₋) − Φ(z₊)),     clicks at k  ∝  displays · w̄ · p_k.

m and s of every arm, how m grows with the spread of positions of a result, and a curve that bends along log k are
fitted at once, as a conditional logit of the clicks of each result. Where rankers do not know users, m = 0 and s = 1.
The displays times w̄ are the exposures of any other fit. Arms as instruments: Friedberg et al., *Causal Estimation of
Position Bias in Recommender Systems Using Marketplace Instruments* (2022). A quantile as a control for what is not
seen: Imbens and Newey (2009).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from clickharvest.checks.conditional_logit import Estimate, fit_strata
from clickharvest.checks.evidence import MOST_RANKERS, rank_by_size
from clickharvest.checks.finding import Finding
from clickharvest.checks.log_rows import Displays, read_displays
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions, UnitKind
from clickharvest.harvesting.numbering import distinct

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

STRONG = 10.0
"""F of the mean position by arm from which on a result is used; larger, and fewer results are used."""
STEPS, CLOSE, FARTHEST = 30, 1e-4, 0.5
"""Steps of the fit at most, the change that ends them, and the longest step."""
SMALL = 1e-4
"""Step of numerical slopes."""


@dataclass(frozen=True, eq=False)
class Instrumented:
    """Displays of a log whose exposures are those of users of average taste.

    Attributes:
        interventions: results that arms show at clearly different positions, for any fit.
        displays: all rows, for `check_fit`; each display of another result is a unit of its own.
        covariance: covariance that estimated tastes add to the curve's parameters along L and L², L = log k, [2, 2].
        shape: change of these parameters if s = 1 and m is the same for all results, [2].
        sentence: what was compared.
    """

    interventions: Interventions
    displays: Displays
    covariance: Array
    shape: Array
    sentence: str

    def finding(self, model: Propensities) -> Finding:
        """Return the error that the estimate of tastes adds to the budget of a fit."""
        positions = np.array(model.curve.positions)
        basis = _basis(positions) - _basis(np.array([model.curve.anchor]))
        square = np.einsum("ki,ij,kj->k", basis, self.covariance, basis) + (basis @ self.shape) ** 2
        error = np.sqrt(np.maximum(square, 0))[None]
        return Finding("instrument", "ok", self.sentence, "", np.zeros_like(error), error)


def compare_arms(
    source: ClickLog | Displays, *, unit: UnitKind = "context", max_position: int | None = None
) -> Instrumented:
    """Return the exposures of a log whose rankers were assigned to users, or pages, at random.

    Args:
        source: a log with a ranker column, of which queries are drawn if it is large, as in `read_displays`; or its
            displays.
        unit: as in `harvest`.
        max_position: leave out what was shown lower.

    Raises:
        InputError: the log has no ranker column, or numbers of places.
        NotIdentifiedError: no result is shown by several rankers at clearly different positions.

    Example:
        >>> from clickharvest import CPBM, check_fit, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log = read_log(simulate_ab_log(pages=20_000, seed=0)[0], context=["device"])
        >>> arms = compare_arms(log)
        >>> model = CPBM().fit(arms.interventions).propensities_
        >>> checked = check_fit(arms.displays, model, further=[arms.finding(model)])
        >>> "instrument" in checked.budget.terms
        True
    """
    if not isinstance(source, Displays) and source.places is not None:
        raise InputError("arms are compared by the rank of results, and places have none: name a position column")
    d = source if isinstance(source, Displays) else read_displays(source, unit)
    if d.ranker is None:
        raise InputError("arms are the values of a ranker column, and the log has none: name it")
    d = d if max_position is None else d.take(d.position <= max_position)
    cells = _ArmCells.of(d, unit)
    curve, covariance, worth = cells.fit(flexible=True)
    kept, shown = cells.kept[cells.row], d.shown * worth[cells.row]
    single = np.where(kept, d.unit, d.unit.max(initial=-1) + 1 + np.arange(len(d)))
    compared = replace(d, shown=shown).take(kept)
    share = compared.clicks.sum() / max(d.clicks.sum(), 1.0)
    return Instrumented(
        summed(compared, d.shown[kept], unit),
        replace(d, shown=np.where(kept, shown, d.shown), unit=single),
        covariance,
        curve - cells.fit(flexible=False)[0],
        f"Compared between rankers: {len(np.unique(compared.unit)):,} results that they show at clearly different "
        f"positions, with {100 * share:.0f} % of the clicks.",
    )


def _basis(position: Integers) -> Array:
    """Return the directions that the curve bends along, L and L², [n, 2]."""
    height = np.log(position.astype(np.float64))
    return np.stack([height, height**2], axis=1)


def _sums(code: Integers, column: Array) -> Array:
    """Return the sums of a column by code."""
    return np.bincount(code, column).astype(np.float64)


def summed(d: Displays, impressions: Array, unit: UnitKind) -> Interventions:
    """Return displays summed by unit, context and position; those of units at two positions or more."""
    first, cell = distinct(d.unit, *d.codes.values(), d.position)
    exposure, clicks, shown = (_sums(cell, column) for column in (d.shown, d.clicks, impressions))
    interventions = Interventions(
        unit=d.unit[first],
        query=d.query[first],
        position=d.position[first],
        exposure=exposure,
        clicks=np.rint(clicks).astype(np.int64),
        impressions=np.rint(shown).astype(np.int64),
        contexts={name: column[first] for name, column in d.contexts.items()},
        exposure_kind="design",
        unit_kind=unit,
    )
    of_unit = distinct(interventions.unit)[1]
    places = distinct(of_unit, interventions.position)[0]
    return interventions.take((np.bincount(of_unit[places]) >= 2)[of_unit]).clicked()


@dataclass(frozen=True, eq=False)
class _ArmCells:
    """Displays and clicks of each result at each position in each arm, one cell each.

    Attributes:
        row: number of the cell of each display, [n].
        unit: number of the unit, [cells].
        query: number of the query, [cells].
        arm: number of the arm, by size, all from `MOST_RANKERS` on being one, [cells].
        position: the position, [cells].
        shown: displays, [cells].
        clicks: clicks, [cells].
        upper: normal score of the share of the arm's pages that show the result higher, [cells].
        lower: that of the share that shows it there or higher, [cells].
        spread: standard deviation of a unit's position within its arms, standardised, [cells].
        kept: whether the arms of a unit show it at clearly different positions, [cells].
    """

    row: Integers
    unit: Integers
    query: Integers
    arm: Integers
    position: Integers
    shown: Array
    clicks: Array
    upper: Array
    lower: Array
    spread: Array
    kept: NDArray[np.bool_]

    @classmethod
    def of(cls, d: Displays, unit: UnitKind) -> _ArmCells:
        """Return the cells of displays.

        Positions of a unit are compared by arm with F = (Σ_a n_a (x̄_a − x̄)² / (arms − 1)) / σ², n_a the viewers of the
        query in the arm, or its pages, and pages without the result counting as one position below all others. σ² is
        the variance within arms, with one viewer of each arm at that of all units: few viewers estimate it badly.
        """
        assert d.ranker is not None
        group = distinct(d.query, *(d.codes.values() if unit == "context" else ()))[1]
        first, row = distinct(d.unit, d.ranker, d.position)
        shown, clicks = _sums(row, d.shown), _sums(row, d.clicks)
        part = distinct(group, d.ranker)[1]
        at = distinct(part, d.position)
        per_place = np.bincount(at[1], d.shown)
        pages = np.zeros(int(part.max(initial=-1)) + 1)
        np.maximum.at(pages, part[at[0]], per_place)
        viewers = pages
        if d.viewer is not None:
            viewers = np.bincount(part[distinct(part, d.viewer)[0]], minlength=len(pages)).astype(np.float64)
        pages, viewers = pages[part[first]], np.minimum(viewers, pages)[part[first]]
        position = d.position[first]
        of = distinct(d.unit[first], d.ranker[first])[1]  # a result in an arm; cells ascend by position within it
        begins = np.flatnonzero(np.diff(of, prepend=-1))
        share = shown / np.maximum(pages, shown)
        above = np.cumsum(share)
        above = above - share - (above - share)[begins][of]
        above, there = np.clip(above, 0, 1), np.clip(above + share, 0, 1)
        last = float(position.max(initial=0)) + 1
        mean = last + np.bincount(of, share * (position - last))
        variance = np.maximum(np.bincount(of, share * (position - last) ** 2) - (mean - last) ** 2, 0)
        own_unit, weight = distinct(d.unit[first])[1][begins], viewers[begins]
        total, arms = np.bincount(own_unit, weight), np.bincount(own_unit)
        typical = weight @ variance / max(float((weight - 1).sum()), 1e-9)
        overall = np.bincount(own_unit, weight * mean) / total
        within = (np.bincount(own_unit, weight * variance) + arms * typical) / total
        between = np.bincount(own_unit, weight * (mean - overall[own_unit]) ** 2) / np.maximum(arms - 1, 1)
        # A result that never moves within its arms differs between them for sure, if it does at all.
        kept = (arms > 1) & (between > STRONG * np.maximum(within, 1e-3)) & (total > arms)
        of_unit = own_unit[of]
        weights = clicks * kept[of_unit]
        if not weights.any():
            raise NotIdentifiedError(
                "no clicked result is shown by two rankers at clearly different positions: the rankers cannot be "
                "compared; name the ranker column of an A/B test, name fewer contexts, or fit without the instrument"
            )
        spread = np.sqrt(within)[of_unit]
        centre = np.average(spread, weights=weights)
        scale = np.sqrt(np.average((spread - centre) ** 2, weights=weights))
        return cls(
            row=row,
            unit=of_unit,
            query=d.query[first],
            arm=rank_by_size(d.ranker, d.shown, MOST_RANKERS)[first],
            position=position,
            shown=shown,
            clicks=clicks,
            upper=-ndtri(above),
            lower=-ndtri(there),
            spread=(spread - centre) / max(scale, 1e-9),
            kept=kept[of_unit],
        )

    def worth(self, m: Array, s: Array) -> Array:
        """Return w̄ of every cell, at least 1e−9, [cells]."""

        def mass(upper: Array, lower: Array) -> Array:
            below = lower > 0  # the tail on the other side is exact
            return ndtr(np.where(below, -lower, upper)) - ndtr(np.where(below, -upper, lower))

        ratio = mass((self.upper - m) / s, (self.lower - m) / s) / np.maximum(mass(self.upper, self.lower), 1e-12)
        return np.asarray(np.maximum(ratio, 1e-9))

    def fit(self, *, flexible: bool) -> tuple[Array, Array, Array]:
        """Return the curve along L and L², [2], the covariance that tastes add to it, [2, 2], and w̄ of cells, [cells].

        Args:
            flexible: whether s differs from 1, and m grows with the spread of positions.
        """
        rows = np.flatnonzero(self.kept)
        basis, arms = _basis(self.position), np.eye(int(self.arm.max()) + 1)[self.arm]
        basis[:, 1] *= len(np.unique(self.position[rows])) > 2
        columns = np.concatenate([arms, self.spread[:, None]], axis=1) if flexible else arms
        ends = 2 + columns.shape[1]
        theta = np.zeros(ends + (arms.shape[1] if flexible else 0))
        theta[:2] = -1.0, 0.0

        def solve(offset: Array, x: Array) -> Estimate:
            shown, clicks, cell = self.shown[rows], self.clicks[rows], np.arange(len(rows))
            return fit_strata(self.unit[rows], cell, shown, offset[rows], clicks, x[rows], self.query[rows])

        def log_worth(m_more: float = 0.0, s_more: float = 0.0) -> Array:
            s = np.exp(arms @ theta[ends:] + s_more) if flexible else np.exp(np.full(len(columns), s_more))
            return np.log(self.worth(columns @ theta[2:ends] + m_more, s))

        for _ in range(STEPS):
            by_m = (log_worth(m_more=SMALL) - log_worth(m_more=-SMALL)) / (2 * SMALL)
            by_s = (log_worth(s_more=SMALL) - log_worth(s_more=-SMALL)) / (2 * SMALL)
            x = np.concatenate([basis, columns * by_m[:, None], *([arms * by_s[:, None]] * flexible)], axis=1)
            used = np.abs(x[rows]).max(axis=0) > SMALL  # an arm with one place for each result has no slope
            fit = solve(basis @ theta[:2] + log_worth() - x[:, used] @ theta[used], x[:, used])
            move = fit.theta - theta[used]
            longest = float(np.abs(move).max(initial=0.0))
            if not np.isfinite(longest):
                break
            theta[used] += move * min(1.0, FARTHEST / max(longest, SMALL))
            if longest < CLOSE:
                bent, known = used[:2], solve(log_worth(), basis[:, used[:2]])
                covariance, size = np.zeros((2, 2)), int(bent.sum())
                covariance[np.ix_(bent, bent)] = fit.covariance[:size, :size] - known.covariance
                return theta[:2], covariance, np.exp(log_worth())
        raise NotIdentifiedError(
            f"the tastes of users were not found in {STEPS} steps, clicks are too few: fit without the instrument"
        )
