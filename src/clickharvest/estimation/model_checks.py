"""Checks of the model itself: does context matter, do pairwise ratios agree, does relevance change them?

Each is a query-clustered score test of columns added to the click shares of a null model, see `score_tests`.
Needs NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.diagnosis.findings import ALARM, WEAK, Finding, sign_of, spell_p, spell_sign
from clickharvest.errors import InputError
from clickharvest.estimation.links_within import links_within_queries
from clickharvest.estimation.sample import Sample, supported_positions
from clickharvest.estimation.score_tests import (
    Columns,
    Scores,
    ScoreTest,
    ShareCells,
    beside,
    evened,
    fit_shares,
    score_columns,
    score_test,
    smallest_p,
    steadied,
)
from clickharvest.estimation.share_columns import (
    affordable,
    context_columns,
    fitted_log_p,
    model_sample,
    null_columns,
    null_of_contexts,
    share_cells,
    single_contexts,
)
from clickharvest.estimation.trust_bias import trust_bias
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.contexts import has_one_value
from clickharvest.model.propensities import Propensities
from clickharvest.positions.places import Anchor, find_anchor, name_place
from clickharvest.words import cluster_nouns

TYPICAL = 0.3
"""Standard deviation of effects of contexts on steepness that the test of single contexts is made for."""
MOST_SCORES = 20_000_000
"""Scores, of a query and a context each, that are held at once."""
MOST_POSITIONS = 250
"""Positions beyond which the tests take too long."""
MOST_PAIRS = 250
"""Pairs of positions that are tested; of more, those whose units have most clicks."""
HETEROGENEOUS = 2.0
"""Q per degree of freedom from which on pairs are called heterogeneous."""

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_model(
    interventions: Interventions,
    *,
    anchor: Anchor = 1,
    kinds: Mapping[str, str] | None = None,
    seed: int = 0,
    model: Propensities | None = None,
) -> list[Finding]:
    """Return the findings of all checks that apply; whether context matters needs context columns.

    Args:
        interventions: the harvest.
        anchor: the position others are relative to; positions not linked to it are left out.
        kinds: kind of context columns where it is not plain from their values, see `ContextEncoder`.
        seed: seed of the split of `trust_bias`.
        model: the model that was fitted. Contexts then do what it says, in transitivity and trust bias, and not only
            what is linear in their columns: see `share_columns`.

    Raises:
        InputError: the model depends on columns that the interventions do not have.
        NotIdentifiedError: no position is linked to the anchor.

    Example:
        >>> from clickharvest import harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=5_000)
        >>> for finding in check_model(harvest(read_log(log, context=["device"]))):
        ...     print(finding.name, finding.status)
        context matters note
        transitivity ok
        heterogeneity of pairs ok
        trust bias ok
    """
    anchor = find_anchor(anchor, interventions.places)
    if (many := len(supported_positions(interventions, anchor))) > MOST_POSITIONS:
        sentence = f"{many:,} positions or places are more than the {MOST_POSITIONS} that the model is tested for."
        return [Finding(name, "note", sentence) for name in ("transitivity", "trust bias")]
    findings = [context_matters(interventions, anchor=anchor, kinds=kinds)] if interventions.contexts else []
    findings += links_within_queries(interventions, anchor) + _pair_checks(interventions, anchor, kinds, model)
    return [*findings, trust_bias(interventions, anchor=anchor, kinds=kinds, seed=seed, model=model)]


def context_matters(
    interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None
) -> Finding:
    """Test whether examination depends on context, in two ways at once.

    - `linear`, log p_k(x) = b_k + W_k·x, against W = 0: the query-clustered score test of W. Where queries are too few
      for that, steepness alone is tested, W_k = −w log(k / anchor).
    - Contexts that matter only together, or not in proportion: a steepness of its own for every distinct context (for
      squares and products of features where contexts are many), held together by a normal prior of standard deviation
      τ = `TYPICAL`: UᵀAU with A = (I + 1 / τ²)⁻¹. Less Σ_q s_qᵀAs_q, which random signs do not change, it is to first
      order what this model gains in log likelihood on queries that it is not fitted to, each left out once.

    The p-value is that of the smaller of both under random signs of the queries' scores (`smallest_p`), in which large
    queries count for less (`evened`), all the more where curves of queries differ (`steadied`). The number is the
    likelihood ratio of what was more telling, all clicks counted; its χ² law holds for independent clicks only.

    Raises:
        InputError: there are no context columns.
        NotIdentifiedError: no position is linked to the anchor.
    """
    if not interventions.contexts:
        raise InputError("nothing to test: the interventions have no context columns; harvest with --context")
    varying = {own: values for own, values in interventions.contexts.items() if not has_one_value(own, values)}
    name, spelled = "context matters", ", ".join(varying)
    if not varying:
        told = ", ".join(interventions.contexts)
        sentence = f"{told}: one value in all clicked units, on which examination cannot depend."
        return Finding(name, "note", sentence)
    kinds = {own: kind for own, kind in (kinds or {}).items() if own in varying}
    sample = model_sample(replace(interventions, contexts=varying), anchor, kinds)
    cells = share_cells(sample)
    few = cluster_nouns(sample.clustered_by)[1]
    null = null_columns(sample, anchor)[cells.rows]
    steepness = not affordable(sample)
    extra = context_columns(sample, anchor, steepness)[cells.rows]
    even = _weighted(cells, null, sample)
    test = score_test(even, null, extra, flip=steepness)
    if test is None and not steepness:
        steepness, extra = True, context_columns(sample, anchor, True)[cells.rows]
        test = score_test(even, null, extra, flip=True)
    if test is None:
        return Finding(name, "note", f"Too few {few} with clicks to test whether examination depends on {spelled}.")
    p_value, freedom, how = test.p_value, test.freedom, ""
    contexts = single_contexts(sample, anchor)
    if contexts is not None and contexts.shape[1] * sample.n_clusters <= MOST_SCORES:
        other = contexts[cells.rows]
        scores = score_columns(even, null, beside(extra, other))
        p_value, (alone, together) = _both_ways(scores, test.directions)
        if together < alone:
            left = scores.information[extra.shape[1] :, extra.shape[1] :]
            freedom, extra, how = int(np.linalg.matrix_rank(left, tol=1e-6)), other, ", taken together"
    without = test.null if even is cells else fit_shares(cells, null)
    gain = 2 * (fit_shares(cells, beside(null, extra)).value - without.value)
    told = f"likelihood ratio {gain:,.1f} on {freedom} df, {spell_p(p_value)}"
    told += f" in a test of steepness alone, for few {few}" if steepness and not how else ""
    if p_value < ALARM:
        which = f"one or more of {spelled}" if len(varying) > 1 else spelled
        sentence = f"Examination depends on {which}{how} ({told})"
        sentence += ": a CPBM tells contexts apart; a PBM would give each the average."
        return Finding(name, "note", sentence, gain, p_value)
    advice = "try a CPBM beside the PBM" if p_value < WEAK else "a PBM may do, and is more precise"
    sentence = f"{spell_sign(p_value)} that examination depends on {spelled} ({told}): {advice}."
    return Finding(name, sign_of(p_value), sentence, gain, p_value)


def _weighted(cells: ShareCells, null: Columns, sample: Sample) -> ShareCells:
    """Return the cells with clicks of large queries counting for less.

    A query is as large as it was displayed: clicks tell of its curve, too. Where clusters share units, as users do, all
    clicks count alike: what a unit was shown to one of them, exposures tell of all.
    """
    if sample.shared:
        return cells
    even = evened(cells)
    _, query = np.unique(cells.cluster, return_inverse=True)
    kept = np.bincount(query, even.clicks) / np.maximum(np.bincount(query, cells.clicks), 1)
    return steadied(even, null, sample.impressions[cells.rows] * kept[query])


def _both_ways(scores: Scores, directions: Array) -> tuple[float, Array]:
    """Return the p-value of directions of the first columns and of steepness of contexts, and that of each."""
    tested = len(directions)
    linear = scores.apart[:, :tested] @ directions
    first, second = np.zeros((2, *scores.information.shape))
    first[:tested, :tested] = directions @ np.linalg.inv(linear.T @ linear) @ directions.T
    prior = np.eye(len(first) - tested) / TYPICAL**2
    second[tested:, tested:] = np.linalg.inv(scores.information[tested:, tested:] + prior)
    return smallest_p(scores.whole, scores.apart, (first, second))


def transitivity(
    interventions: Interventions,
    *,
    anchor: int = 1,
    kinds: Mapping[str, str] | None = None,
    model: Propensities | None = None,
) -> Finding:
    """Test whether the ratios of all pairs of positions agree with one curve.

    In the units exposed at both k and k' the clicks there alone measure one ratio, with
    Pr(click at k' | click at k or k') = σ(log(e_k' / e_k) + β_k' − β_k + θ_{kk'}). One curve β for all means θ = 0,
    whatever the units' relevance: every (unit, pair) is made a unit of two cells, and the θ_{kk'} are the columns
    tested; where queries are few, those with most information. With context columns β_k + W_k·x stands for β_k, and
    with a model what it says as well, see `share_columns`; except where contexts vary inside units: there their clicks
    are added up, and the PBM is tested.

    The number is T / r: how much pairs disagree, relative to what chance allows.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    return _pair_checks(interventions, anchor, kinds, model)[0]


def _pair_checks(
    interventions: Interventions, anchor: int, kinds: Mapping[str, str] | None, model: Propensities | None
) -> list[Finding]:
    """Return the findings on transitivity and, if that can be tested, on heterogeneity."""
    pooled = interventions.unit_kind == "query"
    model = None if pooled else model
    sample = model_sample(replace(interventions, contexts={}) if pooled else interventions, anchor, kinds, model)
    log_p = fitted_log_p(model, sample, anchor)
    cells, pair = _most_clicked(*_pairs(share_cells(sample, log_p), sample.position))
    null = null_of_contexts(sample, anchor, log_p)[cells.rows]
    pairs, code = np.unique(pair, axis=1, return_inverse=True)
    lower = np.flatnonzero(sample.position[cells.rows] == pair[1])
    extra = csr_array((np.ones(len(lower)), (lower, code[lower])), shape=(len(code), pairs.shape[1]))
    null = null[:, np.unique(null.indices)]  # positions that none of the pairs is of
    test = score_test(cells, null, extra, shrink=True)
    name = "transitivity"
    if test is None:
        few = cluster_nouns(sample.clustered_by)[1]
        return [Finding(name, "note", f"Too few {few} compare positions in more than one way to test transitivity.")]
    what = "position" if sample.places is None else "place"
    value, heterogeneity = test.statistic / test.freedom, _heterogeneity(test, sample.clustered_by, what)
    told, status = f"{value:.2f} times as much as chance allows, {spell_p(test.p_value)}", sign_of(test.p_value)
    if status != "warning":
        how = f"Ratios of {what} pairs agree" if status == "ok" else f"Weak sign that ratios of {what} pairs disagree"
        return [
            Finding(name, status, f"{how} with one curve (they differ {told}).", value, test.p_value),
            heterogeneity,
        ]
    worst = int(np.argmax(np.abs(test.z)))
    k, other = (sample.positions[i] for i in pairs[:, worst])
    ratio = f"p_{other} / p_{k}"
    if sample.places is not None:
        ratio = f"that of {name_place(other, sample.places)} to {name_place(k, sample.places)}"
    sentence = (
        f"Ratios of {what} pairs disagree with one curve ({told}), most so {ratio}, "
        f"{np.exp(test.shift[worst]):.2f} times the curve's. Clicks depend on more than {what}"
        f"{' and context' if sample.x.shape[1] else ''}: add what differs between pages as context, or fit page "
        "types apart."
    )
    return [Finding(name, "warning", sentence, value, test.p_value), heterogeneity]


def _heterogeneity(test: ScoreTest, by: str, what: str) -> Finding:
    """Tell Cochran's Q of the pairs per degree of freedom: 1 where clicks are independent and one curve holds."""
    value = test.heterogeneity / test.freedom
    told = f"Q = {test.heterogeneity:,.1f} on {test.freedom} df"
    sentence = f"Ratios of {what} pairs differ {value:.2f} times as much as those of independent clicks would ({told})"
    if value < HETEROGENEOUS:
        return Finding("heterogeneity of pairs", "ok", f"{sentence}.", value)
    one, several = cluster_nouns(by)
    sentence += f": clicks of a {one} depend on each other, or curves differ between {several}; trust error bars by "
    return Finding("heterogeneity of pairs", "note", f"{sentence}{by} only.", value)


def _pairs(cells: ShareCells, position: Integers) -> tuple[ShareCells, Integers]:
    """Make every pair of a unit's cells a unit of its own; return it with the positions k < k' of each cell's pair."""
    order = np.lexsort((position[cells.rows], cells.unit))
    later = np.append(cells.first[1:], len(order))[cells.unit] - np.arange(len(order)) - 1
    one = np.repeat(np.arange(len(order)), later)
    two = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(later) - later, later)
    index = order[np.stack([one, two], axis=1)]
    index = index[cells.clicks[index].sum(axis=1) > 0]
    pair = np.repeat(position[cells.rows[index]], 2, axis=0).T
    flat = index.ravel()
    columns = (column[flat] for column in (cells.cluster, cells.log_exposure, cells.clicks))
    return ShareCells(cells.rows[flat], np.repeat(np.arange(len(index)), 2), *columns), pair


def _most_clicked(cells: ShareCells, pair: Integers) -> tuple[ShareCells, Integers]:
    """Return the cells of the `MOST_PAIRS` pairs whose units have most clicks, and the pairs of these."""
    pairs, code = np.unique(pair, axis=1, return_inverse=True)
    if pairs.shape[1] <= MOST_PAIRS:
        return cells, pair
    most = np.argsort(-np.bincount(code, cells.clicks), kind="stable")[:MOST_PAIRS]
    kept = np.flatnonzero(np.isin(code, most))
    unit = np.repeat(np.arange(len(kept) // 2), 2)
    chosen = ShareCells(cells.rows[kept], unit, cells.cluster[kept], cells.log_exposure[kept], cells.clicks[kept])
    return chosen, pair[:, kept]
