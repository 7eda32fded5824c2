"""Exports of rankers to search engines. This folder is the list of them: one module each, named like the engine.

A module defines one function, marked with `ranker_export`, from a ranker and the name it is to have in the engine to
the bytes of the file that the engine loads; the first line of its docstring says what that is.

    @ranker_export("engine")
    def write_engine(ranker, name): ...

All exports score as `TrainedRanker.predict` does, to single precision, for features in single precision. Engines differ
on missing values: Elasticsearch, OpenSearch and Solr read them as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.registry import Registry

if TYPE_CHECKING:
    from clickharvest.rank.rankers import TrainedRanker

Marked = TypeVar("Marked", bound="Callable[[TrainedRanker, str], bytes]")

EXPORTS: Registry[Callable[[TrainedRanker, str], bytes]] = Registry("export", __name__)
"""The functions that write for engines, by name; a module is imported when its engine is looked up."""


def ranker_export(name: str) -> Callable[[Marked], Marked]:
    """Mark the function that writes for an engine, and add it to `EXPORTS`."""

    def mark(writer: Marked) -> Marked:
        EXPORTS.add(name, writer)
        return writer

    return mark


def export_ranker(ranker: TrainedRanker, to: str, path: str | Path, *, name: str = "ranker") -> None:
    """Write a ranker to the file that an engine loads, whole or not at all.

    Args:
        ranker: the ranker.
        to: the engine, one of `EXPORTS`.
        path: file to write.
        name: what the model is to be called in the engine.

    Raises:
        InputError: there is no such export, or the engine has no such model.

    Example:
        >>> import numpy as np, tempfile
        >>> from clickharvest.rank import TrainedRanker
        >>> path = Path(tempfile.mkdtemp()) / "model.json"
        >>> ranker = TrainedRanker("linear", ("price", "stars"), {}, np.array([-0.5, 2.0]))
        >>> export_ranker(ranker, "solr", path, name="shop")
        >>> print(path.read_text())
        {
         "class": "org.apache.solr.ltr.model.LinearModel",
         "name": "shop",
         "features": [
          {
           "name": "price"
          },
          {
           "name": "stars"
          }
         ],
         "params": {
          "weights": {
           "price": -0.5,
           "stars": 2.0
          }
         }
        }
        <BLANKLINE>
    """
    if not name:
        raise InputError("the model has no name: engines need one, such as name='shop' (--name shop)")
    if ranker.kind == "blend":
        names = ", ".join(f"{part.ranker.learner} {part.ranker.settings.get('loss', '')}" for part in ranker.model)
        raise InputError(f"a blend of rankers ({names}) has no form in {to}: train one of them, with --learner --loss")
    content = EXPORTS.find(to)(ranker, name)
    with atomic_path(Path(path)) as partial:
        partial.write_bytes(content)
