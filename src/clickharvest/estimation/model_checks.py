"""Checks of the model itself: does context matter, do pairwise ratios agree, does relevance change them?

Each is a query-clustered score test of columns added to the click shares of a null model, see `score_tests`.
Needs NumPy and SciPy, not JAX.

How far down a list a result stands is log(k / anchor). Places have no such number: there it is −log p_k of the PBM, how
much less a place is examined than the anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.diagnosis.findings import ALARM, WEAK, Finding, sign_of, spell_p, spell_sign
from clickharvest.errors import InputError
from clickharvest.estimation.own_curves import OwnCurves
from clickharvest.estimation.pooling import pool
from clickharvest.estimation.sample import Sample, make_sample, supported_positions
from clickharvest.estimation.score_tests import (
    ENOUGH,
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
)
from clickharvest.harvesting.interventions import Interventions
from clickharvest.harvesting.numbering import distinct
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.curves import Constant
from clickharvest.positions.places import Anchor, find_anchor, name_place
from clickharvest.words import cluster_nouns

TYPICAL = 0.3
"""Standard deviation of effects of contexts on steepness that the test of single contexts is made for."""
MOST_CONTEXTS = 60
"""Distinct contexts that are tested one by one, and products of features that are tested in their place."""
MOST_SCORES = 20_000_000
"""Scores, of a query and a context each, that are held at once."""
MOST_POSITIONS = 250
"""Positions beyond which the tests take too long."""
MOST_PAIRS = 250
"""Pairs of positions that are tested; of more, those whose units have most clicks."""
OWN = 1.0
"""Standard deviation of log examination between queries, of which trust must be told apart."""
ALIKE = 1e-9
"""Information on trust that curves of queries leave, by that on steepness, below which there is but rounding."""
HETEROGENEOUS = 2.0
"""Q per degree of freedom from which on pairs are called heterogeneous."""

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_model(
    interventions: Interventions, *, anchor: Anchor = 1, kinds: Mapping[str, str] | None = None, seed: int = 0
) -> list[Finding]:
    """Return the findings of all checks that apply; whether context matters needs context columns.

    Args:
        interventions: the harvest.
        anchor: the position others are relative to; positions not linked to it are left out.
        kinds: kind of context columns where it is not plain from their values, see `ContextEncoder`.
        seed: seed of the split of `trust_bias`.

    Raises:
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
    findings += _pair_checks(interventions, anchor, kinds)
    return [*findings, trust_bias(interventions, anchor=anchor, kinds=kinds, seed=seed)]


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

    The p-value is that of the smaller of both under random signs of the queries' scores (`smallest_p`), in which very
    large queries count for less (`evened`). The number is the likelihood ratio of what was more telling, all clicks
    counted; its χ² law holds for independent clicks only.

    Raises:
        InputError: there are no context columns.
        NotIdentifiedError: no position is linked to the anchor.
    """
    if not interventions.contexts:
        raise InputError("nothing to test: the interventions have no context columns; harvest with --context")
    sample = model_sample(interventions, anchor, kinds)
    cells, name, spelled = share_cells(sample), "context matters", ", ".join(interventions.contexts)
    few = cluster_nouns(sample.clustered_by)[1]
    null = _null_columns(sample, anchor)[cells.rows]
    steepness = not _affordable(sample)
    extra = _context_columns(sample, anchor, steepness)[cells.rows]
    even = evened(cells)
    test = score_test(even, null, extra, flip=steepness)
    if test is None and not steepness:
        steepness, extra = True, _context_columns(sample, anchor, True)[cells.rows]
        test = score_test(even, null, extra, flip=True)
    if test is None:
        return Finding(name, "note", f"Too few {few} with clicks to test whether examination depends on {spelled}.")
    p_value, freedom, how = test.p_value, test.freedom, ""
    contexts = _single_contexts(sample, anchor)
    if contexts is not None:
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
        sentence = f"Examination depends on {spelled}{how} ({told})"
        sentence += ": a CPBM tells contexts apart; a PBM would give each the average."
        return Finding(name, "note", sentence, gain, p_value)
    advice = "try a CPBM beside the PBM" if p_value < WEAK else "a PBM may do, and is more precise"
    sentence = f"{spell_sign(p_value)} that examination depends on {spelled} ({told}): {advice}."
    return Finding(name, sign_of(p_value), sentence, gain, p_value)


def _both_ways(scores: Scores, directions: Array) -> tuple[float, Array]:
    """Return the p-value of directions of the first columns and of steepness of contexts, and that of each."""
    tested = len(directions)
    linear = scores.apart[:, :tested] @ directions
    first, second = np.zeros((2, *scores.information.shape))
    first[:tested, :tested] = directions @ np.linalg.inv(linear.T @ linear) @ directions.T
    prior = np.eye(len(first) - tested) / TYPICAL**2
    second[tested:, tested:] = np.linalg.inv(scores.information[tested:, tested:] + prior)
    return smallest_p(scores.whole, scores.apart, (first, second))


def transitivity(interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None) -> Finding:
    """Test whether the ratios of all pairs of positions agree with one curve.

    In the units exposed at both k and k' the clicks there alone measure one ratio, with
    Pr(click at k' | click at k or k') = σ(log(e_k' / e_k) + β_k' − β_k + θ_{kk'}). One curve β for all means θ = 0,
    whatever the units' relevance: every (unit, pair) is made a unit of two cells, and the θ_{kk'} are the columns
    tested; where queries are few, those with most information. With context columns β_k + W_k·x stands for β_k,
    except where contexts vary inside units: there their clicks are added up, and the PBM is tested.

    The number is T / r: how much pairs disagree, relative to what chance allows.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    return _pair_checks(interventions, anchor, kinds)[0]


def _pair_checks(interventions: Interventions, anchor: int, kinds: Mapping[str, str] | None) -> list[Finding]:
    """Return the findings on transitivity and, if that can be tested, on heterogeneity."""
    pooled = interventions.unit_kind == "query"
    sample = model_sample(replace(interventions, contexts={}) if pooled else interventions, anchor, kinds)
    cells, pair = _most_clicked(*_pairs(share_cells(sample), sample.position))
    columns = _context_columns(sample, anchor, not _affordable(sample))
    null = beside(_null_columns(sample, anchor), columns)[cells.rows]
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


def trust_bias(
    interventions: Interventions, *, anchor: int = 1, kinds: Mapping[str, str] | None = None, seed: int = 0
) -> Finding:
    """Test whether the ratio of positions depends on the unit's relevance, as when users trust top results.

    Impressions are dealt at random into two halves, clicks with them; given the unit, clicks of the halves are
    independent. Each half gives a relevance z_u = log((C_u + 1) / (Σ_k n_{u,k} p̂_k + 1/m)), m the mean click rate of
    examined impressions, standardised; the other half's clicks are tested for a term γ z_u log(k / anchor), both
    halves in one score. The null model has a free value per position, and context columns where there are some.

    Curves that differ between queries must not show. In either half a query has a curve of its own around the common
    one (`OwnCurves`, standard deviation `OWN`), by which z_u and the expected clicks go. Of z_u log(k / anchor) what
    such a curve could do is left out: all that steepness could, so that documents of one query are compared with each
    other, and of the rest what is to be expected. Where documents cluster, each has a curve of its own, and none is
    left to compare.

    The number is the one-step estimate U / I of γ: how much flatter (> 0) the curve is, as a power of k, for units
    whose log relevance is one standard deviation higher.

    Raises:
        NotIdentifiedError: no position is linked to the anchor.
    """
    sample = _halves(model_sample(interventions, anchor, kinds), interventions.exposure_kind == "realised", seed)
    cells, null = share_cells(sample), _null_columns(sample, anchor)
    null = beside(null, _context_columns(sample, anchor, not _affordable(sample)))
    common = np.asarray(null @ fit_shares(cells, null[cells.rows]).theta)
    _, half = distinct(_reading_alike(sample), sample.unit >= sample.n_units // 2)
    pairs, at = distinct(half, sample.position)
    own = OwnCurves(cells, half[cells.rows], at[cells.rows], len(pairs), len(sample.positions), OWN)
    deviations = own.deviations(cells.log_exposure + common[cells.rows])[at]
    z = _other_relevance(sample, common + deviations)[cells.rows]
    cells = replace(cells, log_exposure=cells.log_exposure + deviations[cells.rows])
    shares = cells.shares(cells.log_exposure + common[cells.rows])
    distance = _log_distance(sample, anchor)[cells.rows]
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
    told = f"power of {power} {value:+.2f} per sd of log relevance, {spell_p(test.p_value)}"
    status = sign_of(test.p_value)
    if status != "warning":
        what = "positions" if sample.places is None else "places"
        sentence = f"{spell_sign(test.p_value)} that ratios of {what} depend on relevance ({told})."
        return Finding(name, status, sentence, value, test.p_value)
    where = "down the page" if sample.places is None else "from place to place"
    how = f"less steeply {where}, as when users trust top results"
    if value < 0:
        how = f"more steeply {where}, as when users stop once served"
    advice = "fit --model affine corrects for trust" if value > 0 else "prefer clicks that show satisfaction"
    sentence = (
        f"Clicks on relevant results fall {how} ({told}): the curve is an average over relevance. Use its weights with "
        f"care; {advice}."
    )
    return Finding(name, "warning", sentence, value, test.p_value)


def model_sample(interventions: Interventions, anchor: int, kinds: Mapping[str, str] | None) -> Sample:
    """Return what a model is fitted to: the positions that are linked, contexts encoded."""
    positions = supported_positions(interventions, anchor)
    encoder = ContextEncoder.fit(interventions.contexts, kinds=kinds) if interventions.contexts else None
    return make_sample(interventions, positions, encoder)


def share_cells(sample: Sample) -> ShareCells:
    """Return the cells of the units with clicks."""
    clicked = np.bincount(sample.unit, weights=sample.clicks)[sample.unit] > 0
    rows = np.flatnonzero(clicked & (sample.exposure > 0))
    _, unit = np.unique(sample.unit[rows], return_inverse=True)
    clicks = sample.clicks[rows].astype(np.float64)
    return ShareCells(rows, unit, sample.cluster[rows], np.log(sample.exposure[rows]), clicks)


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


def _null_columns(sample: Sample, anchor: int) -> Columns:
    """Return the columns of the PBM, [n, K − 1]; where contexts vary inside units, also x, how much they click."""
    own = by_position(np.ones((len(sample.unit), 1)), sample, anchor)
    return beside(own, csr_array(sample.x[sample.context])) if sample.unit_kind == "query" else own


def _affordable(sample: Sample) -> bool:
    """Whether there are queries enough for all of W."""
    return bool(ENOUGH * sample.x.shape[1] * (len(sample.positions) - 1) <= sample.n_clusters)


def _context_columns(sample: Sample, anchor: int, steepness: bool) -> Columns:
    """Return the columns of W, [n, (K − 1) d], or of w alone, [n, d]."""
    x = sample.x[sample.context]
    return csr_array(-x * _log_distance(sample, anchor)[:, None]) if steepness else by_position(x, sample, anchor)


def _single_contexts(sample: Sample, anchor: int) -> Columns | None:
    """Return columns of steepness of distinct contexts, [n, contexts], or of squares and products of features.

    None where these say no more than the features themselves, or there are more than queries, or memory, allow.
    """
    m, d = sample.x.shape
    if m <= np.linalg.matrix_rank(np.column_stack([np.ones(m), sample.x])):
        return None
    values = np.eye(m)
    if m > MOST_CONTEXTS:
        one, two = np.triu_indices(d)
        values = sample.x[:, one] * sample.x[:, two]
        values = values[:, np.ptp(values, axis=0) > 0]
        values = (values - values.mean(axis=0)) / values.std(axis=0)
    if not 0 < values.shape[1] <= MOST_CONTEXTS or values.shape[1] * sample.n_clusters > MOST_SCORES:
        return None
    return csr_array(-values[sample.context] * _log_distance(sample, anchor)[:, None])


def by_position(x: Array, sample: Sample, anchor: int) -> Columns:
    """Return x in the columns of the row's position, the anchor's left out, [n, (K − 1) d]."""
    anchored, width = sample.positions.index(anchor), x.shape[1]
    slot = sample.position - (sample.position > anchored)
    rows = np.flatnonzero(sample.position != anchored)
    row, feature = np.nonzero(x[rows])
    shape = (len(x), (len(sample.positions) - 1) * width)
    return csr_array((x[rows][row, feature], (rows[row], slot[rows][row] * width + feature)), shape=shape)


def _log_distance(sample: Sample, anchor: int) -> Array:
    """Return how far from the anchor each row stands, log(k / anchor) in a list."""
    distance: Array = np.log(np.array(sample.positions) / anchor)
    if sample.places is not None:
        found = pool(Constant(sample.positions, anchor, sample.x.shape[1]), sample)
        distance = np.insert(-found.theta, sample.positions.index(anchor), 0.0)
    return distance[sample.position]


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


def _halves(sample: Sample, realised: bool, seed: int) -> Sample:
    """Deal impressions, their clicks and realised exposures into two halves of each unit; n_units apart, 2 n rows."""
    random = np.random.default_rng(seed)
    shown = random.binomial(sample.impressions, 0.5)
    clicks = _deal(sample.clicks, sample.impressions, shown, random)
    shown, clicks = np.stack([shown, sample.impressions - shown]), np.stack([clicks, sample.clicks - clicks])
    _, cell = distinct(sample.whole, sample.context, sample.position)
    of_cell = np.stack([np.bincount(cell, weights=own)[cell] for own in shown])
    share = of_cell / np.maximum(of_cell.sum(axis=0), 1) if realised else np.ones(shown.shape)
    n_wholes = int(sample.whole.max(initial=-1)) + 1
    return replace(
        sample,
        context=np.tile(sample.context, 2),
        position=np.tile(sample.position, 2),
        cluster=np.tile(sample.cluster, 2),
        unit=np.concatenate([sample.unit, sample.unit + sample.n_units]),
        exposure=(sample.exposure * share).ravel(),
        clicks=clicks.ravel(),
        impressions=shown.ravel(),
        division=sample.division
        and replace(
            sample.division,
            unit=np.concatenate([sample.whole, sample.whole + n_wholes]),
            query=np.tile(sample.query, 2),
        ),
    )


def _reading_alike(sample: Sample) -> Integers:
    """Return for each row what has a curve of its own: its query, or a cluster within that has units to itself."""
    if sample.division is None or sample.shared:
        return sample.query
    clicked, owner = sample.clicks > 0, np.zeros(int(sample.whole.max()) + 1, dtype=np.int64)
    owner[sample.whole[clicked]] = sample.cluster[clicked]
    return distinct(sample.query, owner[sample.whole])[1]


def _other_relevance(halves: Sample, log_p: Array) -> Array:
    """Return for each row the standardised, smoothed log click rate per examination of its unit's other half."""
    clicks = np.bincount(halves.whole, weights=halves.clicks)
    examined = np.bincount(halves.whole, weights=halves.impressions * np.exp(log_p))
    rate = np.log((clicks + 1) / (examined + (examined.sum() + 1) / (clicks.sum() + 1)))
    standard: Array = (rate - rate.mean()) / max(float(rate.std()), 1e-9)
    return np.roll(standard, len(standard) // 2)[halves.whole]
