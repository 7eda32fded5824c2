"""The choice of a click model for a log: the simplest one, unless held-out queries or a test reject it.

| model | is chosen where |
|---|---|
| browsing | clicks above explain held-out clicks on a result at one position, and fewer follow a click |
| reading | the same, and results below those that attract clicks are clicked less, at 5 % |
| affine | none of these, and offsets are needed: their test at 5 %, and the test among results of one query |
| browsing | none of these, and clicks above explain held-out clicks: more follow a click |
| examination | otherwise |

Users who stop are tested first: they make ratios of positions depend on relevance, as trust does, whereas trust does
not depend on clicks above. Users who click much have clicked above, too, and look as if they read on. Weights by state
suit both, so that browsing is chosen last, and not where the other pages of the same users explain it. The comparison
is that of the check of clicks above (`held_out_gain`). Queries that are read to different depths look like trust to the
test of offsets, but not among the results of one query: both tests must find it, because corrected clicks would be
wrong. With contexts, each level (or class) is tested by itself, with p-values times the number of levels: trust in one
is enough.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clickharvest.checks.finding import NORMAL
from clickharvest.click_models.browsing import require_pages
from clickharvest.click_models.registry import EXAMINATION
from clickharvest.errors import ClickharvestWarning, InputError, NotIdentifiedError
from clickharvest.progress import Progress, silent

if TYPE_CHECKING:
    from clickharvest.checks import Checked
    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.click_models.affine.fitted import AffineModel
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog

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
"""The users that a model describes, and what that changes for a ranker."""
READ_ON = "read on"
"""In place of a model: users click more below a click, or seem to."""
MUCH = (
    "They may just be users who click much: that results above attract clicks changes nothing by itself. Weights are "
    "right either way; if a column tells such users apart, name it as context."
)
TAKEN = (
    "Users are taken to look at a result or not whatever they clicked above it, and to judge it alike anywhere, though "
    "not all of that could be tested: a ranker learns from clicks divided by propensities, as far as it is true."
)
"""The same for examination where it was chosen because other models could not be tested."""


@dataclass(frozen=True)
class ModelChoice:
    """A click model, and why.

    Attributes:
        model: its name.
        users: the kind of users, and what that changes for a ranker.
        why: the evidence for and against the other models.
    """

    model: str
    users: str
    why: tuple[str, ...]

    def info(self) -> dict[str, Any]:
        """Return the entries of a model's `info` on the choice."""
        return {"users": self.users, "why_this_model": list(self.why)}

    def settle(self, checked: Checked) -> Checked:
        """Return the findings of the checks without advice to fit another model, because models were compared."""
        findings = [replace(one, advice="") if "--model " in one.advice else one for one in checked.findings]
        return replace(checked, findings=tuple(findings))


