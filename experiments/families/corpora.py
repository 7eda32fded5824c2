"""Corpora: names on the command line to files, and the data that experiments look for near the working folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from clickharvest.errors import InputError
from clickharvest.simulate import SPARE, Corpus, read_letor, synthetic_corpus, training_queries
from experiments.runner.experiment import SYNTHETIC

KNOWN = {"mq2007_part": "mq2007_part.txt.gz", "mq2008": "mq2008.txt.gz"}
"""Corpora known by name, and their files."""
WHOLE: dict[str, Any] = {"queries": None, "test_queries": None}
"""Arguments of `simulate_protocol` that take all queries of a corpus."""
DATA = "CLICKHARVEST_DATA"
"""Environment variable with a folder that is looked in first."""


@dataclass(frozen=True)
class CorpusSource:
    """A corpus by name, with its file; the synthetic corpus has none."""

    name: str
    path: Path | None = None


def find_corpus(asked: str) -> CorpusSource:
    """Return the corpus of a name (`synthetic`, `mq2007_part`, `mq2008`) or a LETOR path.

    A path's corpus is called after its file or folder, without the endings.

    Raises:
        InputError: there is no such file.

    Example:
        >>> find_corpus("synthetic")
        CorpusSource(name='synthetic', path=None)
    """
    if asked == SYNTHETIC:
        return CorpusSource(SYNTHETIC)
    if asked in KNOWN:
        found = find_data(KNOWN[asked])
        if found is None:
            raise InputError(
                f"no file {KNOWN[asked]} of corpus {asked}: expected it in shared/data near the working folder; name "
                f"its path with --corpus, or its folder with {DATA}"
            )
        return CorpusSource(asked, found)
    path = Path(asked)
    if not path.exists():
        raise InputError(f"no corpus {asked}: expected {SYNTHETIC}, {', '.join(KNOWN)} or a path of LETOR files")
    return CorpusSource(path.resolve().name.split(".")[0], path)


def find_data(file: str) -> Path | None:
    """Return a data file from the folder that `CLICKHARVEST_DATA` names, or `shared/data` here or above, or None."""
    here = Path.cwd()
    folders = [Path(os.environ[DATA])] if DATA in os.environ else []
    folders += [folder / "shared" / "data" for folder in (here, *here.parents)]
    return next((folder / file for folder in folders if (folder / file).is_file()), None)


def load_corpus(source: CorpusSource, log: Mapping[str, Any], *, rankers: int, seed: int) -> Corpus:
    """Return the corpus of a log: made up with the queries that it and its rankers take, or read from its file.

    Raises:
        InputError: there is no file to read.
    """
    if source.name == SYNTHETIC:
        return _made_up(training_queries(rankers) + log["queries"] + log["test_queries"], seed)
    if source.path is None:
        raise InputError(f"no file of corpus {source.name}: name it with --corpus")
    return _read(source.path)


@lru_cache(maxsize=1)
def _made_up(queries: int, seed: int) -> Corpus:
    return synthetic_corpus(int(SPARE * queries) + 100, seed=seed)


@lru_cache(maxsize=1)
def _read(path: Path) -> Corpus:
    return read_letor(path)
