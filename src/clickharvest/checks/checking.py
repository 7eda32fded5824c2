"""Checking a fit: from a log, or its interventions, and a fitted model to findings and the error budget.

With e the effect of a source on log p and σ its standard error, the truth may lie above the estimate by as much as

    U = √ Σ max(0, e + 1.96 σ)²,

in the kind of context where that is largest; below it likewise, with −e. What no column of the log can test is an
assumption: the budget lists it and does not count it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import CHECKS, NORMAL, Finding
from clickharvest.checks.log_rows import Displays, read_displays
from clickharvest.harvesting.interventions import Interventions, UnitKind
from clickharvest.harvesting.numbering import numbered
from clickharvest.model.budget import BUDGET, NOISE, Budget
from clickharvest.parameters import TOLERANCE

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

Array = NDArray[np.float64]

FINDINGS = "findings"
"""Where a model's `info` keeps them."""
UNBOUNDED = float(np.log(1e6))
"""An error of log p that is as good as infinite."""
MOST_CONTEXTS = 500
"""Contexts, of evenly spaced rows, whose intervals give the noise where contexts are many; more take longer."""
WIDE = 0.9
"""Where contexts are many, the share of them whose intervals are no wider than the noise that counts."""


@dataclass(frozen=True)
class Checked:
    """What checking a fit has found.

    Attributes:
        findings: the answer of every check.
        budget: how far off the curve can be.
    """

    findings: tuple[Finding, ...]
    budget: Budget

    def info(self) -> dict[str, Any]:
        """Return what a model keeps of it."""
        return {BUDGET: self.budget.to_dict(), FINDINGS: [finding.to_dict() for finding in self.findings]}


def check_fit(
    source: ClickLog | Interventions | Displays,
    model: Propensities,
    *,
    unit: UnitKind = "context",
    positions: Collection[int] = (),
    folds: Sequence[int] = (),
    tolerance: float = TOLERANCE,
    seed: int = 0,
    further: Sequence[Finding] = (),
    interventions: Interventions | None = None,
) -> Checked:
    """Check a fitted model against the log that it was fitted on.

    Args:
        source: the log; interventions leave most questions open.
        model: the fitted model of examination.
        unit: as in `harvest`: whether contexts vary inside a unit of the log.
        positions: positions that are asked for; all that have an estimate without.
        folds: positions at which the page changes, such as the first below the fold of the screen.
        tolerance: how far off a usable curve may be, as a fraction.
        seed: seed of the split of users into halves.
        further: findings of other tests, such as those of a design.
        interventions: what the model was fitted on, for a plan of how much more data is needed.

    Example:
        >>> from clickharvest import CPBM, harvest, read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> shown, _ = simulate_ab_log(pages=20_000, seed=1)
        >>> log = read_log(shown, context=["device"])
        >>> checked = check_fit(log, CPBM().fit(harvest(log)).propensities_)
        >>> sorted(checked.budget.untested)
        ['clicks above', 'crowd', 'time']
    """
    if isinstance(source, Interventions):
        interventions = source if interventions is None else interventions
        displays = displays_of(source)
    else:
        displays = source if isinstance(source, Displays) else read_displays(source, unit)
    evidence = Evidence(displays, model, folds=folds, seed=seed)
    answers = [with_power(check.run(evidence), tolerance) for check in CHECKS.values()]
    findings = one_model((*further, *answers))
    budget = make_budget(evidence, findings, positions=positions, tolerance=tolerance, interventions=interventions)
    return Checked(findings, budget)


def with_power(finding: Finding, tolerance: float) -> Finding:
    """Return a finding that is not ok where its test could not have seen an effect as large as the tolerance."""
    if finding.severity != "ok" or finding.standard_error is None or finding.kind not in CHECKS:
        return finding
    if NORMAL * finding.standard_error.max(initial=0.0) <= np.log1p(tolerance):
        return finding
    sentence = (
        f"Clicks are too few to tell whether {CHECKS[finding.kind].assumption}; the budget counts what they may hide."
    )
    return replace(finding, severity="untested", sentence=sentence)


