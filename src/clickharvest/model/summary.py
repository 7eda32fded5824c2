"""What a model says of itself: for people in at most 80 columns, for machines as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from clickharvest.model.budget import CANNOT_TELL, USABLE
from clickharvest.model.cautions import outcome_of, tell_cautions
from clickharvest.model.differences import Contrast, find_contrasts
from clickharvest.model.fit_info import FitInfo
from clickharvest.model.prediction import Prediction
from clickharvest.model.support import rests_on_few, spell_queries
from clickharvest.model.typical import Model, Recorded, Varied, typical_context, typical_names, varied_contexts
from clickharvest.positions.places import name_place, spell_label
from clickharvest.words import clean_text, count, finite, spell_thinning

WIDTH = 80
MOST_POSITIONS = 25
MOST_CONTEXTS = 15
MOST_COLUMNS = 7
LARGE = 1_000
"""Beyond it, no digits of a propensity are shown."""
MOST_WORDS = 4_000
"""Characters shown of one thing that a file tells of its origin."""
NO_ORIGIN = "The model does not tell where it comes from: an older version wrote its file, or it was made by hand."


def summarise(model: Model) -> str:
    """Return what `str` of a model shows: curve, data, selection, propensities, cautions.

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
    typical, varied = typical_context(model), varied_contexts(model)
    # A column that has its typical value alone has nothing to show.
    columns = {one.column for one in varied if (one.x != typical).any()}
    varied = [one for one in varied if one.column in columns]
    predicted = model.predict_encoded(np.concatenate([typical, *(one.x for one in varied[:MOST_CONTEXTS])]))
    what = "Propensity" if outcome_of(model) is None else "How often a click leads to it"
    where = f"{what} relative to {name_place(model.curve.anchor, model.places)}"
    if model.encoder is not None:
        where += f" in a typical context ({', '.join(typical_names(model))})"
    parts = [
        _title(model),
        spell_fitted(model.info),
        _selection(model.fit_info),
        wrap(where + ":"),
        _positions(model, predicted),
        _contexts(model, predicted, varied),
        _contrast(model),
        *map(wrap, tell_cautions(model, predicted)),
    ]
    return "\n\n".join(part for part in parts if part)


def origin(model: Recorded) -> str:
    """Return where a model comes from, as `clickharvest show` prints it below the summary.

    A command stands on one line, however long, so that it can be copied.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.model.propensities import Propensities
        >>> from clickharvest.model.provenance import Provenance
        >>> made = Provenance({"clickharvest": "1.0"}, "PBM", made="2026-01-31T12:00:00Z", command=("fit", "log.csv"))
        >>> curve = make_curve("constant", (1, 2), anchor=1, n_features=0)
        >>> print(origin(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), provenance=made)))
        Made: 2026-01-31 12:00:00 UTC
        Made with: clickharvest 1.0
        Made by: PBM
        Command: clickharvest fit log.csv
    """
    data = FitInfo.of(model.info).data
    lines = [] if data is None else [f"Data (SHA-256): {clean_text(data, 64)}"]
    rows = [] if model.provenance is None else model.provenance.rows()
    for label, text in rows:
        line = f"{label}: {clean_text(text, MOST_WORDS)}"
        lines.append(line if label == "Command" else wrap(line))
    return "\n".join(lines if rows else [*lines, wrap(NO_ORIGIN)])


def describe_model(model: Model) -> dict[str, Any]:
    """Return what a model says of itself, as JSON holds it."""
    encoder, clearest = model.encoder, _clearest(model)
    typical = model.predict_encoded(typical_context(model))
    contrast = None
    if encoder is not None and clearest is not None:
        difference, high, low = clearest
        contrast = {"column": encoder.parts[high.column].name, "high": high.value, "low": low.value}
        contrast |= {"position": difference.position, "clear": difference.clear}
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
        "typical_context": _records(typical),
        "clearest_contrast": contrast,
        "support": None if model.support is None else model.support.to_dict(),
        "cautions": tell_cautions(model, typical),
        "info": dict(model.info),
        "provenance": None if model.provenance is None else model.provenance.to_dict(),
    }


