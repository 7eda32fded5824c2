"""Checks: one class per question about a log and its fit, each answered as an effect on the curve."""

from clickharvest.checks import (  # noqa: F401  each enters its check into `CHECKS`, in this order
    arms,
    clicks_above,
    copied_clicks,
    crowd,
    drift,
    hidden_column,
    leaked_contexts,
    log_doubts,
    order,
    rankers,
    relevance,
    rows,
    step,
)  # isort: skip
from clickharvest.checks.base import CHECKS, Check
from clickharvest.checks.budget import make_budget
from clickharvest.checks.checking import Checked, check_fit, findings_of
from clickharvest.checks.displays import Displays, read_displays
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import Finding
from clickharvest.model.budget import Budget, budget_of, percent
from clickharvest.parameters import TOLERANCE

__all__ = [
    "CHECKS",
    "TOLERANCE",
    "Budget",
    "Check",
    "Checked",
    "Displays",
    "Evidence",
    "Finding",
    "budget_of",
    "check_fit",
    "findings_of",
    "make_budget",
    "percent",
    "read_displays",
]
