"""Held-out score: how well models explain the clicks of a log that they were not fitted on.

The score of a model is its click-share likelihood per click on the units of the other log,

    S = Σ_q s_q / Σ_q n_q,   s_q = Σ_{u ∈ q} Σ_k C_{u,k} log π_{u,k},   π_{u,k} = e_{u,k} p_k / Σ_j e_{u,j} p_j,

n_q being the clicks of query q. It needs no relevance and no anchor, and of all examination curves the true one has the
highest expected score. Queries, not clicks, are independent: intervals of differences come from leaving out one query
at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation.cells import cells_of
from clickharvest.estimation.sample import Sample, make_sample
from clickharvest.harvesting.interventions import QUERY, Interventions
from clickharvest.model.propensities import Propensities
from clickharvest.model.provenance import fitted_fingerprints
from clickharvest.model.support import supported_by
from clickharvest.words import cluster_nouns, count, name_columns, spell_positions

Array = NDArray[np.float64]
Counts = Mapping[int, tuple[int, int]]
"""Clicks and impressions by position."""

RATES, RECIPROCAL = "click rates", "1/k"
FEWEST = 2.0
"""Effective queries below which a difference has no interval."""


@dataclass(frozen=True)
class Gain:
    """How much better one explains the clicks than another.

    Attributes:
        name: whose score it is.
        over: whose score is taken from it.
        per_click: the difference of the two scores; positive where `name` is the better one.
        lower: lower end of its interval; None where too few queries allow none.
        upper: upper end.
    """

    name: str
    over: str
    per_click: float
    lower: float | None
    upper: float | None

    @property
    def found(self) -> str:
        """`"better"` or `"worse"` where the interval leaves 0 out, `"same"` where it is 0 alone, else `"unclear"`."""
        if self.lower is None or self.upper is None:
            return "unclear"
        if self.lower > 0:
            return "better"
        if self.upper < 0:
            return "worse"
        return "same" if self.lower == self.upper else "unclear"


@dataclass(frozen=True)
class ModelComparison:
    """Scores of models and of two naive answers on the same clicks.

    Attributes:
        scores: click-share likelihood per click, by name; the closer to 0 the better.
        gains: differences: every model over click rates and 1/k, every later model over every earlier one.
        positions: the positions that all of them have an estimate for; clicks elsewhere are left out.
        clicks: clicks that were scored.
        left_out: clicks of the interventions that were not, by the reason.
        queries: queries, or what else clusters, with such clicks.
        effective_queries: (Σ n_q)² / Σ n_q², as many of them of equal size.
        level: level of the intervals.
        trained_on: the models that were fitted on these very interventions, all of them: their score is not held out.
            That of models that were fitted on a part of them, or more, is not either, but nothing tells.
        clustered_by: what clusters.
        unseen: clicks in contexts that the data of a model do not speak of, by model, where there are any.
    """

    scores: Mapping[str, float]
    gains: tuple[Gain, ...]
    positions: tuple[int, ...]
    clicks: int
    left_out: Mapping[str, int]
    queries: int
    effective_queries: float
    level: float
    trained_on: tuple[str, ...]
    clustered_by: str = QUERY
    unseen: Mapping[str, int] = field(default_factory=dict)

    @property
    def findings(self) -> list[str]:
        """What the differences say, a sentence for each model and each pair of models."""
        models = [name for name in self.scores if name not in (RATES, RECIPROCAL)]
        sentences = [
            f"{name} was fitted on these very clicks: its score is not a held-out one." for name in self.trained_on
        ]
        sentences += [
            f"{name} has no data on the contexts of {unseen:,} of these {count(self.clicks, 'click')}: there it is "
            "what its curve makes of other contexts."
            for name, unseen in self.unseen.items()
        ]
        for name in models:
            naive = [gain for gain in self.gains if gain.name == name and gain.over in (RATES, RECIPROCAL)]
            sentences.append(f"{name} {_join([_verdict(gain) for gain in naive])}.")
        sentences += [f"{gain.name} {_verdict(gain)}." for gain in self.gains if gain.over in models]
        if self.effective_queries < FEWEST:
            nouns = cluster_nouns(self.clustered_by)
            sentences.append(
                f"No intervals: {count(self.queries, *nouns)} with clicks, as good as "
                f"{self.effective_queries:.1f} of equal size; score a log with more {nouns[1]}."
            )
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON holds it."""
        gains = [asdict(gain) | {"found": gain.found} for gain in self.gains]
        return asdict(self) | {"gains": gains, "findings": self.findings}


