"""Trust bias: does the ratio of positions depend on how relevant a result is?

A query-clustered score test on click shares, see `score_tests`, in which every query may have a curve of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.diagnosis.findings import Finding, sign_of, spell_p, spell_sign
from clickharvest.estimation.own_curves import OwnCurves
from clickharvest.estimation.sample import ROWS, Sample
from clickharvest.estimation.score_tests import fit_shares, score_test
from clickharvest.estimation.share_columns import (
    fitted_log_p,
    is_linear,
    log_distance,
    model_sample,
    null_of_contexts,
    share_cells,
)
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import distinct
from clickharvest.model.propensities import Propensities
from clickharvest.words import cluster_nouns

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

OWN = 1.0
"""Standard deviation of log examination between queries, of which trust must be told apart."""
DEALS, MOST_ROWS = 4, 400_000
"""How often impressions are dealt at most, and rows of all deals; a log with more has power enough."""
BALANCE = 0.75
"""How far clicks are weighted by 1 / p̂ where a unit's relevance is judged: between tastes of queries and of pages."""
ALIKE = 1e-9
"""Information on trust that curves of queries leave, by that on steepness, below which there is but rounding."""


def trust_bias(
    interventions: Interventions,
    *,
    anchor: int = 1,
    kinds: Mapping[str, str] | None = None,
    seed: int = 0,
    model: Propensities | None = None,
) -> Finding:
    """Test whether the ratio of positions depends on the unit's relevance, as when users trust top results.

    Impressions are dealt at random into two halves, clicks with them; given the unit, clicks of the halves are
    independent. Each half gives a relevance, standardised, of weighted clicks by weighted examinations,

        z_u = (Σ_k w_k C_{u,k} + 1) / (Σ_k w_k n_{u,k} p̂_k + 1/m),   w_k = p̂_k^−`BALANCE`,

    m their mean ratio, and the other half's clicks are tested for a term γ z_u log(k / anchor), both halves in one
    score. As chance deals, it is dealt `DEALS` times, where rows are few, and scores add up. The null model has a free
    value per position, and context columns where there are some. Where it misses what contexts do, units of contexts
    that are read further down look relevant, and fall less steeply, as with trust: with the model that was fitted the
    null has what the model says, too, see `share_columns`.

    Pages on which much is clicked must not show. Halves of different documents share pages. With w_k = 1 such a page
    adds most to the z of the document at its top, and results that look relevant seem to fall more steeply; with
    w_k = 1 / p̂_k it adds the same to all, and what all have does not count. But z then hangs on single clicks far down,
    where tastes of a query show.

    Nor must curves that differ between queries. In either half a query has a curve of its own around the common
    one (`OwnCurves`, standard deviation `OWN`), by which z_u and the expected clicks go. Of z_u log(k / anchor) what
    such a curve could do is left out: all that steepness could, so that documents of one query are compared with each
    other, and of the rest what is to be expected. Where documents cluster, each has a curve of its own, and none is
    left to compare.

    A curve that is steeper for relevant units is no warning: in large logs of queries with few pages each, what is left
    of dependent pages shows.

    The number is the one-step estimate U / I of γ: how much flatter (> 0) the curve is, as a power of k, for units
    whose relevance is one standard deviation higher.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    once = model_sample(interventions, anchor, kinds, model)
    deals = int(np.clip(MOST_ROWS // max(len(once.unit), 1), 1, DEALS))
    sample = _halves(_repeated(once, deals), interventions.exposure_kind == "realised", seed)
    log_p = fitted_log_p(model, sample, anchor)
    cells, null = share_cells(sample, log_p), null_of_contexts(sample, anchor, log_p)
    common = np.asarray(null @ fit_shares(cells, null[cells.rows]).theta)
    _, half = distinct(_reading_alike(sample), sample.unit // max(once.n_units, 1))
    pairs, at = distinct(half, sample.position)
    own = OwnCurves(cells, half[cells.rows], at[cells.rows], len(pairs), len(sample.positions), OWN)
    logits = cells.log_exposure + common[cells.rows]
    deviations, shares = own.deviations(logits)[at], cells.shares(logits)
    examined = common if log_p is None else common + log_p
    z = _other_relevance(sample, examined + deviations)[cells.rows]
    cells = replace(cells, log_exposure=cells.log_exposure + deviations[cells.rows])
    distance = log_distance(sample, anchor)[cells.rows]
    column = own.beyond(z * distance, distance, shares)
    name = "trust bias"
    if cells.spread(column, shares).sum() <= ALIKE * cells.spread(distance, shares).sum():
        what = "query" if sample.shared else cluster_nouns(sample.clustered_by)[0]
        sentence = f"No {what} has clicked units of unequal relevance to compare: trust cannot be tested."
        return Finding(name, "note", sentence)
    test = score_test(cells, null[cells.rows], csr_array(column[:, None]), flip=True)
    if test is None:
        what = cluster_nouns(sample.clustered_by)[1]
        return Finding(name, "note", f"Too few {what} with clicks to test whether ratios depend on relevance.")
    value = float(test.shift[0])
    power = "k" if sample.places is None else "1 / examination"
    told = f"power of {power} {value:+.2f} per sd of relevance, {spell_p(test.p_value)}"
    status = sign_of(test.p_value)
    if status != "warning":
        what = "positions" if sample.places is None else "places"
        sentence = f"{spell_sign(test.p_value)} that ratios of {what} depend on relevance ({told})."
        return Finding(name, status, sentence, value, test.p_value)
    where = "down the page" if sample.places is None else "from place to place"
    if value < 0:
        sentence = (
            f"Clicks on relevant results fall more steeply {where} ({told}). Users may stop once served, which clicks "
            "above tells where the log names pages; or little is clicked on some pages and much on others, which looks "
            "the same here."
        )
        return Finding(name, "note", sentence, value, test.p_value)
    meaning = (
        "the curve is an average over relevance. Use its weights with care; fit --model affine corrects for trust."
    )
    if not is_linear(sample):
        missed = "is not linear in their columns" if log_p is None else "the curve misses"
        meaning = (
            f"the curve may be an average over relevance. An effect of contexts that {missed} looks the same. Use its "
            "weights with care; fit --model affine corrects for trust."
        )
    sentence = (
        f"Clicks on relevant results fall less steeply {where}, as when users trust top results ({told}): {meaning}"
    )
    return Finding(name, "warning", sentence, value, test.p_value)


def _repeated(sample: Sample, times: int) -> Sample:
    """Return the units several times over, n_units apart."""
    n_wholes = int(sample.whole.max(initial=-1)) + 1
    block = np.repeat(np.arange(times), len(sample.unit))
    rows: dict[str, Any] = {name: np.tile(getattr(sample, name), times) for name in ROWS}
    rows["unit"] += block * sample.n_units
    division = sample.division and replace(
        sample.division, unit=np.tile(sample.whole, times) + block * n_wholes, query=np.tile(sample.query, times)
    )
    return replace(sample, **rows, division=division)


def _halves(sample: Sample, realised: bool, seed: int) -> Sample:
    """Deal impressions, their clicks and realised exposures into two halves of each unit; n_units apart, 2 n rows."""
    random = np.random.default_rng(seed)
    shown = random.binomial(sample.impressions, 0.5)
    clicks = _deal(sample.clicks, sample.impressions, shown, random)
    shown, clicks = np.stack([shown, sample.impressions - shown]), np.stack([clicks, sample.clicks - clicks])
    _, cell = distinct(sample.whole, sample.context, sample.position)
    of_cell = np.stack([np.bincount(cell, weights=own)[cell] for own in shown])
    share = of_cell / np.maximum(of_cell.sum(axis=0), 1) if realised else np.ones(shown.shape)
    return replace(
        _repeated(sample, 2),
        exposure=(sample.exposure * share).ravel(),
        clicks=clicks.ravel(),
        impressions=shown.ravel(),
    )


def _deal(clicks: Integers, impressions: Integers, shown: Integers, random: np.random.Generator) -> Integers:
    """Return how many of the clicks fall on `shown` of the impressions: hypergeometric.

    NumPy draws it for less than 10⁹ of either kind; of more, a normal with the same mean and variance is as good.
    """
    small = np.maximum(clicks, impressions - clicks) < 10**9
    dealt = random.hypergeometric(clicks * small, (impressions - clicks) * small, shown * small)
    share = shown / np.maximum(impressions, 1)
    spread = np.sqrt(clicks * (1 - clicks / np.maximum(impressions, 1)) * share * (1 - share))
    drawn = np.rint(clicks * share + spread * random.normal(size=len(clicks)))
    least, most = np.maximum(0, shown - (impressions - clicks)), np.minimum(clicks, shown)
    return np.where(small, dealt, np.clip(drawn, least, most)).astype(np.int64)


def _reading_alike(sample: Sample) -> Integers:
    """Return for each row what has a curve of its own: its query, or a cluster within that has units to itself."""
    if sample.division is None or sample.shared:
        return sample.query
    clicked, owner = sample.clicks > 0, np.zeros(int(sample.whole.max()) + 1, dtype=np.int64)
    owner[sample.whole[clicked]] = sample.cluster[clicked]
    return distinct(sample.query, owner[sample.whole])[1]


def _other_relevance(halves: Sample, log_p: Array) -> Array:
    """Return for each row the standardised, smoothed relevance that the other half of its unit has."""
    weight = np.exp(-BALANCE * log_p)
    clicks = np.bincount(halves.whole, weights=halves.clicks * weight)
    examined = np.bincount(halves.whole, weights=halves.impressions * np.exp(log_p) * weight)
    rate = (clicks + 1) / (examined + (examined.sum() + 1) / (clicks.sum() + 1))
    standard: Array = (rate - rate.mean()) / max(float(rate.std()), 1e-9)
    return np.roll(standard, len(standard) // 2)[halves.whole]