def choose_click_model(
    data: ClickLog | Interventions, *, anchor: int = 1, seed: int = 0, progress: Progress = silent, **how: Any
) -> ModelChoice:
    """Choose between examination, browsing, reading and affine.

    Args:
        data: a log, or interventions, in which clicks above are unknown.
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

    users, on_clicks = None, "Interventions do not have clicks above: read the log itself."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # the fit of the chosen model will give its own
        if not isinstance(data, Interventions):
            try:
                require_pages(data, how.get("design"))
                users, on_clicks = _by_pages(data, anchor, seed, progress, how)
            except (InputError, NotIdentifiedError) as error:
                on_clicks = f"Clicks above were not looked for: {error}."
        if users in ("browsing", "reading"):
            return ModelChoice(users, USERS[users], (on_clicks,))
        trust, on_trust = _affine(data, anchor, seed, progress, how, sign=users == "affine")
    if trust == "affine":
        return ModelChoice(trust, USERS[trust], (on_clicks, on_trust))
    if users == READ_ON:
        return ModelChoice("browsing", USERS["browsing"], (f"{on_clicks} {MUCH}", on_trust))
    both_tested = users is not None and trust is not None
    return ModelChoice(EXAMINATION, USERS[EXAMINATION] if both_tested else TAKEN, (on_clicks, on_trust))


def _by_pages(log: ClickLog, anchor: int, seed: int, progress: Progress, how: dict[str, Any]) -> tuple[str | None, str]:
    """Return the model that the checks of `fit` name, or `READ_ON`, or None where it cannot be tested; and why."""
    from clickharvest.checks import CHECKS, Evidence, read_displays
    from clickharvest.checks.checking import one_model, other_model
    from clickharvest.checks.clicks_above import attraction_above, held_out_gain, ratio_to_next_page
    from clickharvest.click_models.examination import Examination

    model = Examination(curve="linear" if log.context else "constant", anchor=anchor, intervals=None, seed=seed)
    with progress("Choosing the model"):
        fitted = model.fit(model.harvest(log, **how))
        evidence = Evidence(read_displays(log, how.get("unit", "context")), fitted, seed=seed)
        gain = held_out_gain(evidence)
        if gain is None:
            return None, "Clicks above were not looked for: no click is below another one."
        findings = one_model([CHECKS[kind].run(evidence) for kind in ("clicks above", "relevance")])
        model_name = other_model(findings)
        if model_name == "browsing" or (model_name is None and gain.explains and gain.times < 1):
            slope, error = attraction_above(evidence)
            if slope > -NORMAL * error:
                return "browsing", gain.sentence
            less = "A result is clicked less often the more clicks results above it attract."
            return "reading", f"{gain.sentence} {less}"
        if model_name is not None:
            return model_name, " ".join([gain.sentence, *(one.sentence for one in findings if one.advice)])
        if not gain.explains:
            return EXAMINATION, gain.sentence
        if (ratio := ratio_to_next_page(evidence)) is not None and ratio[0] <= NORMAL * ratio[1]:
            much = "Other pages of the same users explain it: they are users who click much."
            return EXAMINATION, f"{gain.sentence} {much}"
    return READ_ON, gain.sentence


def _affine(
    data: ClickLog | Interventions, anchor: int, seed: int, progress: Progress, how: dict[str, Any], *, sign: bool
) -> tuple[str | None, str]:
    """Return affine or examination, or None where neither could be tested, and why.

    `sign` is whether the check of relevance found trust within queries; then it is enough that slopes are identified.
    """
    from clickharvest.checks.finding import spell_p
    from clickharvest.click_models.affine import Affine, trust_within_queries
    from clickharvest.click_models.affine.fitted import SIGN
    from clickharvest.harvesting.interventions import Interventions

    model = Affine(anchor=anchor, seed=seed, progress=progress)
    try:
        interventions = data if isinstance(data, Interventions) else model.harvest(data, **how)
        whole = model.fit(interventions)
        parts = _levels(whole, interventions)
    except (InputError, NotIdentifiedError) as error:
        return None, f"Trust was not looked for: {error}."
    if sign:
        return "affine", "Clicks on good results fall less steeply, among results of one query, too."
    tests = [(name, rows, test[1]) for name, rows, fitted in parts if (test := fitted.offset_test()) is not None]
    if not tests:
        return None, "Trust was not looked for: too few queries."
    tests.sort(key=lambda one: one[2])
    rejected = ""
    for name, rows, p in tests:
        adjusted = min(1.0, p * len(tests))  # of several contexts one may show trust by chance
        among = f", the least of {len(tests)} contexts" if len(tests) > 1 else ""
        if adjusted >= SIGN:
            none = f"No sign that how clicks fall with the position depends on the result ({spell_p(adjusted)}{among})."
            return EXAMINATION, rejected or none
        within = trust_within_queries(rows, whole, anchor, seed)
        where = f"{name}: " if name else ""
        why = f"{where}How clicks fall with the position depends on the result ({spell_p(adjusted)}). {within.sentence}"
        if within.severity == "ok":
            return "affine", why
        rejected = rejected or why
    return EXAMINATION, rejected


def _levels(fitted: AnyAffine, interventions: Interventions) -> list[tuple[str, Interventions, AffineModel]]:
    """Return the name, the interventions and the model of each level of the context; without context there is one.

    The interventions of a class keep their contexts, because queries of one class still differ in depth.
    """
    from clickharvest.click_models.affine.levels import AffineLevels

    if not isinstance(fitted, AffineLevels):
        return [("", interventions, fitted)]
    level, levels = fitted.level_of(interventions.contexts), []
    for i, model in enumerate(fitted.models):
        if model is not None:
            rows = interventions.take(level == i)
            levels.append((fitted.name(i), rows if fitted.classes else replace(rows, contexts={}), model))
    return levels
