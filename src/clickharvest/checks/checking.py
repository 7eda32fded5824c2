"""Checking a fit: from a log, or its interventions, and a fitted model to findings and the budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from clickharvest.checks.base import CHECKS
from clickharvest.checks.budget import make_budget
from clickharvest.checks.displays import Displays, read_displays
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import NORMAL, Finding
from clickharvest.harvesting.interventions import Interventions, UnitKind
from clickharvest.model.budget import BUDGET, Budget
from clickharvest.parameters import TOLERANCE

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

FINDINGS = "findings"
"""Where a model's `info` keeps them."""


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
        interventions: what the model was fitted on, from which it is planned how much more data is needed.

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
    found = [with_power(check.run(evidence), tolerance) for check in CHECKS.values()]
    findings = one_model((*further, *found))
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
    """Return findings of which the first alone names another click model: users who stop look like trust, too."""
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
        query=np.unique(interventions.query, return_inverse=True)[1],
        unit=np.unique(interventions.unit, return_inverse=True)[1],
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
    return [found for one in kept if (found := Finding.from_dict(one)) is not None]
