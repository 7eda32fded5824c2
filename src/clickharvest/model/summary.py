"""What a model says about itself: for people in at most 80 columns, for machines as JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clickharvest.model.contexts import ContextColumn, ContextEncoder
from clickharvest.model.curves import Curve, Params
from clickharvest.model.prediction import Prediction
from clickharvest.model.provenance import Provenance
from clickharvest.words import clean_text, cluster_nouns, count, spell_positions

WIDTH = 80
MOST_POSITIONS = 25
MOST_LEVELS = 6
MOST_CONTEXTS = 15
MOST_COLUMNS = 7
MOST_WORDS = 4_000
"""Characters shown of one thing that a file tells of its origin."""
UNTOLD = "The model does not tell where it comes from: an older version wrote its file, or it was put together by hand."


class _Model(Protocol):
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
    def info(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Provenance | None: ...
    def predict_encoded(self, x: Any) -> Prediction: ...


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
    parts = [_title(model), _fitted(info), _selection(info.get("selection"))]
    typical = model.predict_encoded(typical_context(model))
    where = "Propensity relative to position " + str(model.curve.anchor)
    if model.encoder is not None:
        where += f" in a typical context ({', '.join(_typical(part) for part in model.encoder.parts)})"
    parts += [_wrap(where + ":"), _positions(model, typical), _contexts(model)]
    parts.append(_wrap(gaps(model)))
    return "\n\n".join(part for part in parts if part)


def gaps(model: _Model) -> str:
    """Return a sentence on the positions without an estimate; nothing where all have one."""
    if not model.unsupported:
        return ""
    several = len(model.unsupported) > 1
    which = f"position{'s' if several else ''} {spell_positions(model.unsupported)}"
    return f"No estimate at {which}: nothing links {'them' if several else 'it'} to position {model.curve.anchor}."


def origin(model: _Model) -> str:
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
        told.append(line if label == "Command" else _wrap(line))
    return "\n".join(told if rows else [*told, _wrap(UNTOLD)])


def describe_model(model: _Model) -> dict[str, Any]:
    """Return what a model says of itself, as JSON holds it."""
    encoder = model.encoder
    typical = model.predict_encoded(typical_context(model))
    return {
        "curve": model.curve.spec,
        "anchor": int(model.curve.anchor),
        "positions": list(model.shown),
        "unsupported": list(model.unsupported),
        "context": {} if encoder is None else {part.name: part.kind for part in encoder.parts},
        "features": [] if encoder is None else list(encoder.feature_names),
        "intervals": model.draws_kind,
        "draws": 0 if model.draws is None else len(model.draws),
        "parameters": {name: value.tolist() for name, value in model.params.items()},
        "typical_context": prediction_records(typical),
        "info": dict(model.info),
        "provenance": None if model.provenance is None else model.provenance.to_dict(),
    }


def prediction_records(prediction: Prediction) -> list[dict[str, Any]]:
    """Return the first row of a prediction as one record per position, None for what is not a finite number."""
    return [
        {
            "position": position,
            **{name: _finite(getattr(prediction, name)[0, i]) for name in ("propensity", "lower", "upper")},
            "supported": bool(prediction.supported[i]),
        }
        for i, position in enumerate(prediction.positions)
    ]


def typical_context(model: _Model) -> NDArray[np.float64]:
    """Return x [1, d]: numbers at their mean, yes/no at its share of yes, categories at the most frequent level."""
    parts = () if model.encoder is None else model.encoder.parts
    return np.concatenate([np.zeros((1, 0)), *(_features(part) for part in parts)], axis=1)


def _features(part: ContextColumn, value: Any = None) -> NDArray[np.float64]:
    """Return the features [1, …] of a value of one column; of its typical value by default."""
    x = np.zeros((1, len(part.features)))
    if value is not None:
        part.fill(x, np.array([value], dtype=object))
    elif part.kind == "boolean":
        x[0, 0] = part.mean
    elif part.kind == "categorical":
        x[0, 0] = 1
    return x


def _title(model: _Model) -> str:
    shape = ", ".join(f"{name} {size}" for name, size in model.curve.spec.items() if name != "name")
    text = f"Examination propensities: curve {model.curve.name}{f' ({shape})' if shape else ''}"
    for key in ("objective", "relevance", "estimator"):
        if key in model.info:
            text += f", {key} {clean_text(model.info[key])}"
    return _wrap(text)


def spell_counts(info: Mapping[str, Any]) -> list[str]:
    """Return what a model was fitted on, as far as it tells.

    Example:
        >>> spell_counts({"units": 1, "queries": 2000, "clicks": "many"})
        ['1 unit', '2,000 queries']
    """
    nouns = {"units": ("unit", "units"), "clicks": ("click", "clicks"), "queries": ("query", "queries")}
    told = [count(info[key], *noun) for key, noun in nouns.items() if isinstance(info.get(key), int)]
    if (by := clustered_by(info)) and isinstance(info.get("clusters"), int):
        told.append(count(info["clusters"], *cluster_nouns(by)))
    return told


def clustered_by(info: Mapping[str, Any]) -> str | None:
    """Return what clusters the clicks that a model was fitted on, where it is not queries."""
    by = info.get("clustered_by", "query")
    return by if isinstance(by, str) and by != "query" else None


def _fitted(info: Any) -> str:
    counts = spell_counts(info)
    sentences = [f"Fitted on {', '.join(counts)}."] if counts else []
    if "status" in info:
        sentences.append(f"The fit {clean_text(info['status'], 200)}.")
    return _wrap(" ".join(sentences))


def _selection(candidates: Any) -> str:
    """Return a table of the best penalty of each curve, held-out score and standard error."""
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
            _number(candidate.get("se"), ".5f"),
        ]
        for name, candidate in best.items()
    ]
    told = "Selected by cross-validation (held-out log likelihood per click; best penalty of each curve):"
    return f"{_wrap(told)}\n\n{_table(['  curve', 'penalty', 'score', 's.e.'], rows, left=1)}"


def _rank(candidate: dict[str, Any]) -> tuple[bool, float]:
    score = candidate.get("score")
    return bool(candidate.get("chosen")), -math.inf if score is None else score


def _spec(spec: Any) -> str:
    if isinstance(spec, dict):
        spec = " ".join(str(value) for value in spec.values())
    return clean_text(spec, 24)


def _positions(model: _Model, prediction: Prediction) -> str:
    header = ["position", "propensity"]
    if model.draws is not None:
        header += ["95 % interval"]
    rows = []
    for record in prediction_records(prediction)[:MOST_POSITIONS]:
        row = [str(record["position"]), _number(record["propensity"], ".4f")]
        if model.draws is not None:
            ends = [_number(record[end], ".4f") for end in ("lower", "upper")]
            row.append(f"{ends[0]} to {ends[1]}" if record["supported"] else "-")
        rows.append(row)
    if len(model.shown) > MOST_POSITIONS:
        rows.append([f"… {len(model.shown) - MOST_POSITIONS} more", *[""] * (len(header) - 1)])
    table = _table(header, rows)
    if model.draws is None:
        return table
    simulated = "" if model.draws_kind == "clustered" else f" {len(model.draws):,} draws,"
    by = clustered_by(model.info)
    own = f" by {clean_text(by)}," if by else ""
    return f"{table}\n\nIntervals: {model.draws_kind},{own}{simulated} each position on its own."


def _contexts(model: _Model) -> str:
    """Return a table of contexts that differ from the typical one in one column."""
    if model.encoder is None:
        return ""
    varied: list[tuple[str, NDArray[np.float64]]] = []
    begin = 0
    for part in model.encoder.parts:
        for name, value in telling_values(part):
            x = typical_context(model)
            x[:, begin : begin + len(part.features)] = _features(part, value)
            varied.append((name, x))
        begin += len(part.features)
    kept = varied[:MOST_CONTEXTS]
    if not kept:
        return ""
    positions = [k for k in model.curve.positions if k != model.curve.anchor]
    spread = np.unique(np.linspace(0, len(positions) - 1, min(MOST_COLUMNS, len(positions))).astype(int))
    columns = [model.curve.positions.index(positions[i]) for i in spread]
    with np.errstate(over="ignore"):
        p = np.exp(model.curve.relative(model.params, np.concatenate([x for _, x in kept])))
    rows = [[name, *(_number(v, ".3f") for v in row[columns])] for (name, _), row in zip(kept, p, strict=True)]
    if len(varied) > len(kept):
        rows.append([f"… {len(varied) - len(kept)} more", *[""] * len(columns)])
    header = ["position", *(str(model.curve.positions[i]) for i in columns)]
    return f"In contexts that differ from it in one column:\n\n{_table(header, rows, left=1)}"


def telling_values(part: ContextColumn) -> list[tuple[str, Any]]:
    """Return values of a column that show what it does, with their names."""
    name = clean_text(part.name, 16)
    if part.kind == "numeric":
        return [(f"{name} = {value:.4g}", value) for value in (part.mean - part.sd, part.mean + part.sd)]
    if part.kind == "boolean":
        return [(f"{name} = {word}", value) for word, value in (("no", False), ("yes", True))]
    return [(f"{name} = {clean_text(level, 12)}", level) for level in part.levels[:MOST_LEVELS]]


def _typical(part: ContextColumn) -> str:
    name = clean_text(part.name, 16)
    if part.kind == "categorical":
        return f"{name} = {clean_text(part.levels[0], 16) if part.levels else 'other'}"
    return f"{name} = {part.mean:.4g}" if part.kind == "numeric" else f"{name} = yes in {part.mean:.0%}"


def _table(header: list[str], rows: list[list[str]], left: int = 0) -> str:
    """Return aligned columns, the first `left` ones flush left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(row[i].ljust(w) if i < left else row[i].rjust(w) for i, w in enumerate(widths))
        for row in (header, *rows)
    ]
    return "\n".join(line.rstrip()[:WIDTH] for line in lines)


def _number(value: Any, spec: str) -> str:
    value = _finite(value)
    if value is None:
        return "-"
    return format(value, spec) if abs(value) < 1000 else format(value, ".3g")


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
