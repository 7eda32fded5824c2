"""Checks of a model of what comes of a click: does position matter at all, and do pairwise ratios agree?

Query-clustered score tests on the shares of outcomes, see `score_tests`. Needs NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from clickharvest.diagnosis.findings import Finding, sign_of, spell_p, spell_sign
from clickharvest.estimation.model_checks import TYPICAL, transitivity
from clickharvest.estimation.score_tests import ENOUGH, Array, scores_by_query, smallest_p
from clickharvest.estimation.share_columns import by_position, model_sample, share_cells
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.propensities import Propensities
from clickharvest.words import clean_text, cluster_nouns


def check_outcome(
    interventions: Interventions,
    *,
    anchor: int = 1,
    outcome: str = "outcome",
    kinds: Mapping[str, str] | None = None,
    model: Propensities | None = None,
) -> list[Finding]:
    """Return the findings on the interventions of a log after the click: those of `position_matters`, and transitivity.

    With the model that was fitted, contexts do what it says in transitivity, see `check_model`.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.logs import after_click
        >>> from clickharvest.simulate import add_purchases, simulate_ab_log
        >>> log = add_purchases(simulate_ab_log(pages=5_000)[0], steepness=0.8)
        >>> after = after_click(read_log(log), "purchase")
        >>> for finding in check_outcome(harvest(after.log), outcome="purchase"):
        ...     print(finding.name, finding.status)
        outcome and position note
        transitivity ok
    """
    return [
        position_matters(interventions, anchor=anchor, outcome=outcome),
        transitivity(interventions, anchor=anchor, kinds=kinds, model=model),
    ]


def position_matters(interventions: Interventions, *, anchor: int = 1, outcome: str = "outcome") -> Finding:
    """Test whether what comes of a click depends on the position, within units (`logs.outcomes.after_click`).

    Given the clicks of a unit and how many of them had the outcome, which these are is chance if position does not
    matter: nothing is fitted, π_{u,k} ∝ e_{u,k}. Two ways at once, see `smallest_p`: a power of k, and a value for each
    position, held together by a normal prior of standard deviation `TYPICAL`.

    The number is the one-step estimate of γ in s_k ∝ k^γ.

    Args:
        interventions: the harvest of the log after the click.
        anchor: the position others are relative to; positions not linked to it are left out.
        outcome: what it is called.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    outcome = clean_text(outcome)
    sample = model_sample(replace(interventions, contexts={}), anchor, None)
    cells, name = share_cells(sample), "outcome and position"
    columns = by_position(np.ones((len(sample.unit), 1)), sample, anchor)[cells.rows]
    shares = cells.shares(cells.log_exposure)
    apart = scores_by_query(cells, columns, shares)
    # log k of the positions makes the scores of single positions that of the power.
    power = np.log(np.array([k for k in sample.positions if k != anchor]) / anchor)
    if np.count_nonzero(apart @ power) < 2 * ENOUGH:
        what = cluster_nouns(sample.clustered_by)[1]
        return Finding(name, "note", f"Too few {what} to test whether {outcome} after a click depends on the position.")
    information = cells.information(columns, shares)
    whole = apart.sum(axis=0)
    single: Array = np.linalg.inv(information + np.eye(len(power)) / TYPICAL**2).astype(np.float64)
    p_value, _ = smallest_p(whole, apart, (np.outer(power, power), single))
    value = float(power @ whole / (power @ information @ power))
    told, status = f"power of k {value:+.2f}, {spell_p(p_value)}", sign_of(p_value)
    if status != "warning":
        sentence = f"{spell_sign(p_value)} that {outcome} after a click depends on the position ({told})."
        return Finding(name, status, sentence, value, p_value)
    how = "rarer" if value < 0 else "more frequent"
    sentence = (
        f"For the same result, {outcome} after a click is {how} further down ({told}): weigh with the curve of "
        f"clickharvest fit --outcome {outcome} beside that of clicks."
    )
    return Finding(name, "note", sentence, value, p_value)
