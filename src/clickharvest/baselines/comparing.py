"""Estimators side by side on one log: their curves, intervals, and how well they explain held-out clicks.

Queries are dealt to folds. Every estimator is fitted to the whole log and again without each fold, which gives

- the held-out score: clicks of the fold's results, shared out by the curve that has not seen them
  (`estimation.comparison`), per click;
- intervals and differences, by the jackknife over folds: se² = (F − 1) / F Σ_f (θ_(−f) − mean)², with Student's
  quantile for one degree of freedom less than there are folds in effect, (Σ n_f)² / Σ n_f² for n_f clicks. Two
  estimators are fitted without the same queries, so that their difference θ has the interval of what they share, too.

The curve of a model with contexts is its mean log examination over the clicks' contexts.
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
    """What estimators are given: interventions; the cells of the log and features of its documents, where known."""

    interventions: Interventions
    cells: Cells | None = None
    features: Array | None = None
    anchor: int = 1

    @property
    def lacks(self) -> str:
        """What of a log is not there, for messages."""
        return "the log itself" if self.cells is None else "features of the documents"


@dataclass(frozen=True)
class Estimator:
    """An estimator by its name in tables, and what it makes of evidence that has the fields it needs."""

    label: str
    estimate: Callable[[EstimatorInput], Propensities]
    needs: tuple[str, ...] = ()


def _all_pairs(given: EstimatorInput) -> Propensities:
    contextual = bool(given.interventions.contexts)
    how: dict[str, Any] = {"objective": "allpairs", "anchor": given.anchor, "intervals": None}
    estimator = CPBM(curve="linear", penalty=1.0, **how) if contextual else PBM(**how)
    return estimator.fit(given.interventions).propensities_


def _clickshare(given: EstimatorInput) -> Propensities:
    contextual = bool(given.interventions.contexts)
    estimator = CPBM(curve="linear", anchor=given.anchor) if contextual else PBM(anchor=given.anchor)
    return estimator.fit(given.interventions).propensities_


ESTIMATORS: Registry[Estimator] = Registry("estimator")
"""Those that `compare_estimators` knows; with contexts, AllPairs and ClickShare have a curve linear in them."""
for _name, _estimator in {
    "ctr": Estimator("CTR", lambda given: click_rates(_known(given.cells), anchor=given.anchor), ("cells",)),
    "pivotone": Estimator("PivotOne", lambda given: pivot_one(given.interventions, anchor=given.anchor)),
    "adjacentchain": Estimator("AdjacentChain", lambda given: adjacent_chain(given.interventions, anchor=given.anchor)),
    "allpairs": Estimator("AllPairs", _all_pairs),
    "em": Estimator("EM", lambda given: em(_known(given.cells), anchor=given.anchor), ("cells",)),
    "regression-em": Estimator(
        "regression-EM",
        lambda given: regression_em(_known(given.cells), given.features, anchor=given.anchor),
        ("cells", "features"),
    ),
    "clickshare": Estimator("ClickShare", _clickshare),
}.items():
    ESTIMATORS.add(_name, _estimator)


@dataclass(frozen=True)
class EstimatorResult:
    """What one estimator says of a log.

    Attributes:
        label: its name in tables.
        model: what it found on the whole log.
        propensity: by position: estimate, lower and upper end of its interval, which are None where there is none.
        held_out: click-share likelihood per held-out click; None where folds have no estimate.
        differs_at: positions at which it differs beyond chance from the one of the best score, all of them together.
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
        estimates: what each says, by its name in `ESTIMATORS`.
        best: the one with the best held-out score; None where none has a score.
        gains: the best score less each other one's, with intervals by query.
        positions: positions at which any has an estimate.
        scored: positions at which all with a score have one in every fold: clicks elsewhere are not scored.
        clicks: clicks that were scored.
        harvested: clicks of all moved results.
        queries: queries with moved results.
        folds: number of folds.
        level: level of the intervals.
        left_out: why others were left out, by their labels.
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
        """Which differ beyond chance, and which explains held-out clicks best."""
        if self.best is None:
            return ["There is no held-out score, and nothing to tell differences from chance: log more queries."]
        best = self.estimates[self.best].label
        apart = {own.label: own.differs_at for own in self.estimates.values() if own.differs_at}
        first = f"No estimator differs from {best} beyond chance."
        if apart:
            name, k, ratio = max(
                (
                    (own.label, k, own.propensity[k][0] / self.estimates[self.best].propensity[k][0])
                    for own in self.estimates.values()
                    for k in own.differs_at
                ),
                key=lambda found: abs(np.log(found[2])),
            )
            verb = "differs" if len(apart) == 1 else "differ"
            most = f"{name} is {ratio:.2f} times as large at position {k}"
            first = f"{listed(list(apart))} {verb} from {best} beyond chance: {most}."
        close = [self.estimates[gain.over].label for gain in self.gains if gain.found in ("unclear", "same")]
        but = f" ({listed(close)} do no worse beyond chance)" if close else ""
        return [
            first,
            f"{best} explains held-out clicks best{but}; these are clicks of results that moved, and what biases all "
            "moves does not show in their score.",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON holds it."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("estimates", "gains")}
        return plain | {
            "left_out": dict(self.left_out),
            "estimators": {
                name: {
                    "label": own.label,
                    "propensity": {str(k): list(values) for k, values in own.propensity.items()},
                    "held_out": own.held_out,
                    "differs_at": list(own.differs_at),
                }
                for name, own in self.estimates.items()
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
    """Return what estimators of examination say of one log, and how well they explain clicks of queries kept aside.

    The interval of ClickShare without contexts is that of `PBM`; all others are by the jackknife over folds.

    Args:
        source: the log; or interventions, of which click rates and expectation-maximisation can say nothing.
        estimators: names from `ESTIMATORS`; None takes all.
        features: for regression-EM, a table with columns `query`, `doc` and the features.
        anchor: the position others are relative to.
        folds: folds, split by query; fewer where there are fewer queries.
        level: level of the intervals.
        seed: seed of the folds.
        progress: shows what is being done.
        max_position: leave out what was shown lower.
        units: how a log is harvested: `unit` and `design` of `harvest`.

    Raises:
        InputError: no such estimator, positions are places, or users cluster the interventions.
        NotIdentifiedError: no estimator has an estimate.

    Example:
        >>> from clickharvest.logs.reading import read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> log, truth = simulate_ab_log(pages=2_000)
        >>> found = compare_estimators(read_log(log), estimators=["ctr", "clickshare"])
        >>> found.best, found.estimates["ctr"].differs_at != ()
        ('clickshare', True)
    """
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level}; expected a number between 0 and 1, such as 0.95")
    if folds < 2:
        raise InputError(f"{folds} folds: expected 2 or more")
    wanted = {name: ESTIMATORS.find(name) for name in estimators or ESTIMATORS}
    needed = {need for own in wanted.values() for need in own.needs}
    given = _gather(source, features if "features" in needed else None, anchor, max_position, "cells" in needed, units)
    interventions = given.interventions
    if interventions.places is not None or interventions.cluster_kind != QUERY:
        what = "places" if interventions.places is not None else f"clicks clustered by {interventions.cluster_kind}"
        raise InputError(f"estimators are compared on a list of positions, by query, and the log has {what}")
    n_queries, fold, fold_of_cell = _deal(given, folds, seed)
    folds = min(folds, n_queries)
    warn_of_clicked_pages(interventions, "every estimator but ClickShare", stacklevel=3)
    curves: dict[str, Array] = {}
    models: dict[str, list[Propensities]] = {}
    left_out: dict[str, str] = {}
    positions = tuple(int(k) for k in np.unique(interventions.position))
    if given.cells is not None:
        positions = tuple(sorted({*positions, *given.cells.shown}))
    contexts = _contexts(interventions)
    with progress("Comparing estimators") as update, warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # the one on pages without a click was given above
        for i, (name, own) in enumerate(wanted.items()):
            if any(getattr(given, need) is None for need in own.needs):
                left_out[own.label] = f"needs {given.lacks}"
                continue
            fitted = []
            try:
                for f in range(-1, folds if folds > 1 else 0):
                    update((i + (f + 1) / (folds + 1)) / len(wanted), f"{own.label}")
                    part = given if f < 0 else _without(given, fold != f, fold_of_cell != f)
                    fitted.append(own.estimate(part))
            except NotIdentifiedError as error:
                if not fitted:
                    left_out[own.label] = first_line(error).rstrip(".")
                    continue
            models[name] = fitted
            curves[name] = np.stack([_curve(model, positions, *contexts) for model in fitted])
    if not models:
        raise NotIdentifiedError("no estimator has an estimate: " + "; ".join(map(" ".join, left_out.items())))
    whole = [name for name in models if len(models[name]) == folds + 1]
    clicks = np.bincount(fold, interventions.clicks, folds).astype(np.float64)
    scored = tuple(
        k for i, k in enumerate(positions) if whole and all(np.isfinite(curves[name][:, i]).all() for name in whole)
    )
    likelihood, per_query = _held_out({name: models[name][1:] for name in whole}, interventions, fold, scored)
    best = max(likelihood, key=lambda name: likelihood[name].sum()) if len(per_query) else None
    apart = (
        {name: _differences(curves[name], curves[best], clicks, level, len(whole)) for name in whole} if best else {}
    )
    return EstimatorComparison(
        estimates={
            name: EstimatorResult(
                label=wanted[name].label,
                model=models[name][0],
                propensity=_with_intervals(models[name][0], own, positions, clicks, level),
                held_out=float(likelihood[name].sum() / per_query.sum()) if best and name in likelihood else None,
                differs_at=tuple(k for k, differs in zip(positions, apart.get(name, ()), strict=False) if differs),
            )
            for name, own in curves.items()
        },
        best=best,
        gains=tuple(
            find_gain(best, name, likelihood[best] - likelihood[name], per_query, level)
            for name in whole
            if best is not None and name != best
        ),
        positions=tuple(k for i, k in enumerate(positions) if any(np.isfinite(own[0, i]) for own in curves.values())),
        scored=scored if best else (),
        clicks=int(per_query.sum()),
        harvested=int(interventions.clicks.sum()),
        queries=numbered(interventions.query)[0],
        folds=folds,
        level=level,
        left_out=left_out,
    )


def _known(cells: Cells | None) -> Cells:
    assert cells is not None, "an estimator that needs cells is not run without"
    return cells


def _gather(
    source: ClickLog | Interventions, features: Any, anchor: int, max_position: int | None, counted: bool, units: Any
) -> EstimatorInput:
    """Return the evidence of a log; of interventions, these alone."""
    if isinstance(source, Interventions):
        return EstimatorInput(source, anchor=anchor)
    from clickharvest.harvesting.collecting import harvest

    found = EstimatorInput(harvest(source, max_position=max_position, **units), anchor=anchor)
    if not counted or source.places is not None:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)
        cells = count_cells(source, max_position=max_position)
    described = None if features is None else read_features(source, features, max_position=max_position)
    return replace(found, cells=cells, features=described)


def _deal(given: EstimatorInput, folds: int, seed: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of queries, and the fold of every row of the interventions and of every cell."""
    asked = given.interventions.query
    if given.cells is None or given.cells.query is None:
        n_queries, code = numbered(asked)
    else:
        n_queries, code = numbered(np.concatenate([asked, given.cells.query]))
    fold = fold_weights(n_queries, min(folds, n_queries), seed).argmax(axis=0)[code]
    return n_queries, fold[: len(asked)], fold[len(asked) :]


def _without(given: EstimatorInput, rows: NDArray[np.bool_], cells: NDArray[np.bool_]) -> EstimatorInput:
    left = None if given.cells is None else given.cells.take(cells)
    return replace(given, interventions=given.interventions.take(rows), cells=left)


def _contexts(interventions: Interventions) -> tuple[Mapping[str, NDArray[Any]], Array]:
    """Return the contexts of clicked rows, and their clicks."""
    clicked = interventions.take(interventions.clicks > 0)
    return clicked.contexts, clicked.clicks.astype(np.float64)


def _curve(
    model: Propensities, positions: tuple[int, ...], contexts: Mapping[str, NDArray[Any]], weights: Array
) -> Array:
    """Return log p_k / p_anchor by position [K], its mean over contexts; nan where there is no estimate."""
    x = np.zeros((1, 0)) if model.encoder is None else model.encoder.transform(contexts)
    log_p = np.average(model.curve.relative(model.params, x), axis=0, weights=weights if len(x) > 1 else None)
    found = dict(zip(model.curve.positions, log_p, strict=True))
    return np.array([found.get(k, np.nan) for k in positions])


def _held_out(
    models: Mapping[str, list[Propensities]],
    interventions: Interventions,
    fold: NDArray[np.int64],
    scored: tuple[int, ...],
) -> tuple[dict[str, Array], Array]:
    """Return the held-out likelihood by name and query, and the queries' clicks, fold by fold."""
    parts, clicks = [], [np.empty(0)]
    if len(scored) > 1:
        for f in range(int(fold.max()) + 1):
            own = {name: fitted[f] for name, fitted in models.items()}
            rows = split_by_context(interventions.take(fold == f), own)
            try:
                sample = scored_sample(rows, scored)
            except NotIdentifiedError:
                continue
            found, asked = likelihood_by_query(
                sample, {name: log_propensity(model, rows, scored) for name, model in own.items()}
            )
            parts.append(found)
            clicks.append(asked)
    return {name: np.concatenate([part[name] for part in parts]) for name in models if parts}, np.concatenate(clicks)


def _margin(values: Array, clicks: Array, level: float) -> Array:
    """Return the half width by the jackknife of values without each fold, [F, K] → [K]."""
    folds, many = len(values), effective(clicks)
    if folds < 2 or many < FEWEST:
        return np.full(values.shape[1], np.nan)
    se = np.sqrt((folds - 1) / folds * np.sum((values - values.mean(axis=0)) ** 2, axis=0))
    margin: Array = student.ppf((1 + level) / 2, many - 1) * se
    return margin


def _differences(own: Array, best: Array, clicks: Array, level: float, estimators: int) -> NDArray[np.bool_]:
    """Return where two curves differ beyond chance, all positions and estimators together (Bonferroni), [K]."""
    difference = own - best
    compared = np.isfinite(difference[0]) & np.any(difference != 0, axis=0)
    each = 1 - (1 - level) / max(1, int(compared.sum()) * (estimators - 1))
    apart: NDArray[np.bool_] = compared & (np.abs(difference[0]) > _margin(difference[1:], clicks, each))
    return apart


def _with_intervals(
    model: Propensities, curve: Array, positions: tuple[int, ...], clicks: Array, level: float
) -> dict[int, tuple[float, float | None, float | None]]:
    """Return estimate and interval by position: the model's own interval where it has one curve and draws."""
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
