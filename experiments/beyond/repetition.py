"""beyond-repetition: a few queries are asked very often, and many hardly ever."""

from __future__ import annotations

from experiments.beyond.departures import MODELS, make_experiment, smallest_error
from experiments.families.models import CLICKSHARE, PBM
from experiments.runner.experiment import Check


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: ClickShare is best, and still has less than half of the PBM's error."""
    return [
        smallest_error(changed, of=MODELS),
        Check(
            "ClickShare's error is less than half of the PBM's",
            changed[CLICKSHARE] < changed[PBM] / 2,
            f"{changed[CLICKSHARE]:.4f} and {changed[PBM]:.4f}; with even repetition {plain[CLICKSHARE]:.4f} and "
            f"{plain[PBM]:.4f}",
        ),
    ]


EXPERIMENT = make_experiment(
    id="beyond-repetition",
    title="Heavy-tailed query repetition",
    claim="Real queries repeat with heavy tails. As many pages then hold fewer distinct contexts, so that every "
    "context-dependent model has less to learn from; ClickShare should still be the best.",
    settings={"repetition": "zipf"},
    judge=judge,
)
