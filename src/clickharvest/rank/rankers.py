"""Trained rankers of all learners, and their file format.

A ranker is one JSON file. Nothing in it is executed: linear rankers are a weight for every feature, trees are
LightGBM's text or XGBoost's JSON, which are checked before these libraries read them as data.

| key | holds |
|---|---|
| `what`, `format` | `"ranker"`, and the version of the format |
| `learner`, `settings` | the learner and its settings: loss, C, clip, penalty |
| `features`, `columns` | names of the features, and how columns of documents become them (`columns`) |
| `info` | provenance: data, versions, evaluation |
| `weights`, `model` or `parts` | a weight for every feature; the library's text; or rankers, each with a `share` |
| `sha256` | of all other keys: it detects damage, and is no signature |

`exports` writes what search engines load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.files import atomic_path
from clickharvest.rank.columns import FeatureColumns
from clickharvest.rank.features import Array, Features
from clickharvest.rank.soundness import check_lightgbm, check_xgboost
from clickharvest.words import first_line, json_value

FORMAT = 1
"""Version of the file format; a file of a later one is refused."""
LIBRARIES = ("lightgbm", "xgboost")


@dataclass(frozen=True, eq=False)
class TrainedRanker:
    """A ranker that scores documents and can be written to a file; `train_ranker` makes it, `load_ranker` reads it.

    Attributes:
        learner: one of `LEARNERS`.
        features: names of the features, in the order of columns.
        settings: loss, C, clip, penalty, rounds.
        model: weights [F] of linear rankers, the library's booster, or a tuple of `Part`s.
        columns: how columns of a table of documents become the features; None where each is a column of numbers.
        info: provenance, as JSON holds it.
    """

    learner: str
    features: tuple[str, ...]
    settings: dict[str, Any]
    model: Any
    columns: FeatureColumns | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of model: `"linear"`, `"lightgbm"`, `"xgboost"`, or a `"blend"` of such."""
        if isinstance(self.model, tuple):
            return "blend"
        return "linear" if isinstance(self.model, np.ndarray) else type(self.model).__module__.partition(".")[0]

    def predict(self, features: Any) -> Array:
        """Return the scores of documents, higher is better: features [n, F] → [n]."""
        x = features if isinstance(features, Features) else Features.of(features)
        if x.shape[1] != len(self.features):
            raise InputError(f"documents have {x.shape[1]:,} features: the ranker knows {len(self.features):,}")
        if self.kind == "linear":
            return x.times(self.model)
        if self.kind == "blend":
            return np.asarray(sum(part.share * part.ranker.predict(x) for part in self.model), np.float64)
        if self.kind == "xgboost":
            xgboost = require("xgboost", "boost", "the learner xgboost")
            return np.asarray(self.model.predict(xgboost.DMatrix(x.matrix, feature_names=list(self.features))), float)
        return np.asarray(self.model.predict(x.matrix), np.float64)

    def score(self, documents: Any, name: str = "the table of documents") -> Array:
        """Return the scores of the documents of an Arrow table, [n]: columns are found by name, as in training.

        Example:
            >>> import pyarrow as pa
            >>> ranker = TrainedRanker("linear", ("price", "stars"), {}, np.array([-0.5, 2.0]))
            >>> ranker.score(pa.table({"doc": ["a", "b"], "stars": [4, 5], "price": [2.0, 10.0]})).tolist()
            [7.0, 5.0]
        """
        columns = self.columns or FeatureColumns(self.features)
        return self.predict(columns.encode(documents, name))

    def save(self, path: str | Path) -> None:
        """Write the ranker to one JSON file, whole or not at all; `load_ranker` reads it.

        Example:
            >>> import tempfile
            >>> path = Path(tempfile.mkdtemp()) / "ranker.json"
            >>> TrainedRanker("linear", ("price",), {"loss": "softmax"}, np.array([-0.5])).save(path)
            >>> load_ranker(path).model
            array([-0.5])
        """
        content: dict[str, Any] = {
            "what": "ranker",
            "format": FORMAT,
            "learner": self.learner,
            "settings": self.settings,
            "features": list(self.features),
            "columns": None if self.columns is None else self.columns.to_dict(),
            "info": self.info,
        }
        content = json_value(content | _model(self))
        with atomic_path(Path(path)) as partial:
            text = json.dumps(content | {"sha256": _digest(content)}, indent=1, ensure_ascii=False, allow_nan=False)
            partial.write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True, eq=False)
