"""Estimators side by side on one log: their curves, intervals, and how well they explain held-out clicks.

Queries are split into folds. Every estimator is fitted to the whole log and again without each fold, which gives

- the held-out score: the click-share likelihood per click of the fold under the curve fitted without it
  (`estimation.comparison`);
- intervals and differences, by the jackknife over folds: se² = (F − 1) / F Σ_f (θ_(−f) − mean)², with the quantile of
  Student's t for one degree of freedom less than the effective number of folds, (Σ n_f)² / Σ n_f² for n_f clicks. The
  folds are the same for two estimators, so that their difference θ has a jackknife, too.

The curve of a model with contexts is its mean log examination over the contexts of the clicks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from clickharvest.baselines.cells import Cells, count_cells, read_features
from clickharvest.baselines.expectation import em, regression_em
from clickharvest.baselines.ratios import adjacent_chain, click_rates, pivot_one
from clickharvest.errors import ClickharvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation import CPBM, PBM
from clickharvest.estimation.comparison import (
    FEWEST,
    Gain,
    effective,
    find_gain,
    likelihood_by_query,
    log_propensity,
    scored_sample,
    split_by_context,
)
from clickharvest.estimation.selection import fold_weights
from clickharvest.harvesting.interventions import QUERY, Interventions, warn_of_clicked_pages
from clickharvest.harvesting.numbering import numbered
from clickharvest.model.propensities import Propensities
from clickharvest.progress import Progress, silent
from clickharvest.registry import Registry
from clickharvest.words import first_line, listed

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EstimatorInput:
    """The data of estimators: interventions; the cells of the log and features of its documents, where known."""

    interventions: Interventions
    cells: Cells | None = None
    features: Array | None = None
    anchor: int = 1

    def without(self, rows: NDArray[np.bool_], cells: NDArray[np.bool_]) -> EstimatorInput:
        """Return the data without some rows of the interventions, and without some cells."""
        kept = None if self.cells is None else self.cells.take(~cells)
        return replace(self, interventions=self.interventions.take(~rows), cells=kept)


@dataclass(frozen=True)
class Estimator:
    """An estimator: its name in tables, its function, and the optional data that it needs."""

    label: str
    estimate: Callable[[EstimatorInput], Propensities]
    needs: tuple[str, ...] = ()


def _all_pairs(data: EstimatorInput) -> Propensities:
    options: dict[str, Any] = {"objective": "allpairs", "anchor": data.anchor, "intervals": None}
    estimator = CPBM(curve="linear", penalty=1.0, **options) if data.interventions.contexts else PBM(**options)
    return estimator.fit(data.interventions).propensities_


def _clickshare(data: EstimatorInput) -> Propensities:
    contextual = bool(data.interventions.contexts)
    estimator = CPBM(curve="linear", anchor=data.anchor) if contextual else PBM(anchor=data.anchor)
    return estimator.fit(data.interventions).propensities_


def _cells(data: EstimatorInput) -> Cells:
    assert data.cells is not None, "an estimator that needs cells does not run without"
    return data.cells


ESTIMATORS: Registry[Estimator] = Registry("estimator")
"""The estimators of `compare_estimators`; with contexts, AllPairs and ClickShare have a curve linear in them."""
for _name, _estimator in {
    "ctr": Estimator("CTR", lambda data: click_rates(_cells(data), anchor=data.anchor), ("cells",)),
    "pivotone": Estimator("PivotOne", lambda data: pivot_one(data.interventions, anchor=data.anchor)),
    "adjacentchain": Estimator("AdjacentChain", lambda data: adjacent_chain(data.interventions, anchor=data.anchor)),
    "allpairs": Estimator("AllPairs", _all_pairs),
    "em": Estimator("EM", lambda data: em(_cells(data), anchor=data.anchor), ("cells",)),
    "regression-em": Estimator(
        "regression-EM",
        lambda data: regression_em(_cells(data), data.features, anchor=data.anchor),
        ("cells", "features"),
    ),
    "clickshare": Estimator("ClickShare", _clickshare),
}.items():
    ESTIMATORS.add(_name, _estimator)


@dataclass(frozen=True)
class EstimatorResult:
    """The result of one estimator.

    Attributes:
        label: its name in tables.
        model: its propensities on the whole log.
        propensity: estimate, lower and upper end of the interval by position; ends are None without an interval.
        held_out: click-share likelihood per held-out click; None where folds have no estimate.
        differs_at: positions at which it differs beyond chance from the estimator of the best score, tested jointly.
    """

    label: str
    model: Propensities
    propensity: Mapping[int, tuple[float, float | None, float | None]]
    held_out: float | None
    differs_at: tuple[int, ...]


@dataclass(frozen=True)
class EstimatorComparison:
    """Estimators side by side.

    Attributes:
        estimates: the results, by the name in `ESTIMATORS`.
        best: the estimator with the best held-out score; None without a score.
        gains: the best score less that of each other estimator, with intervals by query.
        positions: positions at which any estimator has an estimate.
        scored: positions at which every scored estimator has an estimate in every fold; only clicks there are scored.
        clicks: clicks that were scored.
        harvested: clicks of all moved results.
        queries: queries with moved results.
        folds: number of folds.
        level: level of the intervals.
        left_out: why estimators were left out, by their labels.
    """

    estimates: Mapping[str, EstimatorResult]
    best: str | None
    gains: tuple[Gain, ...]
    positions: tuple[int, ...]
    scored: tuple[int, ...]
    clicks: int
    harvested: int
    queries: int
    folds: int
    level: float
    left_out: Mapping[str, str]

    @property
    def findings(self) -> list[str]:
        """Which estimators differ beyond chance, and which explains held-out clicks best."""
        if self.best is None:
            return ["There is no held-out score, and nothing to tell differences from chance: log more queries."]
        best = self.estimates[self.best].label
        differing = [result for result in self.estimates.values() if result.differs_at]
        first = f"No estimator differs from {best} beyond chance."
        if differing:
            reference = self.estimates[self.best].propensity
            ratios = [
                (result.label, k, result.propensity[k][0] / reference[k][0])
                for result in differing
                for k in result.differs_at
            ]
            name, k, ratio = max(ratios, key=lambda one: abs(np.log(one[2])))
            verb = "differs" if len(differing) == 1 else "differ"
            labels = listed([result.label for result in differing])
            first = f"{labels} {verb} from {best} beyond chance: {name} is {ratio:.2f} times as large at position {k}."
        close = [self.estimates[gain.over].label for gain in self.gains if gain.found in ("unclear", "same")]
        but = f" ({listed(close)} do no worse beyond chance)" if close else ""
        return [
            first,
            f"{best} explains held-out clicks best{but}; these are clicks of results that moved, and what biases all "
            "moves does not show in their score.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON holds it."""
        names = [name for name in self.__dataclass_fields__ if name not in ("estimates", "gains")]
        return {name: getattr(self, name) for name in names} | {
            "left_out": dict(self.left_out),
            "estimators": {
                name: {
                    "label": result.label,
                    "propensity": {str(k): list(values) for k, values in result.propensity.items()},
                    "held_out": result.held_out,
                    "differs_at": list(result.differs_at),
                }
                for name, result in self.estimates.items()
            },
            "gains": [asdict(gain) | {"found": gain.found} for gain in self.gains],
            "findings": self.findings,
        }


