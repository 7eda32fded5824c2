"""beyond-traffic: three rankers that serve 80, 15 and 5 % of the traffic."""

from __future__ import annotations

from experiments.beyond.departures import MODELS, make_experiment, smallest_error
from experiments.families.models import CLICKSHARE
from experiments.runner.experiment import Check

MOST = 1.5


def judge(plain: dict[str, float], changed: dict[str, float]) -> list[Check]:
    """Return: ClickShare is best, and hardly worse than with equal traffic."""
    return [
        smallest_error(changed, of=MODELS),
        Check(
            f"unequal traffic raises ClickShare's error by less than {MOST - 1:.0%}",
            changed[CLICKSHARE] < MOST * plain[CLICKSHARE],
            f"from {plain[CLICKSHARE]:.4f} to {changed[CLICKSHARE]:.4f}",
        ),
    ]


EXPERIMENT = make_experiment(
    id="beyond-traffic",
    title="Unequal traffic, 80/15/5",
    claim="AllPairs divides clicks by how likely a document was to stand where it stood, and rare rankers make that "
    "small. ClickShare takes it as an offset, and should hardly suffer.",
    settings={"traffic": [80, 15, 5]},
    judge=judge,
    notes=("A third ranker brings interventions of its own, so the errors may also fall.",),
)
