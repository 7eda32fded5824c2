"""Checks: one class per question about a log and its fit, each answered as an effect on the curve."""

# isort: off
from clickharvest.checks import (  # noqa: F401  each enters its checks into `CHECKS`, in this order
    reading_by_ranker,
    clicks_above,
    busy_users,
    change_over_time,
    hidden_column,
    log_integrity,
    personalised_rankers,
    relevance,
    missing_rows,
    curve_steps,
)

# isort: on
from clickharvest.checks.checking import Checked, check_fit, findings_of, make_budget
from clickharvest.checks.evidence import Evidence
from clickharvest.checks.finding import CHECKS, Check, Finding
from clickharvest.checks.log_rows import Displays, read_displays
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