def compare_estimators(
    source: ClickLog | Interventions,
    *,
    estimators: Sequence[str] | None = None,
    features: Any = None,
    anchor: int = 1,
    folds: int = 10,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress = silent,
    max_position: int | None = None,
    **units: Any,
) -> EstimatorComparison:
    """Return the results of several estimators on one log, and how well they explain clicks of held-out queries.

    The interval of ClickShare without contexts is that of `PBM`; all others are by the jackknife over folds.

    Args:
        source: the log; or interventions, from which click rates and expectation-maximisation cannot be computed.
        estimators: names from `ESTIMATORS`; None takes all.
        features: for regression-EM, a table with columns `query`, `doc` and the features.
        anchor: the position others are relative to.
        folds: folds, split by query; fewer where there are fewer queries.
        level: level of the intervals.
        seed: seed of the folds.
        progress: shows what is being done.
        max_position: leave out what was shown lower.
        units: the arguments `unit` and `design` of `harvest`.

    Raises:
        InputError: no such estimator, positions are places, or users cluster the interventions.
        NotIdentifiedError: no estimator has an estimate.

    Example:
        >>> from clickharvest.logs.reading import read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=2_000)
        >>> comparison = compare_estimators(read_log(log), estimators=["ctr", "clickshare"])
        >>> comparison.best, comparison.estimates["ctr"].differs_at != ()
        ('clickshare', True)
    """
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level}; expected a number between 0 and 1, such as 0.95")
    if folds < 2:
        raise InputError(f"{folds} folds: expected 2 or more")
    wanted = {name: ESTIMATORS.find(name) for name in estimators or ESTIMATORS}
    needed = {need for estimator in wanted.values() for need in estimator.needs}
    data = _gather(source, features if "features" in needed else None, anchor, max_position, "cells" in needed, units)
    interventions = data.interventions
    if interventions.places is not None or interventions.cluster_kind != QUERY:
        what = "places" if interventions.places is not None else f"clicks clustered by {interventions.cluster_kind}"
        raise InputError(f"estimators are compared on a list of positions, by query, and the log has {what}")
    n_queries, fold, fold_of_cell = _deal(data, folds, seed)
    folds = min(folds, n_queries)
    warn_of_clicked_pages(interventions, "every estimator but ClickShare", stacklevel=3)
    curves: dict[str, Array] = {}
    models: dict[str, list[Propensities]] = {}
    left_out: dict[str, str] = {}
    positions = tuple(int(k) for k in np.unique(interventions.position))
    if data.cells is not None:
        positions = tuple(sorted({*positions, *data.cells.shown}))
    clicked = interventions.take(interventions.clicks > 0)
    with progress("Comparing estimators") as update, warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # the one on pages without a click was given above
        for i, (name, estimator) in enumerate(wanted.items()):
            if any(getattr(data, need) is None for need in estimator.needs):
                lacking = "the log itself" if data.cells is None else "features of the documents"
                left_out[estimator.label] = f"needs {lacking}"
                continue
            fitted = []
            try:
                for f in range(-1, folds if folds > 1 else 0):
                    update((i + (f + 1) / (folds + 1)) / len(wanted), estimator.label)
                    part = data if f < 0 else data.without(fold == f, fold_of_cell == f)
                    fitted.append(estimator.estimate(part))
            except NotIdentifiedError as error:
                if not fitted:
                    left_out[estimator.label] = first_line(error).rstrip(".")
                    continue
            models[name] = fitted
            curves[name] = np.stack([_curve(model, positions, clicked) for model in fitted])
    if not models:
        raise NotIdentifiedError("no estimator has an estimate: " + "; ".join(map(" ".join, left_out.items())))
    whole = [name for name in models if len(models[name]) == folds + 1]
    clicks = np.bincount(fold, interventions.clicks, folds).astype(np.float64)
    scored = tuple(
        k for i, k in enumerate(positions) if whole and all(np.isfinite(curves[name][:, i]).all() for name in whole)
    )
    likelihood, per_query = _held_out({name: models[name][1:] for name in whole}, interventions, fold, scored)
    best = max(likelihood, key=lambda name: likelihood[name].sum()) if len(per_query) else None
    differing = (
        {name: _differences(curves[name], curves[best], clicks, level, len(whole)) for name in whole} if best else {}
    )
    return EstimatorComparison(
        estimates={
            name: EstimatorResult(
                label=wanted[name].label,
                model=models[name][0],
                propensity=_with_intervals(models[name][0], curve, positions, clicks, level),
                held_out=float(likelihood[name].sum() / per_query.sum()) if best and name in likelihood else None,
                differs_at=tuple(k for k, differs in zip(positions, differing.get(name, ()), strict=False) if differs),
            )
            for name, curve in curves.items()
        },
        best=best,
        gains=tuple(
            find_gain(best, name, likelihood[best] - likelihood[name], per_query, level)
            for name in whole
            if best is not None and name != best
        ),
        positions=tuple(
            k for i, k in enumerate(positions) if any(np.isfinite(curve[0, i]) for curve in curves.values())
        ),
        scored=scored if best else (),
        clicks=int(per_query.sum()),
        harvested=int(interventions.clicks.sum()),
        queries=numbered(interventions.query)[0],
        folds=folds,
        level=level,
        left_out=left_out,
    )


