"""Reasons: what the checks of a log and of a model mean for its numbers, in words that a manager understands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from clickharvest.diagnosis.findings import ALARM, MATTERS, Finding, percent
from clickharvest.model.cautions import clustered_by
from clickharvest.model.propensities import Propensities
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import name_place, name_places

Word = Literal["trustworthy", "with care", "cannot tell"]

LEVEL = 0.05
"""How often a log without bias may lose its good word to the checks."""
STRONG = 1.25
"""A click above that changes clicks below by this factor or more leaves no curve of positions to speak of."""
ELSEWHERE, MISDRAWN = 0.1, 0.25
"""Share of the impressions that contradict the design, and how far the share of a rank that swaps drew is off: from
these on exposures by design tell nothing. A tenth may be all that one position of ten shows."""
BIASES = (
    "drift with position",
    "usual position",
    "usual position by user",
    "clicks above",
    "trust bias",
    "transitivity",
    "swap ranks",
)
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
    """Yield what the checks have found, those of the log first; drift, which names a cause, before all others."""
    findings = sorted([*(grounds.findings or ()), *grounds.checks], key=lambda own: own.name != "drift with position")
    tested = [finding for finding in findings if finding.name in BIASES and finding.p_value is not None]
    for finding in findings:
        reason = _alarm(finding, model, grounds)
        if reason is None:
            continue
        if finding.status in ("warning", "blocking") or finding.name in ("context matters", "unmoved queries"):
            yield reason
        elif finding in tested and finding.p_value is not None and finding.p_value < LEVEL / len(tested):
            why = f"There may be a bias, the sign is weak: {reason.why[0].lower()}{reason.why[1:]}"
            yield Reason("with care", why, reason.advice)


def _alarm(finding: Finding, model: Propensities, grounds: Grounds) -> Reason | None:
    """Return what a finding means if it is an alarm; None where it does not touch this model."""
    name, value = finding.name, finding.value if isinstance(finding.value, int | float) else 0.0
    shares = model.info.get("objective") in (None, "clickshare")
    if name == "connectivity":
        if value == 0:
            return Reason("cannot tell", finding.sentence, "Look for a log with links.")
        # Positions that the model knows to have no link are told one by one; of others, where nothing ever moved, it
        # has not heard.
        return None if finding.status == "ok" or model.unsupported else Reason(
            "with care",
            f"The log shows positions that no clicks compare with {name_place(model.curve.anchor, model.places)}: the "
            f"model knows {name_places(model.curve.positions, model.places)} alone.",
            "Use it there alone, or swap ranks at random on part of the traffic.",
        )  # fmt: skip
    by = clustered_by(model.info)
    if (name == "few users" and by == "user") or (name == "dominance" and by is not None):
        return None
    if name == "drift with position":
        moved = "lose clicks over time move up" if value > 0 else "lose clicks over time move down"
        return None if not grounds.realised else Reason(
            "cannot tell",
            f"Results that {moved} the page, so that time looks like position and the curve is wrong, by how much "
            "nobody knows.",
            "Fit a shorter period in which results change little, or swap ranks at random for two weeks and fit that.",
        )  # fmt: skip
    if name == "usual position":
        steep = (
            "Rankers put a result higher for people who want it more, or at times when it is wanted more, so that "
            "wishes look like position and the curve is too steep.",
            "Name what the rankers know of people (--context, in units of their own: --unit context), or swap ranks at "
            "random for two weeks and fit that.",
        )
        flat = (
            "Results did not stand where the log says, so that the curve is too flat.",
            "Log positions as people see them, after results were shuffled, filtered or moved, and fit again.",
        )
        small = not grounds.realised or abs(value) < MATTERS
        return None if small else Reason("cannot tell", *(steep if value > 0 else flat))
    if name == "usual position by user":
        if abs(value) < MATTERS or not grounds.realised:
            return None
        return Reason("with care", *TIRED) if value > 0 else Reason("cannot tell", *PERSONAL)
    if name == "clicks above":
        strong = not 1 / STRONG < value < STRONG
        how = "stop reading once a result above has served them" if value < 1 else "read on below good results"
        return Reason(
            "cannot tell" if strong else "with care",
            f"People {how}, so that how far they look depends on the results above, not on the position alone.",
            "Do not carry these numbers over to pages of other quality: use them for pages like the logged ones, and "
            "test the ranker they train in an A/B test.",
        )
    if name == "trust bias":
        if value > 0 and {"single clicks", "one click a page"} & {own.name for own in grounds.findings or ()}:
            return Reason(
                "with care",
                "Good results fall off with position in another way than bad ones: people trust what stands high, or "
                "results compete for the one click that a page has, which looks the same.",
                "Log every click of a page before correcting for trust.",
            )
        average, parts = "the curve is an average over both.", () if model.encoder is None else model.encoder.parts
        if value > 0 and (len(parts) > 1 or any(part.kind == "numeric" for part in parts)):
            # Of one category every curve of contexts can do all that its levels do; of others it may miss some.
            average = f"then {average} An effect of contexts that the curve misses looks the same."
        return Reason(
            "with care",
            "Good results fall off with position in another way than bad ones, as when people trust what stands high: "
            f"{average}",
            "Correct clicks for trust (clickharvest fit --model affine), or count those that show satisfaction (long "
            "visits, purchases) instead of all.",
        )
    if name == "transitivity":
        return Reason(
            "with care",
            "Different pairs of positions tell different stories: more than position and context decides what people "
            "look at.",
            "Name what differs between pages (device, layout, kind of page) with --context, or fit page types apart.",
        )
    if name == "design":
        return Reason(
            "cannot tell" if value >= ELSEWHERE else "with care",
            f"{percent(value)} of what was shown stood where the given rankings or swaps say it could not: they are "
            "not those that made these pages, and the curve may be wrong.",
            "Give the rankings, swaps and traffic that made these pages, or fit what was really shown (without "
            "--rankings, --swap and the like).",
        )
    if name == "swap ranks":
        return None if value < MATTERS else Reason(
            "cannot tell" if value >= MISDRAWN else "with care",
            "Results were not swapped as often, or not with the ranks, that the experiment is said to have: the curve "
            "is wrong, by how much nobody knows.",
            "Find out which pages were really swapped and give these alone, or fit what was really shown (without "
            "--swap).",
        )  # fmt: skip
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
        # A model that knows its support tells this by itself, value by value.
        return None if model.encoder is None or model.support is not None else Reason("with care", *SEGMENTS)
    if name in PLAIN:
        return Reason("with care", *PLAIN[name])
    if name in MISLEADING:
        return Reason("cannot tell", *MISLEADING[name])
    word: Word = "cannot tell" if finding.status == "blocking" else "with care"
    return Reason(word, finding.sentence, "See the checks below.")


TIRED = (
    "People click a result less where they have seen it higher up before, so that what they have had looks like "
    "position.",
    "Fit what people see for the first time alone.",
)
PERSONAL = (
    "Results stand higher for people who want them more, or did not stand where the log says: their wishes look like "
    "position, and the curve is wrong, by how much nobody knows.",
    "Name what rankings go by (--context), log positions as people see them, or swap ranks at random for two weeks and "
    "fit that.",
)
SEGMENTS = (
    "Some contexts do not compare all positions by themselves: there the curve leans on the other contexts.",
    "Use the curves of contexts that link all positions, or name fewer or coarser context columns.",
)
PLAIN = {
    "unequal pages": (
        "Pages of one query differ much in length: if results are logged only once users scroll to them, the curve is "
        "far too flat.",
        "Find out whether results are logged that nobody scrolled to; if pages differ by device, name it (--context).",
    ),
    "one click a page": (
        "Every page of the log has one click: if users click more often than that, clicks hide each other.",
        "Find out whether the log keeps all clicks of a page.",
    ),
    "unmoved queries": (
        "Part of the clicks is of queries whose results never moved: the curve is that of the others, and these may be "
        "read in another way.",
        "Use the curve for queries whose results move, or swap ranks at random in all queries.",
    ),
    "links within queries": (
        "Some positions are compared with each other by different queries only, so that the curve may be that of none.",
        "Name what these queries differ in (--context), or swap ranks at random in all of them.",
    ),
    "missing rows": (
        "Pages lack results between others: if results without a click were thinned out, the curve is too flat.",
        "Find out what is missing, and keep pages whole.",
    ),
    "clicked through": (
        "Many pages are clicked from top to bottom, as robots do, which makes the curve too flat.",
        "Leave out whoever made these pages, and fit again.",
    ),
    "one user": (
        "One user, a robot or a name for all unknown ones, makes a large part of the clicks.",
        "Leave that user out, and fit again.",
    ),
    "few users": (
        "The clicks are those of few users, and the intervals are too narrow for users who read otherwise.",
        "Fit again with --cluster user.",
    ),
    "clicks by ranker": (
        "Between rankers results move mostly one way, so that whatever else differs between them looks like position.",
        "Compare rankers that differ in the order of results alone, or swap ranks at random.",
    ),
    "depth by ranker": (
        "Pages of one ranker are read less far than those of others, and the curve is a mix of both.",
        "Name what differs between their users or pages (--context), such as the device, and fit again.",
    ),
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
MISLEADING = {
    "single clicks": (
        "No page has a second click, so that clicks hide each other: the curve may be off by a factor.",
        "Log every click of a page, or fit again where that is done.",
    ),
    "repeated clicks": (
        "A click seems to count for every display of its document, wherever it stood: the curve is too flat.",
        "Join clicks to displays by page as well, and fit again.",
    ),
    "context of clicks": (
        "A context column seems to be made of clicks, so that curves by it mean nothing.",
        "Leave out what is known only after the click, and fit again.",
    ),
}
"""Findings after which the numbers may not be used."""


def silence_reasons(model: Propensities, grounds: Grounds) -> Iterator[Reason]:
    """Yield the biases that no check would have seen: it was not made, or could not see what is too small for it."""
    findings = {finding.name: finding for finding in (*(grounds.findings or ()), *grounds.checks)}
    needed = set(UNSEEN)
    if grounds.findings is None:
        needed = {"trust bias"}
    elif not grounds.realised:
        needed -= {"drift with position", "usual position"}
    if model.places is not None:  # none is told of places, which have no order
        needed -= {"drift with position", "usual position", "clicks above"}
    unseen, advice, times = [], [], 0.0
    for name, (what, how) in UNSEEN.items():
        if name not in needed:
            continue
        tried = [findings[also] for also in (name, *ALSO.get(name, ())) if also in findings]
        blindness = min((_blindness(finding, model) for finding in tried), default=0.0)
        if not tried or blindness > 1:
            unseen.append(what)
            times = max(times, blindness)
        if not tried:
            advice.append(how)
    if times > 1:
        many = f"about {np.ceil(times**2):,.0f} times as many" if np.isfinite(times) else "more"
        advice.append(f"collect {many} clicks")
    if unseen:
        told = ", and ".join(advice)
        yield Reason(
            "with care",
            f"This log cannot show {', or '.join(unseen)}: such a bias would go unseen.",
            f"{told[0].upper()}{told[1:]}.",
        )


def _blindness(finding: Finding, model: Propensities) -> float:
    """Return the least effect that a check sees four times out of five over the least that matters."""
    if finding.p_value is None or not isinstance(finding.value, int | float):
        return 0.0 if finding.status == "ok" else float("inf")
    depth = math.log(max(model.curve.positions) / model.curve.anchor) or 1.0
    if model.places is not None:
        log_p = model.curve.relative(model.params, typical_context(model))
        depth = float(np.abs(log_p).max()) or 1.0
    size, matters = {
        "clicks above": (abs(math.log(max(finding.value, 1e-300))), MATTERS_ABOVE),
        "trust bias": (abs(finding.value), MATTERS_TRUST / depth),
        "drift with position": (abs(finding.value), MATTERS_DRIFT),
        "usual position": (abs(finding.value), MATTERS_USUAL),
        "usual position by user": (abs(finding.value), MATTERS_USUAL),
    }[finding.name]
    z = -NormalDist().inv_cdf(min(max(finding.p_value, 1e-300), 1.0) / 2)
    # Where p is 1 the effect is 0 and so is z: nothing tells the standard error.
    return SEEN * size / z / matters if z > 1e-3 else 0.0


ALSO = {"drift with position": ("drift",), "usual position": ("usual position by user",)}
"""Findings that stand for a check, beside the one of its name."""
MATTERS_ABOVE = math.log(2)
"""A click above that halves or doubles clicks below, on the log scale."""
MATTERS_TRUST = math.log(1.07)
"""A curve that ends 7 % higher for results of a relevance one standard deviation higher, on the log scale;
chosen on the logs of trust of `benchmarks/verdicts.py`."""
MATTERS_DRIFT = 0.1
"""A correlation between how units drift and how they move."""
MATTERS_USUAL = 0.35
"""A power of the usual position that, if all of it were bias, would be a factor of two at position 8."""
SEEN = 2.8
"""Standard errors that an effect must have to be seen four times out of five at the level .05."""
UNSEEN = {
    "drift with position": (
        "whether results change while they move on the page",
        "name the log's time column (--time)",
    ),
    "usual position": (
        "whether rankers put a result higher for people who want it more",
        "name the log's ranker column (--ranker)",
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
