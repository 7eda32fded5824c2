"""Does the outcome of a click depend on the position?"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from clickharvest.checks.conditional_logit import fit_strata
from clickharvest.checks.finding import NORMAL, Finding
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import numbered
from clickharvest.words import clean_text

KIND = "outcome"
ROUGH = 0.5
"""Standard error of the power of k beyond which the test has no power."""
CLEAR = 0.001
"""p-value below which the dependence is clear."""


def outcome_and_position(interventions: Interventions, *, anchor: int = 1, outcome: str = "outcome") -> Finding:
    """Return whether clicks on the same result lead to an outcome more or less often further down.

    Within units of the log after the click, outcomes are compared with clicks: s_k ∝ k^γ, by query.

    Args:
        interventions: the harvest of the log after the click.
        anchor: the position others are relative to.
        outcome: what it is called.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.logs import after_click
        >>> from clickharvest.simulate import add_purchases, simulate_ab_log
        >>> log = add_purchases(simulate_ab_log(pages=20_000)[0], steepness=0.8)
        >>> after = after_click(read_log(log), "purchase")
        >>> outcome_and_position(harvest(after.log), outcome="purchase").severity
        'note'
    """
    unit, query = numbered(interventions.unit)[1], numbered(interventions.query)[1]
    distance, clicks = np.log(interventions.position / anchor), interventions.clicks.astype(np.float64)
    rows, offset = np.arange(len(unit)), np.zeros(len(unit))
    fit = fit_strata(unit, rows, interventions.exposure, offset, clicks, distance[:, None], query)
    power, error = float(fit.theta[0]), float(np.sqrt(fit.covariance[0, 0]))
    outcome = clean_text(outcome)
    if not error < ROUGH:
        return Finding(KIND, "untested", f"There is too little to tell whether {outcome} depends on the position.")
    p = float(2 * ndtr(-abs(power) / error))
    size = f"power of k {power:+.2f} ± {NORMAL * error:.2f}"
    how = "rarer" if power < 0 else "more frequent"
    if p >= CLEAR:
        return Finding(KIND, "ok", f"After a click, {outcome} does not clearly depend on the position ({size}).", p=p)
    return Finding(
        KIND,
        "note",
        f"After a click on the same result, {outcome} is {how} further down ({size}).",
        f"weigh with its curve, too: clickharvest fit --outcome {outcome}, then weigh --after-click",
        p=p,
    )