def _gather(
    source: ClickLog | Interventions, features: Any, anchor: int, max_position: int | None, counted: bool, units: Any
) -> EstimatorInput:
    """Return the data of a log, or interventions alone."""
    if isinstance(source, Interventions):
        return EstimatorInput(source, anchor=anchor)
    from clickharvest.harvesting.collecting import harvest

    data = EstimatorInput(harvest(source, max_position=max_position, **units), anchor=anchor)
    if not counted or source.places is not None:
        return data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)
        cells = count_cells(source, max_position=max_position)
    vectors = None if features is None else read_features(source, features, max_position=max_position)
    return replace(data, cells=cells, features=vectors)


def _deal(data: EstimatorInput, folds: int, seed: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of queries, and the fold of every row of the interventions and of every cell."""
    query = data.interventions.query
    if data.cells is None or data.cells.query is None:
        n_queries, code = numbered(query)
    else:
        n_queries, code = numbered(np.concatenate([query, data.cells.query]))
    fold = fold_weights(n_queries, min(folds, n_queries), seed).argmax(axis=0)[code]
    return n_queries, fold[: len(query)], fold[len(query) :]


def _curve(model: Propensities, positions: tuple[int, ...], clicked: Interventions) -> Array:
    """Return log p_k / p_anchor by position, [K], its mean over the clicks' contexts; nan without an estimate."""
    x = np.zeros((1, 0)) if model.encoder is None else model.encoder.transform(clicked.contexts)
    weights = clicked.clicks.astype(np.float64) if len(x) > 1 else None
    log_p = np.average(model.curve.relative(model.params, x), axis=0, weights=weights)
    at = dict(zip(model.curve.positions, log_p, strict=True))
    return np.array([at.get(k, np.nan) for k in positions])


def _held_out(
    models: Mapping[str, list[Propensities]],
    interventions: Interventions,
    fold: NDArray[np.int64],
    scored: tuple[int, ...],
) -> tuple[dict[str, Array], Array]:
    """Return the held-out likelihood by name and query, and the clicks of queries, fold by fold."""
    parts, clicks = [], [np.empty(0)]
    if len(scored) > 1:
        for f in range(int(fold.max()) + 1):
            of_fold = {name: fitted[f] for name, fitted in models.items()}
            rows = split_by_context(interventions.take(fold == f), of_fold)
            try:
                sample = scored_sample(rows, scored)
            except NotIdentifiedError:
                continue
            likelihood, n_clicks = likelihood_by_query(
                sample, {name: log_propensity(model, rows, scored) for name, model in of_fold.items()}
            )
            parts.append(likelihood)
            clicks.append(n_clicks)
    return {name: np.concatenate([part[name] for part in parts]) for name in models if parts}, np.concatenate(clicks)


def _margin(values: Array, clicks: Array, level: float) -> Array:
    """Return the half width of intervals by the jackknife, of values without each fold: [F, K] → [K]."""
    folds, effective_folds = len(values), effective(clicks)
    if folds < 2 or effective_folds < FEWEST:
        return np.full(values.shape[1], np.nan)
    se = np.sqrt((folds - 1) / folds * np.sum((values - values.mean(axis=0)) ** 2, axis=0))
    margin: Array = student.ppf((1 + level) / 2, effective_folds - 1) * se
    return margin


def _differences(curve: Array, best: Array, clicks: Array, level: float, estimators: int) -> NDArray[np.bool_]:
    """Return where two curves differ beyond chance, [K], over all positions and estimators (Bonferroni)."""
    difference = curve - best
    compared = np.isfinite(difference[0]) & np.any(difference != 0, axis=0)
    each = 1 - (1 - level) / max(1, int(compared.sum()) * (estimators - 1))
    differs: NDArray[np.bool_] = compared & (np.abs(difference[0]) > _margin(difference[1:], clicks, each))
    return differs


def _with_intervals(
    model: Propensities, curve: Array, positions: tuple[int, ...], clicks: Array, level: float
) -> dict[int, tuple[float, float | None, float | None]]:
    """Return estimate and interval by position; a model without contexts but with draws has its own intervals."""
    margin = _margin(curve[1:], clicks, level)
    lower, upper = (np.exp(curve[0] + sign * margin) for sign in (-1, 1))
    if model.encoder is None and model.draws is not None:
        predicted = model.predict(level=level)
        at = np.searchsorted(positions, predicted.positions)
        lower[:], upper[:] = np.nan, np.nan
        lower[at], upper[at] = predicted.lower[0], predicted.upper[0]
    rows = zip(positions, np.exp(curve[0]), lower, upper, strict=True)
    return {
        k: (float(p), float(low), float(high)) if np.isfinite(low + high) else (float(p), None, None)
        for k, p, low, high in rows
        if np.isfinite(p)
    }
