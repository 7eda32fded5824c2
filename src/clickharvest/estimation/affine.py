"""The estimator of affine clicks: slopes a_k and offsets b_k from harvested interventions.

The likelihood of `relevance_mixture`, started from `click_moments`, with error bars clustered by query.
"""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np

from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation.click_moments import estimate_moments
from clickharvest.estimation.devices import on_one_thread
from clickharvest.estimation.estimators import PBM
from clickharvest.estimation.fitting import FEWEST
from clickharvest.estimation.relevance_mixture import Mixture
from clickharvest.estimation.sample import supported_positions
from clickharvest.estimation.unit_counts import UnitCounts, count_units
from clickharvest.harvesting.clicked_pages import warn_of_clicked_pages
from clickharvest.harvesting.interventions import QUERY, Interventions
from clickharvest.model.affine import LARGEST, AffineModel, Array
from clickharvest.model.fingerprint import data_fingerprint
from clickharvest.model.provenance import record_provenance
from clickharvest.parameters import Parameterised
from clickharvest.progress import Progress, silent
from clickharvest.words import count, name_columns

VARIES = 2.0
"""Standard errors by which units must differ beyond chance: otherwise there is no relevance to learn a slope from."""
LEAST_SPREAD = 1e-3
"""Standard deviation of the click rate at the anchor between units, below which it is the same."""


class AffineClicks(Parameterised):
    """Affine clicks, E[C | u, k] = a_k c_u + b_k: examination, and trust in what stands high.

    c_u is the click rate of a unit at the anchor. The interventions must hold the units without a click, as `harvest`
    leaves them by default, and no context: `click_models.CLICK_MODELS["affine"]` fits one of these for each level.

    Args:
        anchor: the position whose clicks are the unit.
        intervals: whether to make error bars, clustered by query.
        progress: shows what is being done, see `clickharvest.progress`; nothing by default.

    Attributes:
        affine_: the fitted model.

    Example:
        Trust, and no relevance, brings a tenth of the displays at position 1 a click: c_2 = (c_1 − .1) / 2.

        >>> random, relevance = np.random.default_rng(0), np.linspace(0.1, 0.8, 300)
        >>> shown = np.full((300, 2), 400)
        >>> clicks = random.binomial(shown, np.column_stack([0.1 + relevance, relevance / 2]))
        >>> unit = np.repeat(np.arange(300), 2)
        >>> model = AffineClicks().fit(Interventions(
        ...     unit=unit, query=unit // 3, position=np.tile([1, 2], 300), exposure=np.full(600, 400.0),
        ...     clicks=clicks.ravel(), impressions=shown.ravel())).affine_
        >>> model.slope.round(1).tolist(), model.offset.round(2).tolist()
        ([1.0, 0.5], [0.0, -0.05])
    """

    def __init__(self, *, anchor: int = 1, intervals: bool = True, progress: Progress = silent) -> None:
        self.anchor, self.intervals, self.progress = anchor, intervals, progress

    affine_: AffineModel

    @on_one_thread
    def fit(self, interventions: Interventions, y: None = None) -> Self:
        """Fit to interventions.

        Raises:
            InputError: they have context columns, places instead of positions, or clusters other than queries.
            NotIdentifiedError: no position is linked to the anchor, or relevance does not vary enough to tell.
        """
        if interventions.contexts:
            raise InputError(
                f"AffineClicks fits one slope and offset a position, found the context "
                f"{name_columns(list(interventions.contexts))}: call CLICK_MODELS['affine']().fit(interventions) of "
                "clickharvest.click_models, which gives contexts their own, or harvest without context"
            )
        if interventions.places is not None:
            raise InputError(
                f"the model affine knows positions of a list, found places by "
                f"{', '.join(interventions.places.columns)}: fit --model examination, or leave --place out"
            )
        if interventions.cluster_kind != QUERY:
            raise InputError(
                f"clicks are clustered by {interventions.cluster_kind}: error bars of the model affine are by query; "
                "leave --cluster out"
            )
        warn_of_clicked_pages(interventions, "the model affine", stacklevel=4)
        counts = count_units(interventions, supported_positions(interventions, self.anchor))
        _require_variation(counts)
        mixture = Mixture(counts, self.anchor)
        with self.progress("Fitting") as update:
            begin = estimate_moments(counts, self.anchor, self._examination(interventions, counts.positions))
            found = mixture.fit(mixture.start(*begin), update)
        if not found.status.good:
            warnings.warn(f"AffineClicks: the fit {found.status}", ConvergenceWarning, stacklevel=3)
        if mixture.relevance_spread(found.theta) < LEAST_SPREAD:
            raise NotIdentifiedError(_alike(counts))
        a, b = mixture.affine(found.theta)
        covariance, rests_on = self._covariance(mixture, found.theta)
        rates = counts.rates()
        model = AffineModel(
            anchor=self.anchor,
            positions=counts.positions,
            slope=np.clip(a, -LARGEST, LARGEST),
            offset=np.clip(b, -LARGEST, LARGEST),
            covariance=covariance,
            shown=tuple(int(k) for k in np.unique(interventions.position)),
            info={
                "estimator": type(self).__name__,
                "status": str(found.status),
                "log_likelihood": found.log_likelihood,
                "units": len(counts),
                "clicks": int(counts.clicks.sum()),
                "queries": counts.n_queries,
                "effective_queries": rests_on,
                "anchor_rate": float(rates[counts.positions.index(self.anchor)]),
                "relevance_spread": mixture.relevance_spread(found.theta),
                "data": data_fingerprint(interventions),
            },
            provenance=record_provenance(type(self).__name__, {"anchor": self.anchor, "intervals": self.intervals}),
        )
        if np.count_nonzero(model.predict().supported) < 2:
            raise NotIdentifiedError(
                f"what was shown at position {self.anchor} does not differ enough in relevance: slopes relative to it "
                "span a factor of ten or more; try another --anchor, or fit --model examination"
            )
        self.affine_ = model
        return self

    def _examination(self, interventions: Interventions, positions: tuple[int, ...]) -> Array:
        """Return the propensities of some positions where nobody trusts any, [K]."""
        found = PBM(anchor=self.anchor, intervals=None).fit(interventions).predict()
        propensity: Array = found.propensity[0, np.isin(found.positions, positions)]
        return propensity

    def _covariance(self, mixture: Mixture, theta: Array) -> tuple[Array | None, float | None]:
        if not self.intervals:
            return None, None
        if mixture.n_queries < FEWEST:
            told = count(mixture.n_queries, "query", "queries")
            warnings.warn(
                f"error bars are by query, and there is {told}: there are none to give with fewer than {FEWEST}",
                HarvestWarning,
                stacklevel=4,
            )
            return None, None
        with self.progress("Error bars") as update:
            covariance, rests_on = mixture.covariance(theta, update)
        return np.clip(covariance, -LARGEST, LARGEST), rests_on


def _require_variation(counts: UnitCounts) -> None:
    if len(counts) < 2 or counts.variation() < VARIES:
        raise NotIdentifiedError(_alike(counts))


def _alike(counts: UnitCounts) -> str:
    return (
        f"relevance does not vary enough: the {count(len(counts), 'unit')} shown at two positions or more differ in "
        "clicks no more than by chance, so that nothing tells trust from examination; fit --model examination, or "
        "harvest more queries"
    )
