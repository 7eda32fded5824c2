"""Corpora: names on the command line to files, and the data that experiments look for near the working folder."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from clickharvest.errors import InputError
from clickharvest.simulate import SPARE, Corpus, read_letor, synthetic_corpus, training_queries
from experiments.experiment import SYNTHETIC
from experiments.runs import Run

KNOWN = {"mq2007_part": "mq2007_part.txt.gz", "mq2008": "mq2008.txt.gz"}
"""Corpora known by name, and their files."""
DATA = "CLICKHARVEST_DATA"
"""Environment variable with a folder that is searched first."""


def find_corpus(corpus: str) -> tuple[str, Path | None]:
    """Return the world of a corpus (`synthetic`, `mq2007_part`, `mq2008` or a LETOR path) and its file.

    The world of a path is called after its file or folder, without the endings.

    Raises:
        InputError: there is no such file.

    Example:
        >>> find_corpus("synthetic")
        ('synthetic', None)
    """
    if corpus == SYNTHETIC:
        return SYNTHETIC, None
    if corpus in KNOWN:
        if (path := find_data(KNOWN[corpus])) is None:
            raise InputError(
                f"no file {KNOWN[corpus]} of corpus {corpus}: expected it in shared/data near the working folder; name "
                f"its path with --corpus, or its folder with {DATA}"
            )
        return corpus, path
    if not (path := Path(corpus)).exists():
        raise InputError(f"no corpus {corpus}: expected {SYNTHETIC}, {', '.join(KNOWN)} or a path of LETOR files")
    return path.resolve().name.split(".")[0], path


def find_data(file: str) -> Path | None:
    """Return a data file from the folder that `CLICKHARVEST_DATA` names, or `shared/data` here or above, or None."""
    here = Path.cwd()
    folders = [Path(os.environ[DATA])] if DATA in os.environ else []
    folders += [folder / "shared" / "data" for folder in (here, *here.parents)]
    return next((folder / file for folder in folders if (folder / file).is_file()), None)


def corpus_of(run: Run, *, rankers: int) -> Corpus:
    """Return the corpus of a log: made up with the queries that it and its rankers take, or read from its file."""
    if run.world == SYNTHETIC:
        return _made_up(training_queries(rankers) + run.log["queries"] + run.log["test_queries"], run.seed)
    if run.source is None:
        raise InputError(f"no file of corpus {run.world}: name it with --corpus")
    return _read(run.source)


@lru_cache(maxsize=1)
def _made_up(queries: int, seed: int) -> Corpus:
    return synthetic_corpus(int(SPARE * queries) + 100, seed=seed)


@lru_cache(maxsize=1)
def _read(path: Path) -> Corpus:
    return read_letor(path)