def compare_models(
    models: Mapping[str, Propensities],
    interventions: Interventions,
    *,
    rates: Propensities | Counts | None = None,
    level: float = 0.95,
) -> ModelComparison:
    """Score models on the clicks of another log, against each other, naive click rates and, in a list, 1/k.

    Click rates measured on the clicks that they are to explain would have an unfair start. Unless they come from
    another log, the clicks and impressions of a query are therefore taken from the counts before that query is scored:
    p_k = (C_k − C_{q,k} + ½) / (N_k − N_{q,k} + 1).

    The difference D of two scores has the interval D ± t · se, with the jackknife over queries
    se² = (Q − 1) / Q Σ_q (D_(−q) − D)², and t the Student quantile for one degree of freedom less than there are
    effective queries. There is none with fewer than two effective queries. Where not queries cluster the interventions
    but, say, users, read users for queries here.

    Where contexts vary inside units (`unit="query"`), a unit's clicks are compared within each context, because a
    model does not tell how much a context clicks in general.

    Args:
        models: the models by name. Their anchors may differ: click shares do not depend on them.
        interventions: the harvest of the other log, with the context columns of all models.
        rates: where click rates come from: `baselines.click_rates` of the log that the models were fitted on; or
            clicks and impressions by position of the whole log that the interventions are of; by default those of the
            interventions.
        level: level of the intervals.

    Raises:
        InputError: context columns are missing, or counts are those of another log.
        NotIdentifiedError: no clicked unit stands at two positions that all models have an estimate for.

    Example:
        Twelve queries with a document each, shown equally often at positions 1 and 2, clicked 10 and 5 or 6 times.

        >>> from clickharvest.model.curves import make_curve
        >>> unit = np.repeat(np.arange(12), 2)
        >>> interventions = Interventions(
        ...     unit=unit, query=unit, position=np.tile([1, 2], 12), exposure=np.full(24, 20.0),
        ...     clicks=np.where(np.arange(24) % 2 == 0, 10, 5 + unit % 2), impressions=np.full(24, 20))
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> right, flat = (Propensities(curve, {"b": np.log([p])}, None, shown=(1, 2)) for p in (0.55, 1.0))
        >>> found = compare_models({"flat": flat, "right": right}, interventions)
        >>> {name: round(score, 4) for name, score in found.scores.items()}
        {'flat': -0.6931, 'right': -0.6504, 'click rates': -0.6506, '1/k': -0.6514}
        >>> print(*found.findings, sep="\\n")
        flat explains these clicks worse than click rates and worse than 1/k.
        right explains these clicks better than click rates; it cannot be told from 1/k.
        right explains these clicks better than flat.
    """
    _check(models, interventions, level)
    others = [rates] if isinstance(rates, Propensities) else []
    common = set.intersection(*(set(model.curve.positions) for model in (*models.values(), *others)))
    if isinstance(rates, Mapping):
        common &= set(rates)
    positions = tuple(sorted(common & set(np.unique(interventions.position).tolist())))
    rows = split_by_context(interventions, models)
    sample = scored_sample(rows, positions)
    log_p = {name: log_propensity(model, rows, positions) for name, model in models.items()}
    if isinstance(rates, Propensities):
        log_p[RATES] = log_propensity(rates, rows, positions)
    else:
        log_p[RATES] = _log_rates_of_others(sample, rates)
    naive = (RATES,) if interventions.places is not None else (RATES, RECIPROCAL)
    if RECIPROCAL in naive:
        log_p[RECIPROCAL] = -np.log(np.array(positions))[sample.position]
    likelihood, clicks = likelihood_by_query(sample, log_p)
    pairs = [(name, other) for name in models for other in naive]
    pairs += [(later, earlier) for earlier, later in combinations(models, 2)]
    here = np.isin(interventions.position, positions)
    fingerprints = fitted_fingerprints(interventions)
    return ModelComparison(
        scores={name: float(values.sum() / clicks.sum()) for name, values in likelihood.items()},
        gains=tuple(find_gain(one, other, likelihood[one] - likelihood[other], clicks, level) for one, other in pairs),
        positions=positions,
        clicks=int(clicks.sum()),
        left_out={
            "at positions without an estimate in every model": int(interventions.clicks[~here].sum()),
            "of units at one remaining position": int(interventions.clicks[here].sum() - clicks.sum()),
        },
        queries=len(clicks),
        effective_queries=effective(clicks),
        level=level,
        trained_on=tuple(name for name, model in models.items() if model.fit_info.data in fingerprints),
        clustered_by=sample.clustered_by,
        unseen={name: n for name, model in models.items() if (n := _unseen(model, rows, positions))},
    )


