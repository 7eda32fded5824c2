"""Reasons: what the checks of a log and of a model mean for its numbers, in words that a manager understands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from clickharvest.diagnosis.findings import ALARM, Finding
from clickharvest.model.propensities import Propensities

Word = Literal["trustworthy", "with care", "cannot tell"]

LEVEL = 0.05
"""How often a log without bias may lose its good word to the checks."""
STRONG = 1.25
"""A click above that changes clicks below by this factor or more leaves no curve of positions to speak of."""
BIASES = ("drift with position", "clicks above", "trust bias", "transitivity")
"""Checks that can find a bias, whatever the model."""


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


def check_reasons(model: Propensities, grounds: Grounds) -> Iterator[Reason]:
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


def silence_reasons(grounds: Grounds) -> Iterator[Reason]:
    """Yield the checks that could find a bias and were not made."""
    findings = [*(grounds.findings or ()), *grounds.checks]
    made = {finding.name for finding in findings if finding.p_value is not None}
    tried = {finding.name for finding in findings} | ({"drift with position"} if _tried_drift(findings) else set())
    unseen = dict(UNSEEN)
    if grounds.findings is None:
        unseen = {"trust bias": UNSEEN["trust bias"]}
    elif not grounds.realised:
        del unseen["drift with position"]
    silent = [name for name in unseen if name not in made]
    if silent:
        advice = ["collect more clicks" if name in tried else unseen[name][1] for name in silent]
        told = ", and ".join(dict.fromkeys(advice))
        yield Reason(
            "with care",
            f"Nothing here tells {', or '.join(unseen[name][0] for name in silent)}: such a bias would go unseen.",
            f"{told[0].upper()}{told[1:]}.",
        )


def _tried_drift(findings: Sequence[Finding]) -> bool:
    return any(finding.name == "drift" for finding in findings)


UNSEEN = {
    "drift with position": (
        "whether results change while they move on the page",
        "name the log's time column (--time)",
    ),
    "clicks above": (
        "whether people stop at a good result",
        "name the log's page column (--page), with one row for each result shown",
    ),
    "trust bias": (
        "whether good results are read otherwise than bad ones",
        "fit with clickharvest fit, which tests it",
    ),
}
"""Biases that only a check can see: in words, and how to have the check made."""