class Part:
    """A ranker in a blend, whose score is the sum of the scores of its parts, each times its share."""

    share: float
    ranker: TrainedRanker


def load_ranker(path: str | Path) -> TrainedRanker:
    """Read a ranker from a file, as `clickharvest rank` and `TrainedRanker.save` write it.

    Nothing in it is executed.

    Raises:
        InputError: the file is no ranker, is damaged or of another version, or its library is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"no file {path}: expected a ranker, as clickharvest rank writes it")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {first_line(error)} Expected a ranker.") from error
    if not isinstance(content, dict) or content.get("what") != "ranker":
        raise InputError(f"{path} is no ranker of clickharvest: expected one that rank wrote")
    _check_whole(path, content)
    try:
        return _read(content)
    except InputError:
        raise
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{path} cannot be used: its contents are not those of a ranker; train again") from error


def library_text(ranker: TrainedRanker) -> str:
    """Return the trees of a ranker as its library writes them: LightGBM's text or XGBoost's JSON."""
    if ranker.kind == "lightgbm":
        return str(ranker.model.model_to_string())
    return bytes(ranker.model.save_raw("json")).decode()


def _model(ranker: TrainedRanker) -> dict[str, Any]:
    """Return a model as its file holds it."""
    if ranker.kind == "linear":
        return {"weights": dict(zip(ranker.features, ranker.model.tolist(), strict=True))}
    if ranker.kind != "blend":
        return {"model": {"library": ranker.kind, "text": library_text(ranker)}}
    parts = [
        {"share": part.share, "learner": part.ranker.learner, "settings": part.ranker.settings, **_model(part.ranker)}
        for part in ranker.model
    ]
    return {"parts": parts}


def _read_model(content: Mapping[str, Any], features: tuple[str, ...]) -> Any:
    if "weights" in content:
        return _weights(content["weights"][name] for name in features)
    if "parts" not in content:
        return _booster(content["model"], features)
    if any("parts" in part for part in content["parts"]):
        raise ValueError("a blend in a blend")
    return tuple(
        Part(
            float(_weights([part["share"]])[0]),
            TrainedRanker(str(part["learner"]), features, dict(part["settings"]), _read_model(part, features)),
        )
        for part in content["parts"]
    )


def _read(content: Mapping[str, Any]) -> TrainedRanker:
    learner = str(content["learner"])
    features = tuple(str(name) for name in content["features"])
    model = _read_model(content, features)
    columns = None if content["columns"] is None else FeatureColumns.from_dict(content["columns"])
    if columns is not None and columns.names != features:
        raise ValueError("features are not those of the columns")
    return TrainedRanker(learner, features, dict(content["settings"]), model, columns, dict(content["info"]))


def _weights(values: Any) -> Array:
    weights = np.array([float(value) for value in values])
    if not np.isfinite(weights).all():
        raise ValueError("weights are not finite")
    return weights


def _booster(model: Mapping[str, Any], features: tuple[str, ...]) -> Any:
    name, text = model["library"], model["text"]
    if name not in LIBRARIES or not isinstance(text, str):
        raise ValueError("no such library")
    library = require(name, "boost", f"a ranker of {name}")
    try:
        if name == "lightgbm":
            return library.Booster(model_str=check_lightgbm(text, len(features)))
        check_xgboost(text, features)
        booster = library.Booster()
        booster.load_model(bytearray(text.encode()))
        return booster
    except Exception as error:  # both libraries raise classes of their own, and wrong trees may lack any key
        raise InputError(f"{name} cannot read the ranker's trees: {first_line(error)} Train again.") from error


def _check_whole(path: Path, content: dict[str, Any]) -> None:
    """Compare the contents with their digest, which is taken out."""
    digest, version = content.pop("sha256", None), content.get("format")
    if version != FORMAT:
        what = "upgrade clickharvest" if isinstance(version, int) and version > FORMAT else "train again"
        raise InputError(f"{path} has the format {str(version)[:20]}, this version reads {FORMAT}; {what}")
    if digest != _digest(content):
        raise InputError(f"{path} is damaged: its contents are not those of its digest; copy it again, or train again")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
