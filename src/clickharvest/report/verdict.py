"""The verdict: may one act on a model's numbers? Trustworthy, with care, or cannot tell.

| word | means |
|---|---|
| trustworthy | every position is known to a factor of two, and every check that can find a bias was made and found none |
| with care | the numbers hold within the limits that are named |
| cannot tell | they may not be used before what is named is done |

Nothing is averaged: the worst reason gives the word. A check that was not made counts against the model, because
silence is no evidence; one that is made counts at the level .05 divided by the number of such checks, so that a log
without any bias keeps its good word 95 times in 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from clickharvest.diagnosis.findings import ALARM, Finding, Status
from clickharvest.model.propensities import Propensities
from clickharvest.model.summary import typical_context
from clickharvest.words import count, spell_positions

Word = Literal["trustworthy", "with care", "cannot tell"]

ROUGH = 2.0
"""An interval whose ends differ by this factor or more is rough."""
UNKNOWN = 10.0
"""An interval whose ends differ by this factor or more is no finding."""
FEW = 5
"""A position that rests on fewer effective queries than this is thin."""
NORMAL = 1.96
"""Standard errors to either side of the estimate in a 95 % interval."""
LEVEL = 0.05
"""How often a log without bias may lose its good word to the checks."""
STRONG = 1.25
"""A click above that changes clicks below by this factor or more leaves no curve of positions to speak of."""
FAILED = ("ran out of iterations", "failed")
"""How the status of a fit begins whose parameters cannot be used."""


@dataclass(frozen=True)
class Reason:
    """One thing that speaks against a model's numbers.

    Attributes:
        word: what it makes of the verdict.
        why: a sentence that a manager understands.
        advice: what to do, in an imperative sentence.
    """

    word: Word
    why: str
    advice: str


@dataclass(frozen=True)
class Verdict:
    """Whether one may act on a model's numbers.

    Attributes:
        word: the verdict.
        why: the reason that weighs most, in one sentence.
        advice: what to do next.
        also: the other reasons, the worst first.
    """

    word: Word
    why: str
    advice: str
    also: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Grounds:
    """What is known of a model beside itself.

    Attributes:
        findings: those of the log's diagnosis; None where no log was read.
        checks: those of the model's checks.
        same_data: whether the model was fitted on that log; None where that cannot be told.
        realised: whether exposures are what was shown, rather than what a design would show.
        moved: how far the curve moves when its penalty is divided or multiplied by ten, in half widths of its
            interval; None where that is not known.
    """

    findings: Sequence[Finding] | None = None
    checks: Sequence[Finding] = ()
    same_data: bool | None = None
    realised: bool = True
    moved: float | None = None


def judge(model: Propensities, grounds: Grounds | None = None, *, level: float = 0.95) -> Verdict:
    """Return the verdict on a model: the worst of the reasons against it, or that there is none.

    Args:
        model: the model.
        grounds: what a log and the checks say; None where nothing else is known.
        level: level of the intervals that are looked at.

    Example:
        Exact figures, but nobody has looked at the log.

        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> draws = np.log(0.5) + np.array([[-0.05], [0.0], [0.05]])
        >>> model = Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), draws, "bootstrap")
        >>> verdict = judge(model)
        >>> verdict.word, verdict.why
        ('with care', 'The log behind the model was not looked at here, so nobody knows whether its clicks mislead.')
    """
    grounds = Grounds(checks=kept_checks(model)) if grounds is None else grounds
    reasons = sorted(_reasons(model, grounds, level), key=lambda reason: -get_args(Word).index(reason.word))
    if reasons:
        first, *others = reasons
        return Verdict(first.word, first.why, first.advice, tuple(others))
    made = [finding for finding in (*(grounds.findings or ()), *grounds.checks) if finding.status != "blocking"]
    span = max(factor for state, factor in _states(model, level).values() if factor is not None)
    return Verdict(
        "trustworthy",
        f"Every position is known to a factor of {span:.2g} or better, and none of the {len(made)} checks speaks "
        "against it.",
        f"Use it for weights at {_named(model.curve.positions)}, and look again when the pages or the rankers change.",
    )


def kept_checks(model: Propensities) -> tuple[Finding, ...]:
    """Return the checks that `clickharvest fit` kept in the model; none where what is there does not look like any."""
    kept = model.info.get("checks")
    try:
        found = tuple(Finding(**check) for check in kept or ())
    except TypeError:
        return ()
    numbers = all(isinstance(finding.p_value, int | float | None) for finding in found)
    return found if numbers and all(finding.status in get_args(Status) for finding in found) else ()


def _reasons(model: Propensities, grounds: Grounds, level: float) -> Iterator[Reason]:
    yield from _of_fit(model)
    if model.draws is not None:
        yield from _of_positions(model, level)
    if grounds.findings is None:
        yield Reason(
            "with care",
            "The log behind the model was not looked at here, so nobody knows whether its clicks mislead.",
            "Make this report with the log (clickharvest report MODEL --log LOG).",
        )
    elif grounds.same_data is False:
        yield Reason(
            "with care",
            "The log given here is not the data that the model was fitted on, so the two may not agree.",
            "Give the log that the model was fitted on, or fit it again on this one.",
        )
    yield from _of_checks(model, grounds)
    yield from _of_silence(grounds)
    if grounds.moved is not None and grounds.moved > 1:
        yield Reason(
            "with care",
            "The curve leaves its own interval when its penalty is ten times as large or as small: the choice of the "
            "penalty speaks, not the clicks alone.",
            "Collect more clicks, or name fewer or coarser context columns.",
        )


def _of_fit(model: Propensities) -> Iterator[Reason]:
    status = model.info.get("status")
    if isinstance(status, str) and status.startswith(FAILED):
        yield Reason(
            "cannot tell",
            "The fit did not reach its end, so these numbers are not the ones that explain the clicks best.",
            "Fit again with a larger --penalty, another --curve or fewer context columns.",
        )
    if model.draws is not None:
        return
    if model.info.get("queries") == 1:
        yield Reason(
            "cannot tell",
            "All clicks are of one query, so nothing tells how far another query would be from it.",
            "Collect clicks of at least five queries, better of fifty.",
        )
    else:
        yield Reason(
            "cannot tell",
            "The model has no error bars, so nothing tells how far off its numbers may be.",
            "Fit again with intervals (clickharvest fit without --intervals none).",
        )


def _of_positions(model: Propensities, level: float) -> Iterator[Reason]:
    """Yield what is unknown, rests on few queries, or is known roughly, position by position."""
    anchor, states = int(model.curve.anchor), _states(model, level)
    held = {state: [k for k, (own, _) in states.items() if own == state] for state in get_args(_State)}
    usable = [anchor, *held["rough"], *held["good"]]
    use = f"Use it for weights at {_named(usable)} alone" if len(usable) > 1 else "Do not use it for weights"
    word: Word = "with care" if len(usable) > 1 else "cannot tell"
    if held["wide"]:
        yield Reason(
            word,
            f"At {_named(held['wide'])} the interval spans a factor of ten or more, so the log cannot tell how often "
            "people look there.",
            f"{use}, and {_swap(model, held['wide'][0])}.",
        )
    if held["thin"]:
        yield Reason(
            word,
            f"What is known about {_named(held['thin'])} rests on fewer than {FEW} queries, and others may be read in "
            "another way.",
            f"{use}, until the log has more queries.",
        )
    if held["unlinked"]:
        yield Reason(
            word,
            f"Nothing in the log compares {_named(held['unlinked'])} with position {anchor}.",
            f"{use}, and {_swap(model, held['unlinked'][0])}.",
        )
    if held["rough"]:
        widest = max(states[k][1] or 0.0 for k in held["rough"])
        more = float(np.ceil((np.log(widest) / np.log(ROUGH)) ** 2))
        yield Reason(
            "with care",
            f"At {_named(held['rough'])} the interval spans a factor of up to {widest:.2g}: the fall is clear, its size "
            "is not.",
            f"Collect about {more:,.0f} times as many clicks, or {_swap(model, held['rough'][-1])}.",
        )


_State = Literal["unlinked", "wide", "thin", "rough", "good"]


def _states(model: Propensities, level: float) -> dict[int, tuple[_State, float | None]]:
    """Return of every position but the anchor how well it is known, and the factor that its interval spans."""
    predicted = model.predict_encoded(typical_context(model), level=level)
    factors = np.exp(np.log(predicted.upper[0]) - np.log(predicted.lower[0]))
    queries = _effective_queries(model)
    states: dict[int, tuple[_State, float | None]] = {}
    for k, factor in zip(model.shown, factors.tolist(), strict=True):
        if k == model.curve.anchor:
            continue
        state: _State = "rough" if factor >= ROUGH else "good"
        if k not in model.curve.positions:
            state, factor = "unlinked", None
        elif not factor < UNKNOWN:
            state = "wide"
        elif queries.get(k, FEW) < FEW:
            state = "thin"
        states[k] = (state, factor)
    return states


def _effective_queries(model: Propensities) -> dict[int, float]:
    """Return how many queries of equal weight the positions rest on, as far as the model tells."""
    clustered = model.info.get("clustered")
    told = clustered.get("effective_queries") if isinstance(clustered, Mapping) else None
    return dict(zip(model.curve.positions, told or (), strict=False))


def _named(positions: Sequence[int]) -> str:
    several = len(positions) > 1
    return f"position{'s' if several else ''} {spell_positions(positions)}"


def _swap(model: Propensities, k: int) -> str:
    """Return the advice to swap a position with the anchor, until an interval would no longer be rough."""
    clustered = model.info.get("clustered")
    dispersion: Any = clustered.get("overdispersion") if isinstance(clustered, Mapping) else None
    dispersion = max(1.0, dispersion) if isinstance(dispersion, int | float) else 1.0
    # The standard error of log p_k / p_anchor is about 2 / √clicks where both places are shown equally often.
    clicks = dispersion * (4 * NORMAL / np.log(ROUGH)) ** 2
    return (
        f"swap the results at ranks {model.curve.anchor} and {k} at random on part of the traffic, for two weeks or "
        f"until they have about {count(float(np.ceil(clicks / 10) * 10), 'click')}"
    )


BIASES = ("drift with position", "clicks above", "trust bias", "transitivity")
"""Checks that can find a bias, whatever the model."""


def _of_checks(model: Propensities, grounds: Grounds) -> Iterator[Reason]:
    """Yield what the checks have found, those of the log first."""
    findings = [*(grounds.findings or ()), *grounds.checks]
    tested = [finding for finding in findings if finding.name in BIASES and finding.p_value is not None]
    for finding in findings:
        reason = _alarm(finding, model, grounds)
        if reason is None:
            continue
        if finding.status in ("warning", "blocking") or finding.name == "context matters":
            yield reason
        elif finding in tested and finding.p_value is not None and finding.p_value < LEVEL / len(tested):
            why = f"There may be a bias, the sign is weak: {reason.why[0].lower()}{reason.why[1:]}"
            yield Reason("with care", why, reason.advice)


def _alarm(finding: Finding, model: Propensities, grounds: Grounds) -> Reason | None:
    """Return what a finding means if it is an alarm; None where it does not touch this model."""
    name, value = finding.name, finding.value if isinstance(finding.value, int | float) else 0.0
    shares = model.info.get("objective") in (None, "clickshare")
    if name == "connectivity":
        # Of a log that links nothing there is no model; positions without a link are told one by one.
        return Reason("cannot tell", finding.sentence, "Look for a log with links.") if value == 0 else None
    if name == "drift with position":
        moved = "lose clicks over time move up" if value > 0 else "lose clicks over time move down"
        return None if not grounds.realised else Reason(
            "cannot tell",
            f"Results that {moved} the page, so that time looks like position and the curve is too "
            f"{'flat' if value > 0 else 'steep'}, by how much nobody knows.",
            "Fit a shorter period in which results change little, or swap ranks at random for two weeks and fit that.",
        )  # fmt: skip
    if name == "clicks above":
        strong = not 1 / STRONG < value < STRONG
        return Reason(
            "cannot tell" if strong else "with care",
            f"People {'stop reading once a result above has served them' if value < 1 else 'read on below good results'}"
            ", so that how far they look depends on the results above, not on the position alone.",
            "Do not carry these numbers over to pages of other quality: use them for pages like the logged ones, and "
            "test the ranker they train in an A/B test.",
        )
    if name == "trust bias":
        return Reason(
            "with care",
            "Good results fall off with position in another way than bad ones, as when people trust what stands high: "
            "the curve is an average over both.",
            "Count clicks that show satisfaction (long visits, purchases) instead of all clicks.",
        )
    if name == "transitivity":
        return Reason(
            "with care",
            "Different pairs of positions tell different stories: more than the position and the known contexts decides "
            "what people look at.",
            "Name what differs between pages (device, layout, kind of page) with --context, or fit page types apart.",
        )
    if name.startswith("ranker and "):
        return None if grounds.realised and shares else Reason(
            "cannot tell",
            "The rankers did not get the same kind of traffic, and this model takes for granted that they did.",
            "Fit again with what was really shown (without --rankings, --objective clickshare).",
        )  # fmt: skip
    if name == "context matters":
        matters = model.encoder is None and finding.p_value is not None and finding.p_value < ALARM
        return None if not matters else Reason(
            "with care",
            "Contexts are read to different depths, and the one curve is their average.",
            "Fit again with the context columns (--context).",
        )  # fmt: skip
    if name == "segments":
        return None if model.encoder is None else Reason("with care", *SEGMENTS)
    if name in PLAIN:
        return Reason("with care", *PLAIN[name])
    word: Word = "cannot tell" if finding.status == "blocking" else "with care"
    return Reason(word, finding.sentence, "See the checks below.")


SEGMENTS = (
    "Some contexts do not compare all positions by themselves: there the curve leans on the other contexts.",
    "Use the curves of contexts that link all positions, or name fewer or coarser context columns.",
)
PLAIN = {
    "sample ratio": (
        "The rankers did not get the traffic they were meant to get: part of it may be lost, or logged twice.",
        "Find out where pages are lost before acting on these numbers.",
    ),
    "dominance": (
        "At some position one query tells more than all others together.",
        "Look at the fit without that query (named below), or collect clicks of more queries.",
    ),
    "repetition": (
        "With these context columns hardly any result is shown twice in the same context, so that little is compared.",
        "Name fewer or coarser context columns, or compare results of a query across contexts (--unit query).",
    ),
}


def _of_silence(grounds: Grounds) -> Iterator[Reason]:
    """Yield the checks that could find a bias and were not made."""
    made = {finding.name for finding in (*(grounds.findings or ()), *grounds.checks) if finding.p_value is not None}
    needed = {"trust bias": "whether good results are read otherwise than bad ones"}
    if grounds.findings is not None:
        needed["clicks above"] = "whether clicks above end the search"
        if grounds.realised:
            needed["drift with position"] = "whether results change while they move"
    if missing := [words for name, words in needed.items() if name not in made]:
        yield Reason(
            "with care",
            f"Not everything could be tested: {', and '.join(missing)}.",
            "Give the log itself with its time and page columns (--time, --page); if it has them, collect more clicks.",
        )
