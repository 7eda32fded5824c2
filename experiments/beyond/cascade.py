"""beyond-cascade: users read downwards and leave when satisfied."""

from __future__ import annotations

from experiments.beyond.click_models import Beside, at_most, chooses
from experiments.beyond.departures import make_experiment
from experiments.families.click_models import AUTO, BROWSING, EXAMINATION, READING, make_runs
from experiments.families.models import CLICKSHARE
from experiments.runner.experiment import Check, Plan
from experiments.runner.runs import Results, Run

LEAST = 2.0
MODELS = (EXAMINATION, BROWSING, READING, AUTO)
"""Click models that are tried beside the others."""
CAUSES = {
    BROWSING: "browsing tells pages apart by their last click alone, while the truth also depends on the results that "
    "were skipped. Against the mean truth of pages with the same last click its mean |log(p̂/p)| is 0.23 (examination: "
    "0.93), against that of each page 0.78 (benchmarks/browsing.py)",
}
"""Why bars are missed, as far as it is known."""


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: a cascade breaks the estimate, ours too."""
    return [
        Check(
            "the cascade at least doubles ClickShare's error",
            changed[CLICKSHARE] >= LEAST * plain[CLICKSHARE],
            f"from {plain[CLICKSHARE]:.4f} to {changed[CLICKSHARE]:.4f}",
        )
    ]


def click_models(plan: Plan, seeds: int, sweeps: float) -> list[Run]:
    """Return models of pages, auto and what they must beat."""
    return make_runs(plan, MODELS, seeds=seeds, sweeps=sweeps, context=True, clicks="cascade")


def judge_models(results: Results, others: dict[str, float]) -> list[Check]:
    """Return: models of pages come close to what each display is worth; the bar was set before they were there."""
    checks = []
    for model in (BROWSING, READING):
        found, cause = results.where(model=model), CAUSES.get(model, "")
        claim = f"{model}: RelError by display is at most a third of ClickShare's RelError by context"
        third = "a third of ClickShare's"
        checks.append(at_most(claim, found.mean("impression_error"), others[CLICKSHARE] / 3, third, cause))
        for name, told in (("impression_error", "RelError by display"), ("seen_error", "the error of what is seen")):
            same = results.where(model=EXAMINATION).mean(name)
            claim = f"{model}: {told} is smaller than that of the examination model"
            checks.append(at_most(claim, found.mean(name), same, "the examination model's", cause))
    return [*checks, chooses(results, (READING,), "auto chooses reading in every log")]


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
        "Rows of examination, browsing, reading and auto are of `fit --model`, judged display by display: the truth is "
        "the probability that a result was examined given the clicks above on its page and the results that stand "
        "there, and the estimate what `weigh` gives that row. *by display* is the mean of |1 − p̂/p| where p > 0; *of "
        "what is seen* is Σ|p̂ − p| / Σp, which counts displays that nobody examines as well.",
    ),
    beside=Beside(
        MODELS, click_models, {"impression_error": "by display", "seen_error": "of what is seen"}, judge_models
    ),
)
