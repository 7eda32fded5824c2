"""The budget: how far off can the curve be, by position and by cause?

With e the effect of a source on log p and σ its standard error, the truth may lie above the estimate by as much as

    U = √ Σ max(0, e + 1.96 σ)²,

in the kind of context where that is largest; below it likewise, with −e. What no column of the log can test is an
assumption: it is listed, and not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.model.budget import NOISE, Budget
from clickharvest.parameters import TOLERANCE

if TYPE_CHECKING:
    from clickharvest.harvesting.interventions import Interventions

Array = NDArray[np.float64]

UNBOUNDED = float(np.log(1e6))
"""An error of log p that is as good as infinite."""
MOST_CONTEXTS = 500
"""Contexts of evenly spaced rows whose intervals are looked at where there are many."""
WIDE = 0.9
"""Where contexts are many, the share of them whose intervals are no wider than the one that counts."""


def make_budget(
    evidence: Evidence,
    findings: Sequence[Finding],
    *,
    positions: Collection[int] = (),
    tolerance: float = TOLERANCE,
    interventions: Interventions | None = None,
) -> Budget:
    """Return the budget of a fit.

    Args:
        evidence: what was looked at.
        findings: what checks have found.
        positions: positions that are asked for; all that have an estimate without.
        tolerance: how far off a usable curve may be, as a fraction.
        interventions: what the model was fitted on, from which it is planned how much more data is needed.
    """
    down, up = noise(evidence)
    below, above = {NOISE: down}, {NOISE: up}
    for finding in findings:
        if finding.effect is not None:
            below[finding.kind], above[finding.kind] = finding.bounds
    asked = evidence.positions != evidence.model.curve.anchor
    if positions:
        asked &= np.isin(evidence.positions, sorted(positions))
    sums = [np.sqrt(sum(bound**2 for bound in side.values())).max(axis=0) for side in (above, below)]
    straight = np.maximum(*(np.sum(np.broadcast_arrays(*side.values()), axis=0).max(axis=0) for side in (above, below)))
    terms = {name: np.maximum(above[name].max(axis=0), below[name].max(axis=0)) for name in above}
    order = sorted(terms, key=lambda name: -float(terms[name][asked].max(initial=0)))
    decisive = [finding.sentence for finding in findings if finding.severity == "decisive"]
    if evidence.model.draws is None:
        decisive.append("the fit has no intervals, so the size of the noise is unknown")
    times = float((terms[NOISE][asked].max(initial=0) / np.log1p(tolerance)) ** 2)
    if times > 1 and interventions is not None:
        from clickharvest.planning.needs import times_needed

        anchor = int(evidence.model.curve.anchor)
        planned = times_needed(interventions, tolerance, evidence.positions[asked].tolist(), anchor=anchor)
        times = times if planned is None else planned
    known = evidence.positions[asked]
    every = np.union1d(known, sorted(set(positions) - set(evidence.positions.tolist()))).astype(np.int64)

    def whole(logs: Array, without: float = np.inf) -> Array:
        """Return numbers of all positions asked for: nothing bounds those without an estimate."""
        found = np.full(len(every), without)
        found[np.isin(every, known)] = logs[asked]
        return found

    return Budget(
        positions=tuple(every.tolist()),
        up=_fractions(whole(sums[0])),
        down=tuple(-np.expm1(-whole(sums[1]))),
        terms={name: _fractions(whole(terms[name], np.inf if name == NOISE else 0.0)) for name in order},
        straight=_fractions(whole(straight)),
        untested={finding.kind: finding.needs for finding in findings if finding.needs},
        tolerance=tolerance,
        reason=decisive[0] if decisive else "",
        folds=evidence.folds,
        noun="position" if evidence.model.places is None else "place",
        times=times,
    )


def _fractions(logs: Array) -> tuple[float, ...]:
    """Return changes of log p as fractions of p, infinite ones beyond `UNBOUNDED`."""
    return tuple(np.where(logs < UNBOUNDED, np.expm1(np.minimum(logs, UNBOUNDED)), np.inf).tolist())


def noise(evidence: Evidence) -> tuple[Array, Array]:
    """Return how far below and above the estimate its interval reaches, in log p, [contexts or 1, K]."""
    first = np.unique(evidence.kind, return_index=True)[1]
    several = evidence.model.context and len(first) == 1
    if several:
        order = np.argsort(evidence.context, kind="stable")
        first = order[np.unique(np.linspace(0, len(order) - 1, MOST_CONTEXTS).astype(np.int64))]
    table = {name: evidence.displays.contexts[name][first] for name in evidence.model.context} or None
    found = evidence.model.predict(table)
    with np.errstate(divide="ignore", invalid="ignore"):
        down = np.log(found.propensity) - np.log(found.lower)
        up = np.log(found.upper) - np.log(found.propensity)
    estimated = np.isin(found.positions, evidence.positions)
    down, up = (np.where(np.isfinite(side) & found.supported, side, np.inf)[:, estimated] for side in (down, up))
    if several:
        down, up = (np.quantile(side, WIDE, axis=0, method="lower")[None] for side in (down, up))
    return down, up
