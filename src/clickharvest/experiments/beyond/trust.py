"""beyond-trust: users believe what stands high, so a click depends on the position even when the result is seen."""

from __future__ import annotations

from clickharvest.experiments.beyond.departures import make_experiment
from clickharvest.experiments.families.models import CLICKSHARE
from clickharvest.experiments.runner.experiment import Check

LEAST = 2.0


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: trust bias does break the estimate, ours too."""
    return [
        Check(
            "trust bias at least doubles ClickShare's error",
            changed[CLICKSHARE] >= LEAST * plain[CLICKSHARE],
            f"from {plain[CLICKSHARE]:.4f} to {changed[CLICKSHARE]:.4f}",
        )
    ]


EXPERIMENT = make_experiment(
    id="beyond-trust",
    title="Trust bias",
    claim="Clicks that depend on the position even when a result is examined break every method that compares "
    "positions: what is estimated is examination times trust. All errors should be large, ours too.",
    settings={"clicks": "trust"},
    judge=judge,
    notes=(
        "Errors are against examination alone. Trust falls with the position for irrelevant results more than for "
        "relevant ones, and so no single curve describes clicks; `clickharvest fit` tests for that.",
    ),
)
