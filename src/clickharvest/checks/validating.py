"""Validation: does the curve of ordinary pages agree with an experiment on the same results page?

Both are compared position by position and as one power, see `experiment_curve`. They rest on different pages, so that
their errors count as independent; with a swap they share the pages that were left as they were, and intervals are a
little too wide.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.checking import check_fit, displays_of
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.experiment_curve import CurveEstimate, Experiment
from clickharvest.checks.finding import NORMAL
from clickharvest.checks.log_rows import read_displays
from clickharvest.errors import ClickharvestWarning, InputError, NotIdentifiedError
from clickharvest.harvesting.collecting import harvest
from clickharvest.harvesting.designs import Swap
from clickharvest.logs.click_log import require_log
from clickharvest.logs.parts import Parts, keep_pages_with, split_log
from clickharvest.logs.reading import NO_QUERY
from clickharvest.model.budget import HOPELESS, Budget, budget_of, percent
from clickharvest.parameters import MOST_CLICKS, TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from clickharvest.harvesting.interventions import Interventions, UnitKind
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]

LEVEL = 0.05
"""p-value below which two curves differ."""
DEEPEST = 10
"""Position at which the difference of two powers is written as a ratio, where pages are that long."""
ORIGINAL = "_clickharvest_original"
"""Context column of the rank before a swap."""
LEAST_RATIO = 1e-3
"""Ratio below which a difference is as good as infinite."""
MOST_ORDER = 0.25
"""Share of the order that may be the same on all pages of an experiment; larger, and pages in fixed order pass."""


@dataclass(frozen=True, eq=False)
class Validation:
    """A model beside an experiment.

    Attributes:
        positions: the K positions that are compared.
        anchor: the position that propensities are relative to.
        harvested: the curve that the experiment would have shown if the model were true.
        random: the curve that it has shown.
        rates: click rates of ordinary pages.
        what: how the experiment's pages are called.
        budget: the model's budget, if it has one.
        sampled: how the two kinds of pages were sampled differently; empty where nothing was found.
        within_results: of pages in random order, the power from results seen at several positions, and its interval.
        same_order: how much of a result's position is the same on all of them, from 0 to 1; 0 if that may be chance.
        parts: the two parts of the log, None where a swap divides them.
        model: the model.
        pooled: the model of ordinary and random pages together, where it was asked for.
        pooled_curve: its curve, likewise.
    """

    positions: tuple[int, ...]
    anchor: int
    harvested: CurveEstimate
    random: CurveEstimate
    rates: CurveEstimate
    what: str
    budget: Budget | None
    sampled: str = ""
    within_results: tuple[float, float, float] | None = None
    same_order: float = 0.0
    parts: Parts | None = None
    model: Propensities | None = None
    pooled: Propensities | None = None
    pooled_curve: CurveEstimate | None = None

    @property
    def comparable(self) -> bool:
        """Whether no difference in sampling was found, and the order of the random pages is random."""
        return self.same_order <= MOST_ORDER and (self.parts is None or not self.parts.outcome)

    @property
    def others(self) -> list[int]:
        """Indices of the positions other than the anchor."""
        return [i for i, k in enumerate(self.positions) if k != self.anchor]

    @property
    def difference(self) -> tuple[Array, Array]:
        """Harvested less random log p by position, and its standard error, [K]."""
        errors = np.hypot(self.harvested.error, self.random.error)
        return self.harvested.log_p - self.random.log_p, errors

    @property
    def power_difference(self) -> tuple[float, float]:
        """Harvested less random power, and its standard error; NaN for places of a grid."""
        error = np.hypot(self.harvested.power_error, self.random.power_error)
        return self.harvested.power - self.random.power, float(error)

    @property
    def chances(self) -> tuple[float, float]:
        """Probability of a difference as large by chance, of the powers and of one of the positions."""
        by_position = _by_chance(*(part[self.others] for part in self.difference))
        power, error = self.power_difference
        return _by_chance(np.array([power]), np.array([error])) if np.isfinite(power) else 1.0, by_position

    @property
    def p(self) -> float:
        """Probability of a difference as large by chance: twice the smaller of both (Bonferroni)."""
        return min(1.0, 2 * min(self.chances))

    @property
    def differs_by_position(self) -> bool:
        """Whether some position differs by more than chance, and more clearly than the powers."""
        by_power, by_position = self.chances
        return by_position < by_power and self.p < LEVEL

    @property
    def deepest(self) -> int:
        """Index of the position at which both are compared in words.

        It is 10, or the last one above it; the one that differs most, where positions differ and powers do not.
        """
        if self.differs_by_position:
            apart, error = self.difference
            return max(self.others, key=(np.abs(apart) / np.maximum(error, 1e-12)).__getitem__)
        return max((i for i in self.others if self.positions[i] <= DEEPEST), default=self.others[0])

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Harvested over random propensity at that position, and the ends of its 95 % interval.

        By their powers, which tell more than one position; by position for places, and where positions alone differ.
        """
        apart, error = self.power_difference
        distance = -np.log(self.positions[self.deepest] / self.anchor)
        log_ratio, error = distance * apart, abs(distance) * error
        if not np.isfinite(log_ratio) or self.differs_by_position:
            log_ratio, error = (float(part[self.deepest]) for part in self.difference)
        estimate, lower, upper = (float(np.exp(log_ratio + z * NORMAL * error)) for z in (0, -1, 1))
        return estimate, lower, upper

    @property
    def hidden(self) -> float:
        """The largest difference that chance may hide, as a fraction."""
        return max(self.ratio[2], 1 / max(self.ratio[1], LEAST_RATIO)) - 1

    @property
    def agrees(self) -> bool | None:
        """Whether both agree within chance; None where clicks are too few or pages cannot be compared."""
        if not self.comparable:
            return None
        if self.p < LEVEL:
            return False
        return True if self.hidden <= HOPELESS else None

    @property
    def outside(self) -> dict[int, tuple[float, float]]:
        """Positions at which the random pages leave the budget by more than chance: the budget's bound, and theirs."""
        outside: dict[int, tuple[float, float]] = {}
        if self.budget is None:
            return outside
        bar = NormalDist().inv_cdf(1 - LEVEL / 2 / max(len(self.others), 1))
        for k, up, down in zip(self.budget.positions, self.budget.up, self.budget.down, strict=True):
            if k not in self.positions or k == self.anchor:
                continue
            i = self.positions.index(k)
            away, error = self.random.log_p[i] - self.harvested.log_p[i], self.random.error[i]
            bound = np.log1p(up) if away > 0 else np.log1p(-min(down, 1 - 1e-9))
            if abs(away) - abs(bound) > bar * error:
                outside[k] = float(np.expm1(bound)), float(np.expm1(away))
        return outside

    @property
    def held(self) -> bool | None:
        """Whether the budget held; None where there is none, it bounds nothing, or there is nothing to compare."""
        if self.budget is None or not np.isfinite(self.budget.off) or not self.comparable:
            return None
        return not self.outside

    def __str__(self) -> str:
        """Return the sentences."""
        return "\n".join(self.sentences())

    def sentences(self) -> list[str]:
        """Return whether both agree, what could hide, whether the budget held, and what pooling gains."""
        sentences = [self._verdict(), *self._of_budget()]
        if self.comparable and self.sampled:
            sentences.append(f"! Sampled differently: {self.sampled}.")
        if 0 < self.same_order <= MOST_ORDER:
            sentences.append(
                f"! The order is not random throughout: {100 * self.same_order:.0f} % of where a result stands on the "
                f"{self.what} is the same on all of them."
            )
        if self.pooled_curve is not None and self.harvested.error.any() and self.pooled_curve.error.any():
            how = f"{percent(1 - self.gain)} smaller than" if self.gain < 1 else "no smaller than"
            sentences.append(f"Pooled, standard errors are {how} from ordinary pages alone.")
        return sentences

    def _verdict(self) -> str:
        ratio, lower, upper = self.ratio
        how = "as one power of the rank, " if np.isfinite(self.harvested.power) and self.agrees is not False else ""
        ratio_at = (
            f"{how}at position {self.positions[self.deepest]} the model's propensity is {ratio:.2f} times that of the "
            f"{self.what} ({lower:.2f} to {upper:.2f})"
        )
        if self.same_order > MOST_ORDER:
            return (
                f"Cannot be compared: the order of the pages named is not random, {100 * self.same_order:.0f} % of "
                "where a result stands is the same on all of them. Name the pages whose order chance has drawn."
            )
        if not self.comparable:
            return f"Cannot be compared: {self.sampled}. Compare pages of one kind."
        if self.agrees is False:
            return f"They differ by more than chance (p = {self.p:.2g}): {ratio_at}."
        if self.agrees is None:
            return f"Too few clicks to tell: {ratio_at}, so that more than a factor of two could hide."
        could_hide = f"a difference of {percent(self.hidden)} could hide"
        return f"They agree within chance (p = {self.p:.2g}): {ratio_at}; {could_hide}."

    def _of_budget(self) -> list[str]:
        if self.budget is None or not self.comparable:
            return []
        promise = f"The budget had said {str(self.budget).partition(', mostly')[0]}."
        if not np.isfinite(self.budget.off):
            return [promise]
        tested = sum(self.positions[i] in self.budget.positions for i in self.others)
        if not self.outside:
            return [f"{promise} It held at all {tested} positions."]
        k, (bound, away) = max(self.outside.items(), key=lambda position: abs(np.log1p(position[1][1])))
        return [
            f"{promise} It did not hold at {len(self.outside)} of {tested} positions: at position {k} the "
            f"{self.what} are {100 * away:+.0f} % away, where it allowed {100 * bound:+.0f} %."
        ]

    @property
    def gain(self) -> float:
        """Standard errors of log p of the pooled model as a share of the ordinary pages', in the median."""
        assert self.pooled_curve is not None
        others = self.others
        return float(np.median(self.pooled_curve.error[others] / np.maximum(self.harvested.error[others], 1e-9)))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""

        def plain(values: Sequence[float]) -> list[float | None]:
            return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]

        curves = {"harvested": self.harvested, "random": self.random, "rates": self.rates}
        bounds: dict[int, Array] = {}
        if self.budget is not None:
            sides = np.array([1 - np.array(self.budget.down), 1 + np.array(self.budget.up)]).T
            bounds = dict(zip(self.budget.positions, sides, strict=True))
        rows, outside, held = [], self.outside, self.held
        for i in self.others:
            k, share = self.positions[i], np.exp(self.harvested.log_p[i])
            row: dict[str, Any] = {"position": k}
            row |= {name: plain(curve.interval(i)) for name, curve in curves.items()}
            row["budget"] = plain(share * bounds[k]) if k in bounds else None
            row["held"] = None if k not in bounds or held is None else k not in outside
            rows.append(row)
        return {
            "agrees": self.agrees,
            "p": plain([self.p])[0],
            "power": {name: plain(curve.power_interval) for name, curve in curves.items()}
            | {"within_results": None if self.within_results is None else plain(self.within_results)},
            "anchor": self.anchor,
            "positions": rows,
            "ratio": {"position": self.positions[self.deepest], "harvested_to_random": plain(self.ratio)},
            "could_hide": plain([self.hidden])[0],
            "budget": None if self.budget is None else self.budget.to_dict(),
            "budget_held": self.held,
            "sampled_differently": self.sampled,
            "pooled_standard_error": None if self.pooled_curve is None else plain([self.gain])[0],
            "sentences": self.sentences(),
        }


