"""beyond-relevance: a relevance model that leaves out what relevance depends on."""

from __future__ import annotations

from experiments.beyond.departures import make_experiment
from experiments.families.models import CLICKSHARE, CPBM, CPBM_CONSTANT, CPBM_NETWORK, CTR, EM, PBM
from experiments.runner.experiment import Check

MODELS = (PBM, CPBM, CPBM_NETWORK, CPBM_CONSTANT, CLICKSHARE, EM, CTR)
SETTINGS = {"eta": 1.0, "zeta": 1.0}


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: ClickShare, without a relevance model, beats AllPairs with the right and with the wrong one."""
    found = {"a network": changed[CPBM_NETWORK], "constants": changed[CPBM_CONSTANT], "one chosen": changed[CPBM]}
    return [
        Check(
            "ClickShare beats AllPairs whatever its relevance model",
            changed[CLICKSHARE] < min(found.values()),
            f"{changed[CLICKSHARE]:.4f}; AllPairs with "
            + ", ".join(f"{model} for g {error:.4f}" for model, error in found.items()),
        )
    ]


EXPERIMENT = make_experiment(
    id="beyond-relevance",
    title="A relevance model that does not fit",
    claim="All context features tell of relevance (ζ=1) and examination depends on them strongly (η=1). AllPairs with "
    "a g that ignores context is misspecified; EM has a relevance for each document, most of them seen a few times. "
    "ClickShare has no relevance model to get wrong.",
    settings=SETTINGS,
    plain=SETTINGS,
    judge=judge,
    models=MODELS,
    notes=("The log is that of fig-ctx and fig-rel; what changes is the model.",),
)
