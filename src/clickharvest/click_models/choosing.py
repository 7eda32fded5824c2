"""Which click model a log speaks for: the simplest, unless held-out queries or a test say otherwise.

| model | is chosen where |
|---|---|
| browsing | clicks above explain held-out clicks on a result at one position, by more than a standard error |
| reading | the same, and results below those that attract clicks are clicked less, at 5 % |
| affine | none of these, and offsets are needed: their test at 5 %, and the test among results of one query |
| examination | otherwise |

Browsing comes first: users who stop once served make ratios of positions depend on relevance, as trust does, whereas
trust leaves no trace in what was clicked above. Results are compared at one position of one query and context, so that
queries that are read to different depths do not look like browsing. Held-out clicks do not tell users who read on from
those who click much and have therefore clicked above, too; weights by state suit both, so that browsing is chosen and
the doubt is told. Queries that are read to different depths look like trust to the test of offsets, but not among the
results of one query: both must find it, as corrected clicks would be wrong. Where contexts are named, each of their
levels (or classes) is looked at by itself, with p-values times the number of levels: trust in one of them is enough.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clickharvest.click_models.registry import EXAMINATION
from clickharvest.errors import ClickharvestWarning, InputError, NotIdentifiedError
from clickharvest.progress import Progress, silent

if TYPE_CHECKING:
    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.click_models.affine.fitted import AffineModel
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog

NORMAL = 1.96
USERS = {
    "examination": "Users look at a result or not whatever they clicked above it, and judge it alike anywhere: "
    "a ranker learns from clicks divided by propensities.",
    "browsing": "Users who have clicked a result click those below it more or less than users who have not: a ranker "
    "learns from clicks divided by the propensity of their own state, which weigh gives every row.",
    "reading": "Users read from the top and leave once served, so that what stands below good results is seen less: a "
    "ranker learns from clicks divided by the propensity of their own page, which weigh gives every row.",
    "affine": "Users click what stands high more readily, good or bad: a ranker learns from corrected clicks of all "
    "displays, (click - offset) / slope, which weigh gives every row.",
}
"""What kind of users a model speaks of, and what that changes for a ranker."""
TAKEN = (
    "Users are taken to look at a result or not whatever they clicked above it, and to judge it alike anywhere, though "
    "not all of that could be tested: a ranker learns from clicks divided by propensities, as far as it is true."
)
"""The same of examination where it was chosen because others could not be looked for."""


@dataclass(frozen=True)
class ModelChoice:
    """A click model, and why.

    Attributes:
        model: its name.
        users: what kind of users the log shows, and what that changes for a ranker.
        why: what spoke for and against each of the others.
    """

    model: str
    users: str
    why: tuple[str, ...]

    def info(self) -> dict[str, Any]:
        """Return what a model keeps of the choice."""
        return {"users": self.users, "why_this_model": list(self.why)}


def choose_click_model(
    data: ClickLog | Interventions, *, anchor: int = 1, seed: int = 0, progress: Progress = silent, **how: Any
) -> ModelChoice:
    """Choose between examination, browsing, reading and affine.

    Args:
        data: a log, or interventions, which do not tell clicks above.
        anchor: the position that others are relative to.
        seed: seed of the folds.
        progress: shows what is being done.
        how: the arguments of `harvest`.

    Example:
        >>> from clickharvest import read_log
        >>> from clickharvest.simulate import simulate_ab_log
        >>> print(choose_click_model(read_log(simulate_ab_log(pages=2_000)[0])).model)
        examination
    """
    from clickharvest.harvesting.interventions import Interventions

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # those of the model that is fitted then will be told
        if isinstance(data, Interventions):
            chosen, told = None, "Clicks above are not told by interventions: read the log itself."
        else:
            chosen, told = _browsing(data, anchor, seed, progress, how)
        why, looked = [told], chosen is not None
        if chosen in (None, EXAMINATION):
            chosen, told = _affine(data, anchor, seed, progress, how)
            why.append(told)
    model = chosen or EXAMINATION
    surely = model != EXAMINATION or (looked and chosen is not None)
    return ModelChoice(model, USERS[model] if surely else TAKEN, tuple(why))


def _browsing(log: ClickLog, anchor: int, seed: int, progress: Progress, how: dict[str, Any]) -> tuple[str | None, str]:
    """Return browsing, reading or examination, or None where they could not be told apart, and why."""
    from clickharvest.click_models.browsing import Browsing
    from clickharvest.click_models.browsing.estimating import compare_within_ranks

    if log.places is not None:
        return None, "Clicks above were not looked for: places have no order."
    try:
        states = Browsing().harvest(log, **how)
        gain = compare_within_ranks(states, anchor=anchor, seed=seed, progress=progress)
    except (InputError, NotIdentifiedError) as error:
        return None, f"Clicks above were not looked for: {error}."
    why = gain.finding.sentence
    if gain.gain <= (gain.upper - gain.lower) / (2 * NORMAL):
        return EXAMINATION, why
    if (sentence := _stopping(log, anchor, seed, progress, how)) is not None:
        return "reading", f"{why} {sentence}"
    return "browsing", (
        f"{why} They may just be users who click much: that results above attract clicks changes nothing by itself. "
        "Weights are right either way; if a column tells such users apart, name it as context."
    )


def _stopping(log: ClickLog, anchor: int, seed: int, progress: Progress, how: dict[str, Any]) -> str | None:
    """Return that clicks fall below results that attract clicks, or None where they do not."""
    from clickharvest.checks import Evidence, read_displays
    from clickharvest.checks.clicks_above import attraction_above
    from clickharvest.click_models.examination import Examination

    model = Examination(anchor=anchor, intervals=None, seed=seed, progress=progress)
    fitted = model.fit(model.harvest(log, **how))
    slope, error = attraction_above(Evidence(read_displays(log, how.get("unit", "context")), fitted, seed=seed))
    if slope > -NORMAL * error:
        return None
    return "A result is clicked less often the more clicks results above it attract."


def _affine(
    data: ClickLog | Interventions, anchor: int, seed: int, progress: Progress, how: dict[str, Any]
) -> tuple[str | None, str]:
    """Return affine or examination, or None where they could not be told apart, and why."""
    from clickharvest.checks.finding import spell_p
    from clickharvest.click_models.affine import Affine
    from clickharvest.click_models.affine.fitted import SIGN
    from clickharvest.harvesting.interventions import Interventions

    model = Affine(anchor=anchor, seed=seed, progress=progress)
    try:
        interventions = data if isinstance(data, Interventions) else model.harvest(data, **how)
        whole = model.fit(interventions)
        parts = _levels(whole, interventions)
    except (InputError, NotIdentifiedError) as error:
        return None, f"Trust was not looked for: {error}."
    tests = [(name, own, test[1]) for name, own, fitted in parts if (test := fitted.offset_test()) is not None]
    if not tests:
        return None, "Trust was not looked for: too few queries."
    tests.sort(key=lambda one: one[2])
    told = ""
    for name, own, p in tests:
        # Of several contexts one may find trust by chance.
        adjusted = min(1.0, p * len(tests))
        among = f", the least of {len(tests)} contexts" if len(tests) > 1 else ""
        if adjusted >= SIGN:
            none = f"No sign that how clicks fall with the position depends on the result ({spell_p(adjusted)}{among})."
            return EXAMINATION, told or none
        (within,) = model.check(own, whole)
        where = f"{name}: " if name else ""
        found = (
            f"{where}How clicks fall with the position depends on the result ({spell_p(adjusted)}). {within.sentence}"
        )
        if within.severity == "ok":
            return "affine", found
        told = told or found
    return EXAMINATION, told


def _levels(fitted: AnyAffine, interventions: Interventions) -> list[tuple[str, Interventions, AffineModel]]:
    """Return the levels of the context, or all as one: what they are called, their interventions and their model.

    Contexts of a class stay with it: they are read to different depths, if to less different ones.
    """
    from clickharvest.click_models.affine.levels import AffineLevels

    if not isinstance(fitted, AffineLevels):
        return [("", interventions, fitted)]
    level, found = fitted.level_of(interventions.contexts), []
    for i, model in enumerate(fitted.models):
        if model is not None:
            own = interventions.take(level == i)
            found.append((fitted.name(i), own if fitted.classes else replace(own, contexts={}), model))
    return found