def validate(
    log: ClickLog,
    model: Propensities | None = None,
    *,
    random: Mapping[str, str] | None = None,
    swap: Swap | None = None,
    pages_with: str | None = None,
    unit: UnitKind = "context",
    max_position: int | None = None,
    cluster: str | None = None,
    anchor: int = 1,
    tolerance: float = TOLERANCE,
    positions: Collection[int] = (),
    folds: Sequence[int] = (),
    pool: bool = False,
    estimate: Callable[[Interventions], Propensities] | None = None,
) -> Validation:
    """Hold the curve of ordinary pages against pages in random order, or against a swap experiment, of the same log.

    Args:
        log: the log.
        model: what to hold against the experiment; by default the curve of the ordinary pages, as `CPBM` or `PBM` fits
            it. Numbers of any origin: `load_curve`.
        random: the column and value of rows in random order, such as `{"ranker": "random"}`; by default what the log
            was read with.
        swap: instead, the design of a swap experiment.
        pages_with: keep pages of which a row has 1 in this column, such as `"booked"`, where the two kinds of pages
            were sampled by it.
        unit: as in `harvest`.
        max_position: leave out what was shown lower.
        cluster: as in `harvest`; by default the query, or the document where results are shown for no query.
        anchor: the position others are relative to.
        tolerance: how far off a usable curve may be, as a fraction.
        positions: positions that the budget is asked for.
        folds: positions at which the page changes.
        pool: also fit ordinary and random pages together, unless they differ.
        estimate: from interventions to a model.

    Raises:
        InputError: neither random pages nor a swap are named, or a part of the log has no clicks.
        NotIdentifiedError: the ordinary pages reveal nothing, or nothing can be compared.
    """
    require_log(log)
    estimate = estimate or default_estimate(anchor)
    cluster = cluster or ("doc" if log.roles["query"] == NO_QUERY else "query")
    options: dict[str, Any] = {"unit": unit, "max_position": max_position, "cluster": cluster}
    wanted = {"unit": unit, "tolerance": tolerance, "positions": positions, "folds": folds}
    parts = None
    if swap is None:
        parts = split_log(log, random, pages_with)
        log, ordinary = parts.whole, parts.ordinary
    else:
        log, ordinary = _swapped(log, swap, random, pages_with)
    if model is None:
        model = _fitted(ordinary, estimate, options, wanted)
    if parts is not None:
        experiment = _of_random(parts.random, unit, model)
    else:
        assert swap is not None
        experiment = _of_swap(log, swap, options, model)
    displays = read_displays(ordinary, unit)
    shown = Evidence(displays.take(np.isin(displays.position, experiment.evidence.displays.position)), model)
    random_order = parts is not None and model.places is None
    validation = Validation(
        positions=tuple(experiment.positions.tolist()),
        anchor=model.curve.anchor,
        harvested=experiment.of_model(model),
        random=experiment.curve(),
        rates=Experiment(shown, np.zeros(len(shown.displays), dtype=np.int64), experiment.positions).curve(),
        what="swapped pages" if parts is None else "random pages",
        budget=budget_of(model),
        sampled="" if parts is None else parts.sampled,
        within_results=experiment.within_results() if random_order else None,
        same_order=experiment.order() if random_order else 0.0,
        parts=parts,
        model=model,
    )
    if pool and validation.agrees is not False and validation.comparable:
        pooled = _fitted(log, estimate, options | {"design": swap}, wanted)
        validation = replace(validation, pooled=pooled, pooled_curve=experiment.of_model(pooled))
    return validation


