"""What a model says about itself: for people in at most 80 columns, for machines as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.budget import CANNOT_TELL, USABLE
from clickharvest.model.cautions import clustered_by, outcome_of, tell_cautions
from clickharvest.model.contexts import ContextEncoder
from clickharvest.model.contrasts import Contrast, find_contrasts
from clickharvest.model.curves import Curve, Params
from clickharvest.model.prediction import Prediction
from clickharvest.model.provenance import Provenance
from clickharvest.model.support import Support, rests_on_few, spell_queries
from clickharvest.model.typical import Varied, typical_context, typical_names, varied_contexts
from clickharvest.positions.places import Places, name_place, spell_label
from clickharvest.words import clean_text, cluster_nouns, count, finite, spell_thinning

WIDTH = 80
MOST_POSITIONS = 25
MOST_CONTEXTS = 15
MOST_COLUMNS = 7
LARGE = 1_000
"""Beyond it, no digits of a propensity are shown."""
MOST_WORDS = 4_000
"""Characters shown of one thing that a file tells of its origin."""
UNTOLD = "The model does not tell where it comes from: an older version wrote its file, or it was put together by hand."


class _Told(Protocol):
    """What any model tells of where it comes from."""

    @property
    def info(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Provenance | None: ...


class _Model(_Told, Protocol):
    """What a summary needs of `Propensities`, whose `str` it is."""

    @property
    def curve(self) -> Curve: ...
    @property
    def params(self) -> Params: ...
    @property
    def encoder(self) -> ContextEncoder | None: ...
    @property
    def shown(self) -> tuple[int, ...]: ...
    @property
    def unsupported(self) -> tuple[int, ...]: ...
    @property
    def draws(self) -> NDArray[np.float32] | None: ...
    @property
    def draws_kind(self) -> str | None: ...
    @property
    def support(self) -> Support | None: ...
    @property
    def places(self) -> Places | None: ...
    def spread(self) -> tuple[Curve, NDArray[np.float64], float]: ...
    def predict_encoded(self, x: Any, *, level: float = 0.95) -> Prediction: ...


def summarise(model: _Model) -> str:
    """Return what `str` of a model shows: curve, data, selection, propensities, what there is no estimate for.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> print(summarise(Propensities(curve, {"b": np.log([0.5])}, None, shown=(1, 2, 3))))
        Examination propensities: curve constant
        <BLANKLINE>
        Propensity relative to position 1:
        <BLANKLINE>
        position  propensity
               1      1.0000
               2      0.5000
               3           -
        <BLANKLINE>
        No estimate at position 3: nothing links it to position 1.
    """
    info = model.info
    parts = [_title(model), spell_fitted(info), _selection(info)]
    typical, varied = typical_context(model), varied_contexts(model)
    # A column that has its typical value alone has nothing to show.
    telling = {one.column for one in varied if (one.x != typical).any()}
    varied = [one for one in varied if one.column in telling]
    predicted = model.predict_encoded(np.concatenate([typical, *(one.x for one in varied[:MOST_CONTEXTS])]))
    what = "Propensity" if outcome_of(model) is None else "How often a click leads to it"
    where = f"{what} relative to {name_place(model.curve.anchor, model.places)}"
    if model.encoder is not None:
        where += f" in a typical context ({', '.join(typical_names(model))})"
    parts += [wrap(where + ":"), _positions(model, predicted), _contexts(model, predicted, varied)]
    parts += [_contrast(model)]
    parts += [wrap(sentence) for sentence in tell_cautions(model, predicted)]
    return "\n\n".join(part for part in parts if part)


def origin(model: _Told) -> str:
    """Return what a model tells of where it comes from, as `clickharvest show` prints it below the summary.

    A command stands on one line, however long, so that it can be copied.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> told = Provenance({"clickharvest": "1.0"}, "PBM", made="2026-01-31T12:00:00Z", command=("fit", "log.csv"))
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> print(origin(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), provenance=told)))
        Made: 2026-01-31 12:00:00 UTC
        Made with: clickharvest 1.0
        Made by: PBM
        Command: clickharvest fit log.csv
    """
    data = model.info.get("data")
    rows = [] if model.provenance is None else model.provenance.rows()
    told = [f"Data (SHA-256): {clean_text(data, 64)}"] if isinstance(data, str) else []
    for label, text in rows:
        line = f"{label}: {clean_text(text, MOST_WORDS)}"
        told.append(line if label == "Command" else wrap(line))
    return "\n".join(told if rows else [*told, wrap(UNTOLD)])


def describe_model(model: _Model) -> dict[str, Any]:
    """Return what a model says of itself, as JSON holds it."""
    encoder = model.encoder
    typical = model.predict_encoded(typical_context(model))
    return {
        "curve": model.curve.spec,
        "anchor": int(model.curve.anchor),
        "positions": list(model.shown),
        "unsupported": list(model.unsupported),
        "places": None if model.places is None else model.places.to_dict(),
        "context": {} if encoder is None else {part.name: part.kind for part in encoder.parts},
        "features": [] if encoder is None else list(encoder.feature_names),
        "intervals": model.draws_kind,
        "draws": 0 if model.draws is None else len(model.draws),
        "parameters": {name: value.tolist() for name, value in model.params.items()},
        "typical_context": prediction_records(typical),
        "clearest_contrast": _contrast_record(model),
        "support": None if model.support is None else model.support.to_dict(),
        "cautions": tell_cautions(model, typical),
        "info": dict(model.info),
        "provenance": None if model.provenance is None else model.provenance.to_dict(),
    }


def _contrast_record(model: _Model) -> dict[str, Any] | None:
    """Return which values of a column differ most clearly, and whether beyond chance."""
    if model.encoder is None or (clearest := _clearest(model)) is None:
        return None
    found, high, low = clearest
    column = model.encoder.parts[high.column].name
    return {"column": column, "high": high.value, "low": low.value, "position": found.position, "clear": found.clear}


def prediction_records(prediction: Prediction) -> list[dict[str, Any]]:
    """Return the first row of a prediction as one record per position, None for what is not a finite number."""
    places, states, notes = prediction.places, prediction.state[0], prediction.notes()[0]
    return [
        {
            "position": position,
            **({} if places is None else {"place": places.name(position)}),
            **{name: finite(getattr(prediction, name)[0, i]) for name in ("propensity", "lower", "upper")},
            "state": str(states[i]),
            "queries": None if prediction.queries is None else prediction.queries[i],
            "note": notes[i],
        }
        for i, position in enumerate(prediction.positions)
    ]


def _title(model: _Model) -> str:
    shape = ", ".join(f"{name} {size}" for name, size in model.curve.shape.items())
    outcome = outcome_of(model)
    what = "Examination propensities" if outcome is None else f"{outcome} after a click, by position"
    text = f"{what}: curve {model.curve.name}{f' ({shape})' if shape else ''}"
    for key in ("objective", "relevance", "estimator"):
        if key in model.info:
            text += f", {key} {clean_text(model.info[key])}"
    return wrap(text)


def spell_counts(info: Mapping[str, Any]) -> list[str]:
    """Return what a model was fitted on, as far as it tells.

    Example:
        >>> spell_counts({"units": 1, "queries": 2000, "clicks": "many"})
        ['1 unit', '2,000 queries']
    """
    clicks = ("click", "clicks") if "outcome" not in info else ("click that led to it", "clicks that led to it")
    nouns = {"units": ("unit", "units"), "clicks": clicks, "queries": ("query", "queries")}
    told = [count(info[key], *noun) for key, noun in nouns.items() if isinstance(info.get(key), int)]
    if (by := clustered_by(info)) and isinstance(info.get("clusters"), int):
        told.append(count(info["clusters"], *cluster_nouns(by)))
    return told


def spell_thinned(info: Mapping[str, Any]) -> str:
    """Return a sentence on a model that was fitted on a part of the queries; nothing of one that was not.

    Example:
        >>> print(spell_thinned({"clicks": 25, "thinned_from": 100}))
        Thinned to 25 of 100 clicks, those of whole queries chosen by hash: intervals are about 2.0 times as wide.
    """
    clicks, whole = info.get("clicks"), info.get("thinned_from")
    if not isinstance(clicks, int) or not isinstance(whole, int) or not 0 < clicks <= whole:
        return ""
    return spell_thinning(clicks, whole)


def spell_fitted(info: Any) -> str:
    """Return what a model was fitted on and how the fit ended, as far as it tells."""
    counts = spell_counts(info)
    sentences = [f"Fitted on {', '.join(counts)}."] if counts else []
    sentences += [told] if (told := spell_thinned(info)) else []
    if "status" in info:
        sentences.append(f"The fit {clean_text(info['status'], 200)}.")
    return wrap(" ".join(sentences))


def _selection(info: Mapping[str, Any]) -> str:
    """Return a table of the best penalty of each curve, held-out score and standard error."""
    candidates, rows_drawn = info.get("selection"), info.get("chosen_on")
    if not isinstance(candidates, list) or not candidates:
        return ""
    best: dict[str, dict[str, Any]] = {}
    for candidate in candidates:
        name = _spec(candidate.get("curve"))
        if name not in best or _rank(candidate) > _rank(best[name]):
            best[name] = candidate
    rows = [
        [
            ("* " if candidate.get("chosen") else "  ") + name,
            "pooled" if candidate.get("penalty") is None else _number(candidate["penalty"], ".4g"),
            _number(candidate.get("score"), ".5f"),
            _number(None if candidate.get("folds") else candidate.get("se"), ".5f"),
            spell_left(candidate.get("folds")).ljust(len("left after 1 folds")),
        ]
        for name, candidate in best.items()
    ]
    some = f" on {count(rows_drawn, 'row')} drawn at random" if isinstance(rows_drawn, int) else ""
    told = f"Selected by cross-validation{some} (held-out log likelihood per click; best penalty of each curve):"
    return f"{wrap(told)}\n\n{aligned(['  curve', 'penalty', 'score', 's.e.', ''], rows, left=1)}"


def spell_left(folds: Any) -> str:
    """Return in how many folds a curve was tried that was then left; nothing for one that was tried in all of them.

    Example:
        >>> spell_left(1), spell_left(3), spell_left(None)
        ('left after 1 fold', 'left after 3 folds', '')
    """
    return f"left after {count(folds, 'fold')}" if isinstance(folds, int) and folds > 0 else ""


def _rank(candidate: dict[str, Any]) -> tuple[bool, float]:
    score = candidate.get("score")
    return bool(candidate.get("chosen")), -math.inf if score is None else score


def _spec(spec: Any) -> str:
    if isinstance(spec, dict):
        spec = " ".join(str(value) for value in spec.values())
    return clean_text(spec, 24)


def _positions(model: _Model, prediction: Prediction) -> str:
    places = model.places
    where = ["position"] if places is None else [clean_text(column, 16) for column in places.columns]
    header = [*where, "propensity"]
    if model.draws is not None:
        header += ["95 % interval"]
    rows = []
    records = prediction_records(prediction)[:MOST_POSITIONS]
    for record in records:
        at = record["position"]
        label = (at,) if places is None else places.labels[at - 1]
        row = [clean_text(spell_label(value), 16) for value in label]
        row += [_number(record["propensity"], ".4f")]
        if model.draws is not None:
            ends = [spell_end(record[end], ".4f") for end in ("lower", "upper")]
            row.append("-" if record["lower"] is None else f"{ends[0]} to {ends[1]}")
        rows.append(row)
    beside = [_beside(record) for record in records]
    if any(beside):
        header, rows = [*header, ""], [[*row, words] for row, words in zip(rows, beside, strict=True)]
    if len(model.shown) > MOST_POSITIONS:
        rows.append([f"… {len(model.shown) - MOST_POSITIONS} more", *[""] * (len(header) - 1)])
    table = aligned(header, rows)
    if model.draws is None:
        return table
    simulated = "" if model.draws_kind == "clustered" else f" {len(model.draws):,} draws,"
    by = clustered_by(model.info)
    own = f" by {clean_text(by)}," if by else ""
    what = "position" if places is None else "place"
    return f"{table}\n\nIntervals: {model.draws_kind},{own}{simulated} each {what} on its own."


def _beside(record: dict[str, Any]) -> str:
    """Return the words beside an interval."""
    told = [] if record["state"] == USABLE or record["propensity"] is None else [record["state"]]
    told += [spell_queries(record["queries"])] if rests_on_few(record["queries"]) else []
    return "; ".join(told)


def _clearest(model: _Model) -> tuple[Contrast, Varied, Varied] | None:
    """Return how two values of a column differ most clearly, that with more and that with less; None if none do."""
    varied = varied_contexts(model, most=None)
    if not varied:
        return None
    contrasts = find_contrasts(model, np.concatenate([one.x for one in varied]), [one.column for one in varied])
    found = None if contrasts is None else contrasts.clearest()
    return None if found is None else (found, varied[found.high], varied[found.low])


def _contrast(model: _Model) -> str:
    """Return which values of a column are read otherwise than others, as far as that is beyond chance."""
    if (clearest := _clearest(model)) is None:
        return ""
    found, high, low = clearest
    if not found.clear:
        return wrap("No two values of a column differ by more than chance might make them.")
    there = name_place(found.position, model.places)
    what = f"{there} is looked at more" if outcome_of(model) is None else f"a click at {there} leads to it more often"
    return wrap(f"Clearest difference: {what} with {high.name} than with {low.name}.")


def _contexts(model: _Model, prediction: Prediction, varied: list[Varied]) -> str:
    """Return a table of contexts that differ from the typical one, which is the first that was predicted for."""
    if not varied:
        return ""
    others = [i for i, k in enumerate(model.shown) if k in model.curve.positions and k != model.curve.anchor]
    spread = np.unique(np.linspace(0, len(others) - 1, min(MOST_COLUMNS, len(others))).astype(int))
    columns = [others[i] for i in spread]
    cells = np.array([[_number(p, ".3f") for p in row] for row in prediction.propensity[1:]])
    cells[prediction.cannot_tell[1:]] = "?"
    rows = [[one.name, *row[columns]] for one, row in zip(varied, cells, strict=False)]
    legend = f"? {CANNOT_TELL}" if any("?" in row[1:] for row in rows) else ""
    if len(varied) > len(rows):
        rows.append([f"… {len(varied) - len(rows)} more", *[""] * len(columns)])
    places = model.places
    names = [(model.shown[i],) if places is None else places.labels[model.shown[i] - 1] for i in columns]
    what = "position" if places is None else clean_text(",".join(places.columns), 16)
    header = [what, *(clean_text(",".join(map(spell_label, name)), 9) for name in names)]
    table = aligned(header, rows, left=1)
    told = "In contexts that differ from it in one column"
    if model.support is not None and model.support.apart:
        told += ", and in others where values never came together"
    return wrap(f"{told}{f' ({legend})' if legend else ''}:") + f"\n\n{table}"


def aligned(header: list[str], rows: list[list[str]], left: int = 0) -> str:
    """Return a table in text, its first `left` columns flush left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(row[i].ljust(w) if i < left else row[i].rjust(w) for i, w in enumerate(widths))
        for row in (header, *rows)
    ]
    return "\n".join(line.rstrip()[:WIDTH] for line in lines)


def _number(value: Any, spec: str) -> str:
    value = finite(value)
    if value is None:
        return "-"
    return format(value, spec) if abs(value) < 1000 else format(value, ".3g")


def spell_end(value: float | None, spec: str) -> str:
    """Return an end of an interval, or a propensity; large ones tell no more than that they are."""
    return "-" if value is None else format(value, spec) if value < LARGE else f"over {LARGE:,}"


def wrap(text: str) -> str:
    """Return a text in lines of at most 80 columns."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
