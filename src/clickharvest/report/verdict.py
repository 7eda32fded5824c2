"""The verdict: may one act on a model's numbers? Trustworthy, with care, or cannot tell.

| word | means |
|---|---|
| trustworthy | every position is known to a factor of two, every check that can find a bias was made and found none |
| with care | the numbers hold within the limits that are named |
| cannot tell | they may not be used before what is named is done |

Nothing is averaged: the worst reason gives the word. Silence is no evidence: a check that was not made counts against
the model, and so does one that could hardly have seen a bias of a size that matters (`reasons`). What checks find
counts at the level .05 divided by their number, so that they cost a log without bias its good word 5 times in 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np

from clickharvest.diagnosis.findings import Finding, Status
from clickharvest.model.cautions import clustered_by, outcome_of
from clickharvest.model.propensities import Propensities
from clickharvest.model.support import FEW, SPAN, rests_on_few
from clickharvest.model.typical import typical_context
from clickharvest.positions.places import name_place, name_places
from clickharvest.report.phrases import queries
from clickharvest.report.reasons import Grounds, Reason, Word, check_reasons, silence_reasons
from clickharvest.report.standing import ROUGH, Standing, State, standings
from clickharvest.report.values import column_values
from clickharvest.words import clean_text, cluster_nouns, count

NORMAL = 1.96
"""Standard errors to either side of the estimate in a 95 % interval."""
MOST_CONTEXTS = 60
"""Contexts that are looked at, each one value away from the typical one."""
LEAST_CLUSTERS = 3
"""Queries, or what else clusters, that estimators must have for error bars."""
FAILED = ("ran out of iterations", "failed")
"""How the status of a fit begins whose parameters cannot be used."""
CLUSTERED = "Fit again with clustered intervals (--objective clickshare --intervals auto), which are made for that."
"""What to do where intervals of another kind do not hold."""


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

    def __str__(self) -> str:
        return f"{self.word}. {self.why} {self.advice}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain strings, lists and dicts."""
        return asdict(self)


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
        ('with care', 'Whether the log misleads, by drift or clicks that end the search, was not tested here.')
    """
    grounds = Grounds(checks=kept_checks(model)) if grounds is None else grounds
    reasons = sorted(_reasons(model, grounds, level), key=lambda reason: -get_args(Word).index(reason.word))
    if reasons:
        first, *others = reasons
        return Verdict(first.word, first.why, first.advice, tuple(others))
    made = [finding for finding in (*(grounds.findings or ()), *grounds.checks) if finding.status != "blocking"]
    span = max(own.factor for row in standings(model, level=level) for own in row)
    what = "position" if model.places is None else "place"
    return Verdict(
        "trustworthy",
        f"Every {what} is known to {100 * (span**0.5 - 1):.0f} % or better, and none of the {len(made)} checks "
        "speaks against it.",
        f"Use it for weights at {name_places(model.curve.positions, model.places)}, and look again when the pages or "
        "the rankers change.",
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
            "Whether the log misleads, by drift or clicks that end the search, was not tested here.",
            "Run clickharvest report MODEL --log LOG, which tests the log.",
        )
    elif grounds.same_data is False:
        yield Reason(
            "with care",
            "The log given here is not the data that the model was fitted on, so the two may not agree.",
            "Give the log that the model was fitted on, or fit it again on this one.",
        )
    yield from check_reasons(model, grounds)
    yield from silence_reasons(model, grounds)
    if model.draws is not None:
        yield from _of_contexts(model, level)
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
    by, clusters = clustered_by(model.info), model.info.get("clusters")
    if by is not None and isinstance(clusters, int) and clusters < LEAST_CLUSTERS:
        (one, _), found = cluster_nouns(by), count(clusters, *cluster_nouns(by))
        yield Reason(
            "cannot tell",
            f"Error bars would be by {clean_text(by)}, and all clicks are of {found}: too few to tell how far another "
            f"{one} would be from them.",
            f"Fit again without --cluster {clean_text(by)}, or name one of which there are more.",
        )
    elif model.info.get("queries") == 1:
        yield Reason(
            "cannot tell",
            "All clicks are of one query, so nothing tells how far another query would be from it.",
            "Collect clicks of at least five queries, better of fifty.",
        )
    elif by is None and isinstance(clusters, int) and clusters < LEAST_CLUSTERS:
        yield Reason(
            "cannot tell",
            f"All clicks are of {count(clusters, 'query', 'queries')}, so nothing tells how far another query would "
            "be from them.",
            "Collect clicks of at least five queries, better of fifty.",
        )
    elif model.info.get("by_folds"):
        yield Reason(
            "cannot tell",
            "This log chose the curve, and no error bars of this objective count how far off the choice may be.",
            CLUSTERED,
        )
    else:
        yield Reason(
            "cannot tell",
            "The model has no error bars, so nothing tells how far off its numbers may be.",
            "Fit again with intervals (clickharvest fit without --intervals none).",
        )


def _of_positions(model: Propensities, level: float) -> Iterator[Reason]:
    """Yield what is unknown, rests on few queries, or is known roughly, position by position."""

    def _named(positions: Sequence[int]) -> str:
        return name_places(positions, model.places)

    anchor, found, by = int(model.curve.anchor), standings(model, level=level)[0], clustered_by(model.info)
    held: dict[State, list[int]] = {s: [own.position for own in found if own.state == s] for s in get_args(State)}
    usable = sorted([anchor, *held["rough"], *held["good"]])
    use = f"Use it for weights at {_named(usable)} alone" if len(usable) > 1 else "Do not use it for weights"
    word: Word = "with care" if len(usable) > 1 else "cannot tell"
    if held["wide"]:
        yield Reason(
            word,
            f"At {_named(held['wide'])} the interval spans a factor of {SPAN:g} or more, so the log cannot tell "
            f"{_asked(model, 'how often people look', ' there')}.",
            f"{use}, and {_swap(model, held['wide'][0])}.",
        )
    if held["thin"]:
        one, many = ("query", "queries") if by is None else cluster_nouns(by)
        others = "others may be read in another way" if by is None else f"another {one} may be unlike them"
        yield Reason(
            word,
            f"What is known about {_named(held['thin'])} rests on fewer than {FEW} {many}, and {others}.",
            f"{use}, until the log has more {many}.",
        )
    elif by is not None and any(map(rests_on_few, model.support.queries if model.support else ())):
        yield Reason(
            "with care",
            f"The numbers are those of fewer than {FEW} queries, and others may be read in another way.",
            "Use them for these queries alone.",
        )
    if held["unlinked"]:
        yield Reason(
            word,
            f"Nothing in the log compares {_named(held['unlinked'])} with {name_place(anchor, model.places)}.",
            f"{use}, and {_swap(model, held['unlinked'][0])}.",
        )
    for note in sorted({str(own.note) for own in found if own.state == "unsupported"}):
        where = [own.position for own in found if own.state == "unsupported" and own.note == note]
        yield Reason(
            word,
            f"At {_named(where)} the number for a typical query is not supported ({note}).",
            CLUSTERED if f"{model.draws_kind} intervals" in note else f"{use}, and {_swap(model, where[0])}.",
        )
    if held["rough"]:
        widest = max(own.factor for own in found if own.state == "rough")
        more = float(np.ceil((np.log(widest) / np.log(ROUGH)) ** 2))
        yield Reason(
            "with care",
            f"At {_named(held['rough'])} {_asked(model, 'examination')} is known to a factor of up to {widest:.2g} "
            "only.",
            f"Collect {_times_as_many(model, more)}, or {_swap(model, held['rough'][-1])}.",
        )


def _times_as_many(model: Propensities, times: float) -> str:
    """Return what there should be so many times as much of: clicks, or users where they cluster."""
    by, more = clustered_by(model.info), f"about {times:,.0f} times as many"
    return f"{more} clicks" if by is None else f"clicks of {more} {cluster_nouns(by)[1]}"


def _of_contexts(model: Propensities, level: float) -> Iterator[Reason]:
    """Yield the kinds of queries whose curve is known worse than that of a typical query."""
    names, rows = [], []
    for column in column_values(model):
        for choice in column.choices:
            if choice.share > 0 and not (column.range and choice is column.choices[1]):
                names.append(queries(column, choice))
                rows.append(typical_context(model, (column.start, choice.features)))
    if not rows:
        return
    typical = {own.position: own.state for own in standings(model, level=level)[0]}
    found = standings(model, np.concatenate(rows[:MOST_CONTEXTS]), level=level)
    for state, told in (
        ("unsupported", "the number at {where} is not supported ({note})"),
        ("wide", f"the interval at {{where}} spans a factor of {SPAN:g} or more"),
        ("rough", "{asked} at {where} is known to a factor of up to {factor:.2g} only"),
    ):
        worse = [
            (name, own)
            for name, row in zip(names, found, strict=False)
            if (own := [each for each in row if each.state == state and _is_worse(state, typical[each.position])])
        ]
        if worse:
            yield _worse(worse, told, model)


def _is_worse(state: State, other: State) -> bool:
    return get_args(State).index(state) < get_args(State).index(other)


def _worse(worse: Sequence[tuple[str, Sequence[Standing]]], told: str, model: Propensities) -> Reason:
    name, own = max(worse, key=lambda each: len(each[1]))
    where = name_places([each.position for each in own], model.places)
    factor, asked = max(each.factor for each in own), _asked(model, "examination")
    what = told.format(where=where, factor=factor, note=own[0].note, asked=asked)
    others = count(len(worse) - 1, "more kind of queries is", "more kinds of queries are")
    more = f", and {others} like that" if len(worse) > 1 else ""
    return Reason("with care", f"For {name}, {what}{more}.", f"Collect more {name}, or use the curve for others alone.")


def _asked(model: Propensities, examined: str, there: str = "") -> str:
    """Return what a model tells, in words: of examination, or of what comes of a click."""
    outcome = outcome_of(model)
    return f"{examined}{there}" if outcome is None else f"how often a click{there} leads to {outcome}"


def _swap(model: Propensities, k: int) -> str:
    """Return the advice to swap a position with the anchor, until an interval would no longer be rough."""
    clustered = model.info.get("clustered")
    told: Any = clustered.get("overdispersion") if isinstance(clustered, Mapping) else None
    dispersion = max(1.0, told) if isinstance(told, int | float) else 1.0
    # The standard error of log p_k / p_anchor is about 2 / √clicks where both places are shown equally often.
    clicks = dispersion * (4 * NORMAL / np.log(ROUGH)) ** 2
    where = f"ranks {model.curve.anchor} and {k}"
    if model.places is not None:
        where = f"{model.places.name(model.curve.anchor)} and {model.places.name(k)}"
    return (
        f"swap the results at {where} at random on part of the traffic, for two weeks or "
        f"until they have about {count(float(np.ceil(clicks / 10) * 10), 'click')}"
    )