def default_estimate(anchor: int = 1) -> Callable[[Interventions], Propensities]:
    """Return what fits the curve of interventions: `CPBM` where there is context, `PBM` where there is none."""
    from clickharvest.estimation.estimators import CPBM, PBM

    def estimate(interventions: Interventions) -> Propensities:
        model = CPBM(anchor=anchor) if interventions.contexts else PBM(anchor=anchor)
        return model.fit(interventions).propensities_

    return estimate


def _by_chance(difference: Array, error: Array) -> float:
    """Return the probability of one of some differences as large by chance (Bonferroni)."""
    z = np.abs(difference) / np.maximum(error, 1e-12)
    return min(1.0, len(z) * 2 * NormalDist().cdf(-float(z.max(initial=0.0))))


def _fitted(
    log: ClickLog, estimate: Callable[[Interventions], Propensities], options: dict[str, Any], wanted: dict[str, Any]
) -> Propensities:
    """Return the model of a log, with a budget."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # checks find the same
        try:
            interventions = harvest(log, **options, clicked_only=True, max_clicks=MOST_CLICKS)
        except NotIdentifiedError as error:
            raise NotIdentifiedError(f"there is no curve to validate: {error}") from None
        model = estimate(interventions)
        checked = check_fit(log, model, **wanted, interventions=interventions)
    return replace(model, info=dict(model.info) | checked.info())


def _of_random(log: ClickLog, unit: UnitKind, model: Propensities) -> Experiment:
    """Return the pages in random order; without pages, a stratum is a query."""
    evidence = Evidence(read_displays(log, unit), model)
    d = evidence.displays
    return Experiment(evidence, d.query if d.page is None else d.page, what="random pages")


def _of_swap(log: ClickLog, swap: Swap, options: dict[str, Any], model: Propensities) -> Experiment:
    """Return the swap: each result, at the rank that its ranker gave it, before and after."""
    ranked = replace(log, context=(*log.context, ORIGINAL), columns=log.columns | {ORIGINAL: log.columns["original"]})
    designed = harvest(ranked, **options | {"unit": "context"}, design=swap, clicked_only=True, max_clicks=MOST_CLICKS)
    displays = displays_of(designed)
    drawn = [rank for rank, probability in swap.probabilities.items() if probability > 0]
    evidence = Evidence(displays.take(np.isin(displays.position, [swap.pivot, *drawn])), model)
    d = evidence.displays
    return Experiment(evidence, d.unit, what="swapped pages")


def _swapped(
    log: ClickLog, swap: Swap, random: Mapping[str, str] | None, pages_with: str | None
) -> tuple[ClickLog, ClickLog]:
    """Return the log of a swap experiment, and its rows that stand where their ranker had put them."""
    if random is not None:
        raise InputError("pages in random order and a swap are two experiments: give random or swap")
    if not log.has("original"):
        raise InputError("a swap is compared by where results stood before it: name that column, original")
    log = keep_pages_with(log.parsed(also=[pages_with] if pages_with else []), pages_with)
    return log, replace(log, source=log.source.filter(log.columns["position"] == log.columns["original"]))
