"""What to keep in mind when reading a model's numbers, in sentences: what they do not speak of, or hardly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.model.curves import Curve
from clickharvest.model.prediction import Prediction
from clickharvest.model.support import FEW, Support, rests_on_few, value_names
from clickharvest.positions.places import Places, name_place, name_places
from clickharvest.words import clean_text, cluster_nouns, count

MOST_VALUES = 6
"""Values of contexts that a sentence names."""


class _Model(Protocol):
    """What these sentences need of `Propensities`."""

    @property
    def curve(self) -> Curve: ...
    @property
    def encoder(self) -> ContextEncoder | None: ...
    @property
    def unsupported(self) -> tuple[int, ...]: ...
    @property
    def support(self) -> Support | None: ...
    @property
    def places(self) -> Places | None: ...
    @property
    def info(self) -> Mapping[str, Any]: ...


def tell_cautions(model: _Model, prediction: Prediction) -> list[str]:
    """Return the sentences on a model and what it predicts, most serious first; none where there is nothing to say.

    Example:
        Position 2 rests on two queries, the interval of position 3 is useless, and nothing links position 4.

        >>> import numpy as np
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> model = Propensities(
        ...     make_curve("constant", (1, 2, 3), anchor=1, n_features=0), {"b": np.log([0.5, 0.3])}, None,
        ...     shown=(1, 2, 3, 4), draws=np.array([[-0.8, -9], [-0.6, 9]]), draws_kind="clustered",
        ...     support=Support((), (None, 2.0, 60.0)))
        >>> for sentence in tell_cautions(model, model.predict()):
        ...     print(sentence)
        No estimate at position 4: nothing links it to position 1.
        Cannot tell at position 3: may be off by more than a factor of two.
        Position 2 rests on 2 queries: with fewer than 5, what these have in common looks like the position.
    """
    told = (
        after_click(model),
        gaps(model),
        undecided(prediction),
        few_queries(model),
        few_clusters(model),
        unlinked_values(model),
        off_the_curve(model),
    )
    return [sentence for sentence in told if sentence]


def outcome_of(model: _Model) -> str | None:
    """Return what a model is of where it tells what comes of a click (`fit --outcome`); None for examination."""
    found = model.info.get("outcome")
    return clean_text(found) if isinstance(found, str) else None


def after_click(model: _Model) -> str:
    """Return a sentence on a model of what comes of a click; nothing for one of examination."""
    outcome = outcome_of(model)
    if outcome is None:
        return ""
    return (
        f"These are not propensities of examination: they tell how often a click leads to {outcome}, relative to a "
        f"click at position {model.curve.anchor}. clickharvest weigh --outcome takes the model as --after-click."
    )


def require_examination(model: _Model) -> None:
    """Refuse a model of what comes of a click where one of examination is needed.

    Raises:
        InputError: it is one.
    """
    if (outcome := outcome_of(model)) is not None:
        raise InputError(
            f"the model tells how often a click leads to {outcome}, not what is examined: give one that was fitted "
            "without --outcome (weigh takes this one as --after-click)"
        )


def gaps(model: _Model) -> str:
    """Return a sentence on the positions without an estimate; nothing where all have one."""
    if not model.unsupported:
        return ""
    it = "them" if len(model.unsupported) > 1 else "it"
    where, anchor = name_places(model.unsupported, model.places), name_place(model.curve.anchor, model.places)
    return f"No estimate at {where}: nothing links {it} to {anchor}."


def undecided(prediction: Prediction) -> str:
    """Return a sentence on the supported positions whose state is `cannot tell`, and why; nothing without such."""
    wide = prediction.cannot_tell & prediction.supported
    where = [k for k, column in zip(prediction.positions, wide.T, strict=True) if column.any()]
    if not where:
        return ""
    contexts = "" if wide[:, wide.any(axis=0)].all() else " in some contexts"
    return f"Cannot tell{contexts} at {name_places(where, prediction.places)}: {prediction.untold.removesuffix('.')}."


def few_queries(model: _Model) -> str:
    """Return a sentence on the positions that rest on one to four effective queries; nothing without such."""
    told = () if model.support is None else model.support.queries
    return _few(model, told, ("query", "queries"))


def clustered_by(info: Mapping[str, Any]) -> str | None:
    """Return what clusters the clicks that a model was fitted on, where it is not queries."""
    by = info.get("clustered_by", "query")
    return by if isinstance(by, str) and by != "query" else None


def effective_clusters(model: _Model) -> dict[int, float | None] | None:
    """Return the effective users, or what else clusters instead of queries, by position; None where queries do."""
    clustered = model.info.get("clustered")
    told = clustered.get("effective_queries") if isinstance(clustered, Mapping) else None
    if clustered_by(model.info) is None or not isinstance(told, list):
        return None
    return {k: n for k, n in zip(model.curve.positions, told, strict=False) if k != model.curve.anchor}


def few_clusters(model: _Model) -> str:
    """Return the same of users, or what else clusters instead of queries."""
    by, clusters = clustered_by(model.info), effective_clusters(model)
    if by is None or clusters is None:
        return ""
    return _few(model, [clusters.get(k) for k in model.curve.positions], cluster_nouns(by))


def _few(model: _Model, effective: Sequence[float | None], nouns: tuple[str, str]) -> str:
    told = zip(model.curve.positions, effective, strict=False)
    few = {k: own for k, own in told if own is not None and rests_on_few(own)}
    if not few:
        return ""
    least, most = (f"{max(end(few.values()), 1):.0f}" for end in (min, max))
    spelt = f"{least} to {most} {nouns[1]}" if least != most else count(int(least), *nouns)
    verb = "rest" if len(few) > 1 else "rests"
    which = name_places(few, model.places)
    return (
        f"{which[0].upper()}{which[1:]} {verb} on {spelt}: with fewer than {FEW}, what these have in common looks like "
        f"the {'position' if model.places is None else 'place'}."
    )


def odd_positions(model: _Model) -> list[int]:
    """Return the positions that do not follow the curve of the others."""
    found = model.info.get("odd")
    return [k for k in model.curve.positions if k in found] if isinstance(found, list) else []


def odd_in_contexts(model: _Model) -> dict[int, list[int]]:
    """Return the positions at which a feature does not do what it does at the others, by the number of the feature."""
    found = model.info.get("odd_in")
    if model.encoder is None or not isinstance(found, Mapping):
        return {}
    named = {i: found[name] for i, name in enumerate(model.encoder.feature_names) if isinstance(found.get(name), list)}
    return {i: at for i, some in named.items() if (at := [k for k in model.curve.positions if k in some])}


def off_the_curve(model: _Model) -> str:
    """Return a sentence on the positions that do not follow the curve of the others; nothing without such."""
    where = [("", odd_positions(model))] if odd_positions(model) else []
    if model.encoder is not None:
        when = [_when(part, feature) for part in model.encoder.parts for feature in part.features]
        where += [(when[i], at) for i, at in odd_in_contexts(model).items()]
    if not where:
        return ""
    told = "; ".join(name_places(at, model.places) + context for context, at in where[:MOST_VALUES])
    more = f"; and {len(where) - MOST_VALUES} more" if len(where) > MOST_VALUES else ""
    several = len(where) > 1 or len(where[0][1]) > 1
    return (
        f"{told[0].upper()}{told[1:]}{more} {'do' if several else 'does'} not follow the curve of the others: is "
        "something else shown there, such as an advertisement?"
    )


def _when(part: ContextColumn, feature: str) -> str:
    """Return in which contexts a feature of a column is not 0, in words."""
    name, level = clean_text(part.name, 16), feature[len(part.name) + 1 :]
    if level == "is missing":
        return f" where {name} is missing"
    if part.kind == "categorical":
        return f" where {name} = {clean_text(level, 16)}"
    return f" where {name} = yes" if part.kind == "boolean" else f" as {name} changes"


def unlinked_values(model: _Model) -> str:
    """Return a sentence on the values of contexts that are unsupported at some positions; nothing without such."""
    if model.support is None or model.encoder is None:
        return ""
    positions = set(model.curve.positions)
    found = [
        f"{clean_text(part.name, 16)} = {clean_text(value, 16)} at {name_places(missing, model.places)}"
        for part, column in zip(model.encoder.parts, model.support.columns, strict=True)
        for value, linked in zip(value_names(part), column.linked, strict=True)
        if (missing := positions.difference(linked))
    ]
    if not found:
        return ""
    more = f"; and {len(found) - MOST_VALUES} more" if len(found) > MOST_VALUES else ""
    what = "positions" if model.places is None else "places"
    return (
        f"Not supported: {'; '.join(found[:MOST_VALUES])}{more}. Too few queries with that value link these {what} to "
        f"{name_place(model.curve.anchor, model.places)}; the numbers there are what the curve makes of other contexts."
    )
