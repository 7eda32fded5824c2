"""beyond-cascade: users read downwards and leave when satisfied."""

from __future__ import annotations

from clickharvest.experiments.beyond.departures import make_experiment
from clickharvest.experiments.families.models import CLICKSHARE
from clickharvest.experiments.runner.experiment import Check

LEAST = 2.0


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: a cascade breaks the estimate, ours too."""
    return [
        Check(
            "the cascade at least doubles ClickShare's error",
            changed[CLICKSHARE] >= LEAST * plain[CLICKSHARE],
            f"from {plain[CLICKSHARE]:.4f} to {changed[CLICKSHARE]:.4f}",
        )
    ]


EXPERIMENT = make_experiment(
    id="beyond-cascade",
    title="Cascade clicks",
    claim="Users who leave once satisfied examine a position the less, the better the results above it are. No curve "
    "of position and context describes that, so every error should rise.",
    settings={"clicks": "cascade"},
    judge=judge,
    notes=(
        "The truth is how often a position is examined on pages of the test queries, results above it included; no "
        "p_k(x) equals it.",
    ),
)
