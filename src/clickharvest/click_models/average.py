"""The average curve of a click model: its examination by position, whatever was clicked above.

A click model other than examination has a propensity for every place of a page, or a line for every position. Averaged
over displays it has one propensity a position, with an interval: a curve to be checked and drawn like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.estimation.uncertainty import sigma_points
from clickharvest.model.curves import Constant, unflatten_params
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.parameters import TOLERANCE

if TYPE_CHECKING:
    from clickharvest.checks import Checked, Displays, Finding

Array = NDArray[np.float64]
BY_POSITION = ("order", "rankers", "rows")
"""Checks by position, whatever the places are."""
NOT_OF_PLACES = ("clicks above", "hidden column", "step")
"""Checks that a model of places does not need, or that do not hold for it."""


def average_curve(
    positions: Sequence[int], log_p: Array, covariance: Array | None, anchor: int, what: str
) -> Propensities:
    """Return propensities of positions, [K], with the covariance of log p, [K, K], as a model without context.

    Example:
        >>> average_curve((1, 2), np.log([2.0, 1.0]), None, 1, "examination").predict().propensity.tolist()
        [[1.0, 0.5]]
    """
    at = list(positions).index(anchor)
    contrast = np.delete(np.eye(len(positions)), at, axis=0)
    contrast[:, at] = -1.0
    b, draws = contrast @ log_p, None
    if covariance is not None:
        draws = sigma_points(b, contrast @ covariance @ contrast.T).astype(np.float32)
    return Propensities(
        Constant(tuple(positions), anchor, 0), {"b": b}, None, tuple(positions), draws=draws,
        draws_kind=None if draws is None else "clustered", info={"what": what},
    )  # fmt: skip


def curve_of(fitted: Any) -> Propensities:
    """Return the curve of a model by position, its own or the average one, with the model's `info`."""
    if isinstance(fitted, Propensities):
        return fitted
    average: Propensities = fitted.average
    return replace(average, info={**fitted.info, **average.info}, provenance=fitted.provenance)


def listed_propensities(fitted: Any) -> Propensities:
    """Return the propensities of a model, of positions or of its places.

    Raises:
        InputError: it has none, as its clicks are lines of examination.
    """
    listed: Propensities | None = fitted if isinstance(fitted, Propensities) else fitted.listed
    if listed is None:
        raise InputError(f"a model of {fitted.kind} has no examination propensities: use it with show, weigh or report")
    return listed


def average_of_places(model: Propensities, shown: Any, anchor: int) -> Propensities:
    """Return how often positions are examined, p_k = Σ n_m p_m / Σ n_m over the places m at k, in a typical context.

    Args:
        model: propensities of places, the first column of which is the position.
        shown: displays n of each place of the model's curve; equal ones where it is None.
        anchor: the position that others are relative to.
    """
    assert model.places is not None
    places = np.array(model.curve.positions)
    x, n = typical_context(model), np.ones(len(places)) if shown is None else np.asarray(shown, np.float64)
    if n.shape != places.shape or not (np.isfinite(n) & (n >= 0)).all():
        raise InputError("its displays by place are not those of the model: fit again")
    log_p = np.asarray(model.curve.relative(model.params, x), np.float64)[0]
    rank = np.array([int(value) for value in model.places.values(0)])[places - 1]
    positions = np.union1d(rank[n > 0], anchor)
    here = (positions[:, None] == rank) * np.where(rank == anchor, np.maximum(n, 1e-9), n)
    mean = (here * np.exp(log_p)).sum(axis=1) / here.sum(axis=1)
    covariance = None
    if model.draws is not None:
        weight = here * np.exp(log_p) / (here * np.exp(log_p)).sum(axis=1, keepdims=True)
        each = [unflatten_params(draw.astype(np.float64), model.params) for draw in model.draws]
        log_draws = np.array([model.curve.relative(params, x)[0] for params in each])
        covariance = np.atleast_2d(np.cov(weight @ log_draws.T))
    return average_curve([int(k) for k in positions], np.log(mean), covariance, anchor, "average examination")


def check_average(
    displays: Displays,
    average: Propensities,
    *,
    places: Propensities | None = None,
    left_out: Collection[str] = (),
    further: Sequence[Finding] = (),
    folds: Sequence[int] = (),
    tolerance: float = TOLERANCE,
    seed: int = 0,
    positions: Collection[int] = (),
) -> Checked:
    """Check a click model by its average curve; effects on places are averaged like the curve.

    Args:
        displays: displays of the log, by place where there are places.
        average: the average curve.
        places: propensities of places, the first column of which is the position.
        left_out: checks that do not hold for the model.
        further: findings of other tests.
        folds, tolerance, seed, positions: as in `check_fit`.
    """
    from clickharvest.checks import CHECKS, Checked, Evidence, make_budget
    from clickharvest.checks.checking import with_power

    by_position, rank = replace(displays, contexts={}), np.zeros(0, np.int64)
    if places is not None and places.places is not None:
        rank = np.array([int(value) for value in places.places.values(0)])
        known = displays.take(displays.position <= len(rank))
        by_position = replace(known, position=rank[known.position - 1], contexts={})
        displays = known
    whole = Evidence(by_position, average, folds=folds, seed=seed)
    evidence = whole if places is None else Evidence(displays, places, seed=seed)
    findings = list(further)
    for kind, check in CHECKS.items():
        if kind in left_out or (places is not None and kind in NOT_OF_PLACES):
            continue
        finding = check.run(whole if kind in BY_POSITION else evidence)
        if finding.effect is not None and places is not None and kind not in BY_POSITION:
            finding = _averaged(finding, evidence, whole, rank)
        findings.append(with_power(finding, tolerance))
    return Checked(tuple(findings), make_budget(whole, findings, positions=positions, tolerance=tolerance))


def _averaged(finding: Finding, evidence: Any, whole: Any, rank: NDArray[np.int64]) -> Finding:
    """Return a finding with its effects on places averaged by position; errors are taken as fully correlated."""
    assert finding.effect is not None
    assert finding.standard_error is not None
    position = rank[evidence.displays.position - 1]
    weight = np.zeros((len(whole.positions), len(evidence.positions)))
    seen = evidence.displays.shown * np.exp(evidence.log_p)
    known = np.isin(position, whole.positions)
    np.add.at(weight, (np.searchsorted(whole.positions, position[known]), evidence.place[known]), seen[known])
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-12)
    return replace(finding, effect=finding.effect @ weight.T, standard_error=finding.standard_error @ weight.T)