def _records(prediction: Prediction) -> list[dict[str, Any]]:
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


def _title(model: Model) -> str:
    shape = ", ".join(f"{name} {size}" for name, size in model.curve.shape.items())
    outcome = outcome_of(model)
    what = "Examination propensities" if outcome is None else f"{outcome} after a click, by position"
    text = f"{what}: curve {model.curve.name}{f' ({shape})' if shape else ''}"
    for name in ("objective", "relevance", "estimator"):
        if (value := getattr(model.fit_info, name)) is not None:
            text += f", {name} {clean_text(value)}"
    return wrap(text)


def spell_counts(info: Mapping[str, Any]) -> list[str]:
    """Return what a model was fitted on, as far as it tells.

    Example:
        >>> spell_counts({"units": 1, "queries": 2000, "clicks": "many"})
        ['1 unit', '2,000 queries']
    """
    fit = FitInfo.of(info)
    clicks = ("click", "clicks") if fit.outcome is None else ("click that led to it", "clicks that led to it")
    counts = [(fit.units, ("unit", "units")), (fit.clicks, clicks), (fit.queries, ("query", "queries"))]
    counts += [] if fit.cluster_column is None else [(fit.clusters, fit.cluster_nouns)]
    return [count(number, *nouns) for number, nouns in counts if number is not None]


def spell_thinned(info: Mapping[str, Any]) -> str:
    """Return a sentence on a model that was fitted on a part of the queries; empty for any other.

    Example:
        >>> print(spell_thinned({"clicks": 25, "thinned_from": 100}))
        Thinned to 25 of 100 clicks, those of whole queries chosen by hash: intervals are about 2.0 times as wide.
    """
    fit = FitInfo.of(info)
    if fit.clicks is None or fit.thinned_from is None or not 0 < fit.clicks <= fit.thinned_from:
        return ""
    return spell_thinning(fit.clicks, fit.thinned_from)


def spell_fitted(info: Mapping[str, Any]) -> str:
    """Return what a model was fitted on and how the fit ended, as far as it tells."""
    counts, thinned, status = spell_counts(info), spell_thinned(info), FitInfo.of(info).status
    sentences = [f"Fitted on {', '.join(counts)}."] if counts else []
    sentences += [thinned] if thinned else []
    sentences += [] if status is None else [f"The fit {clean_text(status, 200)}."]
    return wrap(" ".join(sentences))


def _selection(fit: FitInfo) -> str:
    """Return a table of the best penalty of each curve, held-out score and standard error."""
    if not fit.selection:
        return ""
    rows = [
        [
            ("* " if candidate.get("chosen") else "  ") + clean_text(name, 24),
            "pooled" if candidate.get("penalty") is None else _number(candidate["penalty"], ".4g"),
            _number(candidate.get("score"), ".5f"),
            _number(None if candidate.get("folds") else candidate.get("se"), ".5f"),
            spell_left(candidate.get("folds")).ljust(len("dropped after 1 folds")),
        ]
        for name, candidate in fit.best_candidates().items()
    ]
    some = "" if fit.chosen_on is None else f" on {count(fit.chosen_on, 'row')} drawn at random"
    title = f"Selected by cross-validation{some} (held-out log likelihood per click; best penalty of each curve):"
    return f"{wrap(title)}\n\n{aligned(['  curve', 'penalty', 'score', 's.e.', ''], rows, left=1)}"


def spell_left(folds: Any) -> str:
    """Return after how many folds a curve was given up; empty for one that was tried in all of them.

    Example:
        >>> spell_left(1), spell_left(3), spell_left(None)
        ('dropped after 1 fold', 'dropped after 3 folds', '')
    """
    return f"dropped after {count(folds, 'fold')}" if isinstance(folds, int) and folds > 0 else ""