def _check(models: Mapping[str, Propensities], interventions: Interventions, level: float) -> None:
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level}; expected a number between 0 and 1, such as 0.95")
    if not models:
        raise InputError("no model to compare: give at least one")
    if taken := [name for name in (RATES, RECIPROCAL) if name in models]:
        raise InputError(f"a model is named {taken[0]!r}, as a naive answer is: give it another name")
    if other := [name for name, model in models.items() if model.places != interventions.places]:
        raise InputError(
            f"{other[0]} speaks of other places than the log: expected the same ones; fit and harvest both with the "
            "same --place columns, on logs that show the same places"
        )
    for name, model in models.items():
        needed = () if model.encoder is None else model.encoder.columns
        if missing := [column for column in needed if column not in interventions.contexts]:
            found = ", ".join(interventions.contexts) or "none"
            raise InputError(
                f"the interventions lack the context {name_columns(missing)} of {name}: found {found}; harvest "
                f"the log with --context {','.join(needed)}"
            )


def split_by_context(interventions: Interventions, models: Mapping[str, Propensities]) -> Interventions:
    """Return units that have one context each, as far as any of the models looks at contexts."""
    columns = {name for model in models.values() if model.encoder is not None for name in model.encoder.columns}
    if interventions.unit_kind != "query" or not columns:
        return interventions
    codes = [np.unique(interventions.contexts[name].astype(str), return_inverse=True)[1] for name in sorted(columns)]
    _, unit = np.unique(np.stack([interventions.unit, *codes]), axis=1, return_inverse=True)
    order = np.argsort(unit, kind="stable")
    return replace(replace(interventions, unit=unit).take(order), unit_kind="context")


def scored_sample(rows: Interventions, positions: tuple[int, ...]) -> Sample:
    """Return the rows that can be scored."""
    problem = "nothing to score: no clicked unit stands at two positions"
    if len(positions) < 2:
        common = f"that all models and the log have ({spell_positions(positions) or 'none'})"
        raise NotIdentifiedError(f"{problem} {common}; compare models of the same positions, or score a larger log")
    try:
        sample = make_sample(rows, positions)
    except InputError:
        sample = None
    if sample is None or not sample.clicks.any():
        raise NotIdentifiedError(f"{problem} among {spell_positions(positions)}; score a larger log")
    return sample