def one_model(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings of which only the first names another click model: users who stop look like trust, too."""
    naming = [finding for finding in findings if "--model " in finding.advice]
    return tuple(replace(finding, advice="") if finding in naming[1:] else finding for finding in findings)


def other_model(findings: Sequence[Finding]) -> str | None:
    """Return the click model that findings name, in the command of their advice; None without.

    Example:
        >>> other_model([Finding("relevance", "warning", "", "clickharvest fit LOG --model affine -o m.safetensors")])
        'affine'
    """
    named = [finding.advice.partition("--model ")[2].split() for finding in findings]
    return next((words[0] for words in named if words), None)


def displays_of(interventions: Interventions) -> Displays:
    """Return interventions as displays, counted, without rankers, users, pages and time."""
    return Displays(
        query=numbered(interventions.query)[1],
        unit=numbered(interventions.unit)[1],
        position=interventions.position,
        shown=interventions.exposure,
        clicks=interventions.clicks.astype(np.float64),
        contexts=interventions.contexts,
        counted=True,
    )


def findings_of(model: Any) -> list[Finding]:
    """Return the findings that a model's file keeps; none where it was fitted without checks."""
    kept = model.info.get(FINDINGS)
    if not isinstance(kept, Sequence) or isinstance(kept, str):
        return []
    return [finding for one in kept if (finding := Finding.from_dict(one)) is not None]


def make_budget(
    evidence: Evidence,
    findings: Sequence[Finding],
    *,
    positions: Collection[int] = (),
    tolerance: float = TOLERANCE,
    interventions: Interventions | None = None,
) -> Budget:
    """Return the budget of a fit.

    Args:
        evidence: the displays and the model that were checked.
        findings: the findings of checks.
        positions: positions that are asked for; all that have an estimate without.
        tolerance: how far off a usable curve may be, as a fraction.
        interventions: what the model was fitted on, for a plan of how much more data is needed.
    """
    down, up = noise(evidence)
    below, above = {NOISE: down}, {NOISE: up}
    for finding in findings:
        if finding.effect is not None:
            below[finding.kind], above[finding.kind] = finding.bounds
    wanted = evidence.positions != evidence.model.curve.anchor
    if positions:
        wanted &= np.isin(evidence.positions, sorted(positions))
    sums = [np.sqrt(sum(bound**2 for bound in side.values())).max(axis=0) for side in (above, below)]
    straight = np.maximum(*(np.sum(np.broadcast_arrays(*side.values()), axis=0).max(axis=0) for side in (above, below)))
    terms = {name: np.maximum(above[name].max(axis=0), below[name].max(axis=0)) for name in above}
    order = sorted(terms, key=lambda name: -float(terms[name][wanted].max(initial=0)))
    decisive = [finding.sentence for finding in findings if finding.severity == "decisive"]
    if evidence.model.draws is None:
        decisive.append("the fit has no intervals, so the size of the noise is unknown")
    times = float((terms[NOISE][wanted].max(initial=0) / np.log1p(tolerance)) ** 2)
    if times > 1 and interventions is not None:
        from clickharvest.planning.traffic import times_needed

        anchor = int(evidence.model.curve.anchor)
        planned = times_needed(interventions, tolerance, evidence.positions[wanted].tolist(), anchor=anchor)
        times = times if planned is None else planned
    known = evidence.positions[wanted]
    every = np.union1d(known, sorted(set(positions) - set(evidence.positions.tolist()))).astype(np.int64)

    def whole(logs: Array, without: float = np.inf) -> Array:
        """Return numbers of all positions asked for: nothing bounds those without an estimate."""
        numbers = np.full(len(every), without)
        numbers[np.isin(every, known)] = logs[wanted]
        return numbers

    return Budget(
        positions=tuple(every.tolist()),
        up=_fractions(whole(sums[0])),
        down=tuple(-np.expm1(-whole(sums[1]))),
        terms={name: _fractions(whole(terms[name], np.inf if name == NOISE else 0.0)) for name in order},
        straight=_fractions(whole(straight)),
        untested={finding.kind: finding.needs for finding in findings if finding.needs},
        tolerance=tolerance,
        reason=decisive[0] if decisive else "",
        folds=evidence.folds,
        noun="position" if evidence.model.places is None else "place",
        times=times,
    )


def _fractions(logs: Array) -> tuple[float, ...]:
    """Return changes of log p as fractions of p, infinite ones beyond `UNBOUNDED`."""
    return tuple(np.where(logs < UNBOUNDED, np.expm1(np.minimum(logs, UNBOUNDED)), np.inf).tolist())


def noise(evidence: Evidence) -> tuple[Array, Array]:
    """Return how far below and above the estimate its interval reaches, in log p, [contexts or 1, K]."""
    first = np.unique(evidence.kind, return_index=True)[1]
    several = evidence.model.context and len(first) == 1
    if several:
        order = np.argsort(evidence.context, kind="stable")
        first = order[np.unique(np.linspace(0, len(order) - 1, MOST_CONTEXTS).astype(np.int64))]
    table = {name: evidence.displays.contexts[name][first] for name in evidence.model.context} or None
    prediction = evidence.model.predict(table)
    with np.errstate(divide="ignore", invalid="ignore"):
        down = np.log(prediction.propensity) - np.log(prediction.lower)
        up = np.log(prediction.upper) - np.log(prediction.propensity)
    estimated = np.isin(prediction.positions, evidence.positions)
    down, up = (np.where(np.isfinite(side) & prediction.supported, side, np.inf)[:, estimated] for side in (down, up))
    if several:
        down, up = (np.quantile(side, WIDE, axis=0, method="lower")[None] for side in (down, up))
    return down, up