def _positions(model: Model, prediction: Prediction) -> str:
    places = model.places
    columns = ["position"] if places is None else [clean_text(column, 16) for column in places.columns]
    header = [*columns, "propensity", *(["95 % interval"] if model.draws is not None else [])]
    rows, notes = [], []
    for record in _records(prediction)[:MOST_POSITIONS]:
        label = (record["position"],) if places is None else places.labels[record["position"] - 1]
        row = [clean_text(spell_label(value), 16) for value in label]
        row += [_number(record["propensity"], ".4f")]
        if model.draws is not None:
            ends = [spell_end(record[end], ".4f") for end in ("lower", "upper")]
            row.append("-" if record["lower"] is None else " to ".join(ends))
        rows.append(row)
        state, queries = record["state"], record["queries"]
        note = [] if state == USABLE or record["propensity"] is None else [state]
        notes.append("; ".join([*note, *([spell_queries(queries)] if rests_on_few(queries) else [])]))
    if any(notes):
        header, rows = [*header, ""], [[*row, note] for row, note in zip(rows, notes, strict=True)]
    if len(model.shown) > MOST_POSITIONS:
        rows.append([f"… {len(model.shown) - MOST_POSITIONS} more", *[""] * (len(header) - 1)])
    table = aligned(header, rows)
    if model.draws is None:
        return table
    simulated = "" if model.draws_kind == "clustered" else f" {len(model.draws):,} draws,"
    column = model.fit_info.cluster_column
    by = "" if column is None else f" by {clean_text(column)},"
    what = "position" if places is None else "place"
    return f"{table}\n\nIntervals: {model.draws_kind},{by}{simulated} each {what} on its own."


def _clearest(model: Model) -> tuple[Contrast, Varied, Varied] | None:
    """Return how two values of a column differ most clearly, that with more and that with less; None if none do."""
    varied = varied_contexts(model, most=None)
    if not varied:
        return None
    contrasts = find_contrasts(model, np.concatenate([one.x for one in varied]), [one.column for one in varied])
    clearest = None if contrasts is None else contrasts.clearest()
    return None if clearest is None else (clearest, varied[clearest.high], varied[clearest.low])


def _contrast(model: Model) -> str:
    """Return a sentence on the clearest difference between values of a column."""
    if (clearest := _clearest(model)) is None:
        return ""
    difference, high, low = clearest
    if not difference.clear:
        return wrap("No two values of a column differ by more than chance.")
    there = name_place(difference.position, model.places)
    what = f"{there} is examined more" if outcome_of(model) is None else f"a click at {there} leads to it more often"
    return wrap(f"Clearest difference: {what} with {high.name} than with {low.name}.")


def _contexts(model: Model, prediction: Prediction, varied: list[Varied]) -> str:
    """Return a table of contexts that differ from the typical one, which is the first that was predicted for."""
    if not varied:
        return ""
    others = [i for i, k in enumerate(model.shown) if k in model.curve.positions and k != model.curve.anchor]
    columns = [
        others[i] for i in np.unique(np.linspace(0, len(others) - 1, min(MOST_COLUMNS, len(others))).astype(int))
    ]
    cells = np.array([[_number(p, ".3f") for p in row] for row in prediction.propensity[1:]])
    cells[prediction.cannot_tell[1:]] = "?"
    rows = [[one.name, *row[columns]] for one, row in zip(varied, cells, strict=False)]
    legend = f" (? {CANNOT_TELL})" if any("?" in row[1:] for row in rows) else ""
    if len(varied) > len(rows):
        rows.append([f"… {len(varied) - len(rows)} more", *[""] * len(columns)])
    places = model.places
    names = [(model.shown[i],) if places is None else places.labels[model.shown[i] - 1] for i in columns]
    what = "position" if places is None else clean_text(",".join(places.columns), 16)
    header = [what, *(clean_text(",".join(map(spell_label, name)), 9) for name in names)]
    title = "In contexts that differ from it in one column"
    if model.support is not None and model.support.apart:
        title += ", or in more where training never had the values together"
    return wrap(f"{title}{legend}:") + f"\n\n{aligned(header, rows, left=1)}"


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
    """Return an end of an interval, or a propensity; of large ones only that they are large."""
    return "-" if value is None else format(value, spec) if value < LARGE else f"over {LARGE:,}"


def wrap(text: str) -> str:
    """Return a text in lines of at most 80 columns."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
