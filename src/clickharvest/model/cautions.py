"""Cautions: sentences on what to keep in mind when reading a model's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from clickharvest.errors import InputError
from clickharvest.model.contexts import ContextColumn
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.prediction import Prediction
from clickharvest.model.support import FEW, rests_on_few, value_names
from clickharvest.model.typical import Model, Recorded
from clickharvest.positions.places import name_place, name_places
from clickharvest.words import clean_text, count

MOST_VALUES = 6
"""Values of contexts that a sentence names."""


def tell_cautions(model: Model, prediction: Prediction) -> list[str]:
    """Return the sentences on a model and what it predicts, most serious first; none where there is nothing to say.

    Example:
        Position 2 rests on two queries, the interval of position 3 is useless, and nothing links position 4.

        >>> import numpy as np
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> from clickharvest.model.support import Support
        >>> model = Propensities(
        ...     make_curve("constant", (1, 2, 3), anchor=1, n_features=0), {"b": np.log([0.5, 0.3])}, None,
        ...     shown=(1, 2, 3, 4), draws=np.array([[-0.8, -9], [-0.6, 9]]), draws_kind="clustered",
        ...     support=Support((), (None, 2.0, 60.0)))
        >>> for sentence in tell_cautions(model, model.predict()):
        ...     print(sentence)
        No estimate at position 4: nothing links it to position 1.
        Cannot tell at position 3: may be off by more than a factor of two.
        Position 2 rests on 2 queries: with fewer than 5, what they have in common is mistaken for the position.
    """
    sentences = (
        after_click(model),
        gaps(model),
        _undecided(prediction),
        few_queries(model),
        _few_clusters(model),
        _unlinked_values(model),
        _off_the_curve(model),
    )
    return [sentence for sentence in sentences if sentence]


def outcome_of(model: Recorded) -> str | None:
    """Return the outcome that a model was fitted on (`fit --outcome`); None for a model of examination."""
    outcome = FitInfo.of(model.info).outcome
    return None if outcome is None else clean_text(outcome)


def after_click(model: Model) -> str:
    """Return a sentence on a model of what comes of a click; empty for a model of examination."""
    outcome = outcome_of(model)
    if outcome is None:
        return ""
    return (
        f"These are not propensities of examination: they tell how often a click leads to {outcome}, relative to a "
        f"click at position {model.curve.anchor}. clickharvest weigh --outcome takes the model as --after-click."
    )


def require_examination(model: Recorded) -> None:
    """Raise an InputError where a model of examination is needed and this is one of what comes of a click."""
    if (outcome := outcome_of(model)) is not None:
        raise InputError(
            f"the model tells how often a click leads to {outcome}, not what is examined: give one that was fitted "
            "without --outcome (weigh takes this one as --after-click)"
        )


def gaps(model: Model) -> str:
    """Return a sentence on the positions without an estimate; empty where all have one."""
    if not model.unsupported:
        return ""
    it = "them" if len(model.unsupported) > 1 else "it"
    where, anchor = name_places(model.unsupported, model.places), name_place(model.curve.anchor, model.places)
    return f"No estimate at {where}: nothing links {it} to {anchor}."


def _undecided(prediction: Prediction) -> str:
    """Return a sentence on the supported positions whose state is `cannot tell`, and why."""
    wide = prediction.cannot_tell & prediction.supported
    where = [k for k, column in zip(prediction.positions, wide.T, strict=True) if column.any()]
    if not where:
        return ""
    contexts = "" if wide[:, wide.any(axis=0)].all() else " in some contexts"
    return f"Cannot tell{contexts} at {name_places(where, prediction.places)}: {prediction.untold.removesuffix('.')}."


def few_queries(model: Model) -> str:
    """Return a sentence on the positions that rest on one to four effective queries; empty where none does."""
    return _few(model, () if model.support is None else model.support.queries, ("query", "queries"))


def _few_clusters(model: Model) -> str:
    """Return the same of users, or of what else clusters the clicks instead of queries."""
    info = model.fit_info
    clusters = (info.clustered or {}).get("effective_queries")
    if info.cluster_column is None or not isinstance(clusters, list):
        return ""
    known = dict(zip(model.curve.positions, clusters, strict=False)) | {model.curve.anchor: None}
    return _few(model, [known.get(k) for k in model.curve.positions], info.cluster_nouns)


def _few(model: Model, effective: Sequence[float | None], nouns: tuple[str, str]) -> str:
    sizes = zip(model.curve.positions, effective, strict=False)
    few = {k: size for k, size in sizes if size is not None and rests_on_few(size)}
    if not few:
        return ""
    least, most = (f"{max(end(few.values()), 1):.0f}" for end in (min, max))
    sizes_named = f"{least} to {most} {nouns[1]}" if least != most else count(int(least), *nouns)
    where = _capitalised(name_places(few, model.places))
    return (
        f"{where} {'rest' if len(few) > 1 else 'rests'} on {sizes_named}: with fewer than {FEW}, what they have in "
        f"common is mistaken for the {'position' if model.places is None else 'place'}."
    )


def off_curve_positions(model: Model) -> list[int]:
    """Return the positions that do not follow the curve of the others."""
    odd = model.fit_info.odd or ()
    return [k for k in model.curve.positions if k in odd]


def off_curve_in_contexts(model: Model) -> dict[int, list[int]]:
    """Return the positions at which a feature does not do what it does at the others, by the number of the feature."""
    odd_in, names = model.fit_info.odd_in or {}, () if model.encoder is None else model.encoder.feature_names
    by_feature = {i: [k for k in model.curve.positions if k in odd_in.get(name, ())] for i, name in enumerate(names)}
    return {i: positions for i, positions in by_feature.items() if positions}


def _off_the_curve(model: Model) -> str:
    """Return a sentence on the positions that do not follow the curve of the others."""
    where = [("", odd)] if (odd := off_curve_positions(model)) else []
    parts = () if model.encoder is None else model.encoder.parts
    contexts = [_when(part, feature) for part in parts for feature in part.features]
    where += [(contexts[i], positions) for i, positions in off_curve_in_contexts(model).items()]
    if not where:
        return ""
    named = [name_places(positions, model.places) + context for context, positions in where]
    several = len(where) > 1 or len(where[0][1]) > 1
    return (
        f"{_capitalised(_first(named))} {'do' if several else 'does'} not follow the curve of the others: is "
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


def _unlinked_values(model: Model) -> str:
    """Return a sentence on the values of contexts that are unsupported at some positions."""
    if model.support is None or model.encoder is None:
        return ""
    positions = set(model.curve.positions)
    unlinked = [
        f"{clean_text(part.name, 16)} = {clean_text(value, 16)} at {name_places(missing, model.places)}"
        for part, column in zip(model.encoder.parts, model.support.columns, strict=True)
        for value, linked in zip(value_names(part), column.linked, strict=True)
        if (missing := positions.difference(linked))
    ]
    if not unlinked:
        return ""
    what = "positions" if model.places is None else "places"
    return (
        f"Not supported: {_first(unlinked)}. Too few queries with that value link these {what} to "
        f"{name_place(model.curve.anchor, model.places)}; there the curve extrapolates from other contexts."
    )


def _first(parts: list[str]) -> str:
    """Return the first parts of a list, and how many more there are."""
    rest = len(parts) - MOST_VALUES
    return "; ".join(parts[:MOST_VALUES]) + (f"; and {rest} more" if rest > 0 else "")


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