def log_propensity(model: Propensities, rows: Interventions, positions: tuple[int, ...]) -> Array:
    """Return log p_k(x) of every row that is scored, [n]."""
    sample = make_sample(rows, positions, model.encoder)
    columns = [model.curve.positions.index(k) for k in positions]
    log_p: Array = model.curve.relative(model.params, sample.x)[:, columns][sample.context, sample.position]
    return log_p


def _unseen(model: Propensities, rows: Interventions, positions: tuple[int, ...]) -> int:
    """Return how many clicks are in contexts that the data of a model do not speak of, at their position."""
    if model.encoder is None or model.support is None:
        return 0
    sample = make_sample(rows, positions, model.encoder)
    doubts = model.support.doubts(model.encoder, sample.x, model.shown, None)
    columns = [model.shown.index(k) for k in positions]
    supported = supported_by(doubts, (len(sample.x), len(model.shown)))[:, columns]
    return int(sample.clicks[~supported[sample.context, sample.position]].sum())


def _log_rates_of_others(sample: Sample, counts: Counts | None) -> Array:
    """Return the log click rate of every row's position without the clicks and displays of its own query, [n]."""
    cell = sample.query * len(sample.positions) + sample.position
    _, code = np.unique(cell, return_inverse=True)
    others = []
    for i, name in enumerate(("clicks", "impressions")):
        values = getattr(sample, name).astype(np.float64)
        total = np.bincount(sample.position, weights=values, minlength=len(sample.positions))
        if counts is not None:
            scored, total = total, np.array([counts[k][i] for k in sample.positions], dtype=np.float64)
            if np.any(total < scored):
                raise InputError(f"the counts have fewer {name} than the interventions: count the log they come from")
        others.append(total[sample.position] - np.bincount(code, weights=values)[code])
    rates: Array = np.log(others[0] + 0.5) - np.log(others[1] + 1.0)
    return rates


def likelihood_by_query(sample: Sample, log_p: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
    """Return Σ_u Σ_k C_{u,k} log π_{u,k} by name, of each query, or what else clusters, that has clicks, and these."""
    clicks: Array = np.bincount(sample.cluster, weights=sample.clicks).astype(np.float64)
    cells = cells_of(sample)
    return {name: cells.by_query(values[cells.rows])[clicks > 0] for name, values in log_p.items()}, clicks[clicks > 0]


def effective(clicks: Array) -> float:
    """Return (Σ n)² / Σ n², as how many parts of equal size parts of n clicks are good for."""
    return float(clicks.sum() ** 2 / (clicks**2).sum())


def find_gain(name: str, over: str, difference: Array, clicks: Array, level: float) -> Gain:
    """Return a difference per click with its interval, from those of the queries, [queries] each."""
    total, queries, equal = clicks.sum(), len(clicks), effective(clicks)
    per_click = float(difference.sum() / total)
    if equal < FEWEST:
        return Gain(name, over, per_click, None, None)
    without = (difference - per_click * clicks) / (total - clicks)
    se = np.sqrt((queries - 1) / queries * np.sum(without**2))
    margin = float(student.ppf((1 + level) / 2, equal - 1) * se)
    return Gain(name, over, per_click, per_click - margin, per_click + margin)


def _verdict(gain: Gain) -> str:
    if gain.found == "same":
        return f"explains these clicks exactly as {gain.over}"
    if gain.found == "unclear":
        return f"cannot be told from {gain.over}"
    return f"explains these clicks {gain.found} than {gain.over}"


def _join(verdicts: list[str]) -> str:
    """Return the verdicts of one model as one sentence; places have no 1/k, and one verdict."""
    if len(verdicts) == 1:
        return verdicts[0]
    first, second = verdicts
    start = "explains these clicks "
    if first.startswith(start) and second.startswith(start):
        return f"{first} and {second.removeprefix(start)}"
    if not first.startswith(start) and not second.startswith(start):
        return f"{first} or {second.removeprefix('cannot be told from ')}"
    return f"{first}; it {second}"
