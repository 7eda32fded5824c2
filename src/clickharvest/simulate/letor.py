"""Learning-to-rank corpora in the LETOR (SVMlight) format: Yahoo, MSLR-WEB, Istella, MQ2007, MQ2008. NumPy alone.

A line is a document: its grade, its query, its features that are not 0 in ascending order, and a comment.

    2 qid:10 1:0.031310 3:0.500000 46:0.076923 #docid = GX029-35-5894638

| corpus | grades | relevant from | features |
|---|---|---|---|
| Yahoo | 0 to 4 | 3 | in [0, 1] already, 0 left out |
| MSLR-WEB10K, MSLR-WEB30K, Istella | 0 to 4 | 3 | raw values: become ranks |
| MQ2007, MQ2008 | 0 to 2 | 1 | in [0, 1] already |
"""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.simulate.corpus import Corpus
from clickharvest.simulate.letor_lines import Documents, find_fault, line_of, parse_lines
from clickharvest.words import first_line

CHUNK = 1 << 24
"""Bytes of text parsed at a time."""
FORMAT = "clickharvest letor 1"
"""What a cache of this version says about itself."""


def read_letor(
    path: str | Path | Sequence[str | Path], *, threshold: int | None = None, cache: str | Path | None = None
) -> Corpus:
    """Read a corpus from LETOR files.

    A feature that leaves [0, 1] anywhere in the corpus is replaced by its rank, the share of the other documents
    whose value is smaller: 0 stays 0 where it is the smallest. This is close to how Yahoo made its features, and
    unlike a division by the largest value it survives heavy tails and the huge numbers by which Istella marks what
    it does not know. Features that a line leaves out are 0.

    Args:
        path: a file, plain or .gz; a folder, of which all .txt and .txt.gz files are read (train, vali and test of
            one fold, say); or several of these. No query may be in two files, as it would be in two folds. Yahoo's two
            sets are two corpora, with features of their own: name the files of one.
        threshold: the least grade of a relevant document; by default one below the largest grade of the
            corpus, but at least 1: 3 for grades 0 to 4, 1 for grades 0 to 2.
        cache: folder in which the parsed corpus is kept as an .npz file, for the next time; it is made again when
            the size or the time of a source changes. None keeps nothing.

    Raises:
        InputError: there is no such file, a line cannot be understood (the message says which), the documents of a
            query do not stand together, or the largest grade is above 4 and no threshold is given.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "tiny.txt"
        >>> _ = file.write_text("2 qid:1 1:.5 3:30 # first\\n0 qid:1 3:10\\n1 qid:7 1:.25 3:20\\n")
        >>> corpus = read_letor(file)
        >>> corpus.features.tolist(), corpus.sizes.tolist(), corpus.relevant.tolist()
        ([[0.5, 0.0, 1.0], [0.0, 0.0, 0.0], [0.25, 0.0, 0.5]], [2, 1], [True, False, True])
    """
    sources = _sources(path)
    kept = None if cache is None else _cache_path(Path(cache), sources)
    corpus = None if kept is None else _read_cache(kept, sources)
    if corpus is None:
        corpus = _read_sources(sources)
        if kept is not None:
            _write_cache(kept, sources, corpus)
    largest = int(corpus.grades.max())
    if threshold is None:
        if largest > 4:
            raise InputError(f"{sources[0]} has grades up to {largest}: say with threshold which ones are relevant")
        threshold = max(1, largest - 1)
    return Corpus(corpus.features, corpus.grades, corpus.starts, threshold)


def _sources(path: str | Path | Sequence[str | Path]) -> list[Path]:
    sources: list[Path] = []
    for part in [path] if isinstance(path, (str, Path)) else path:
        place = Path(part)
        if place.is_dir():
            found = sorted(file for file in place.glob("[!.]*") if file.name.endswith((".txt", ".txt.gz")))
            if not found:
                folders = sorted(file.name for file in place.iterdir() if file.is_dir())
                hint = f"name one of its folders, such as {place / folders[0]}" if folders else "name a file"
                raise InputError(f"no .txt or .txt.gz file in {place}: {hint}")
            sources += found
        elif place.is_file():
            sources.append(place)
        else:
            raise InputError(f"no corpus at {place}: expected a LETOR file, plain or .gz, or a folder of them")
    if not sources:
        raise InputError("no corpus named: expected a LETOR file, plain or .gz, or a folder of them")
    return sources


def _read_sources(sources: Sequence[Path]) -> Corpus:
    parts: list[Documents] = []
    source_of: dict[int, Path] = {}
    for source in sources:
        begin = len(parts)
        parts += _parse(source)
        own = {int(query) for part in parts[begin:] for query in np.unique(part.queries)}
        if both := sorted(own & source_of.keys()):
            raise InputError(
                f"query {both[0]} is in {source_of[both[0]]} and in {source}: folds hold the same queries again, and "
                "copies the same file; name one fold, or files that share no query"
            )
        source_of |= dict.fromkeys(own, source)
    if not parts:
        raise InputError(f"{', '.join(map(str, sources))}: no documents")
    grades = np.concatenate([part.grades for part in parts])
    queries = np.concatenate([part.queries for part in parts])
    features = np.zeros((len(grades), max(part.features.shape[1] for part in parts)), np.float32)
    end = len(grades)
    while parts:  # from the last, so that memory is given back
        part = parts.pop().features
        features[end - len(part) : end, : part.shape[1]] = part
        end -= len(part)
    _rank_where_needed(features)
    starts = np.flatnonzero(np.concatenate([[True], queries[1:] != queries[:-1], [True]]))
    return Corpus(features, grades, starts)


def _rank_where_needed(features: NDArray[np.float32]) -> None:
    outside = (features.min(axis=0) < 0) | (features.max(axis=0) > 1)
    for column in np.flatnonzero(outside):
        values = features[:, column]
        smaller = np.searchsorted(np.sort(values), values)
        features[:, column] = smaller / max(len(values) - 1, 1)


def _parse(source: Path) -> Iterator[Documents]:
    """Yield the documents of a file, part by part, and see that queries stand together."""
    seen: set[int] = set()
    last = -1
    for first_line_number, text in _chunks(source):
        try:
            documents = parse_lines(text)
        except ValueError:
            place, told = find_fault(text)
            raise InputError(f"{source}:{first_line_number + place}: {told}") from None
        if not len(documents.grades):
            continue
        queries = documents.queries
        starts = np.flatnonzero(np.concatenate([[queries[0] != last], queries[1:] != queries[:-1]]))
        for start in starts:
            if (query := int(queries[start])) in seen:
                place = first_line_number + line_of(text, int(start))
                raise InputError(
                    f"{source}:{place}: query {query} again after another one: expected the documents of a query "
                    "to stand together; sort the lines by qid"
                )
            seen.add(query)
        last = int(queries[-1])
        yield documents


def _chunks(source: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the text of parts of a file that end with a line."""
    number, rest = 1, b""
    try:
        with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file:
            while block := file.read(CHUNK):
                text, newline, block_rest = block.rpartition(b"\n")
                if newline:
                    whole = rest + text + newline
                    yield number, whole
                    number += whole.count(b"\n")
                    rest = block_rest
                else:
                    rest += block
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read {source}: {first_line(error)}") from error
    if rest:
        yield number, rest + b"\n"


def _cache_path(folder: Path, sources: Sequence[Path]) -> Path:
    names = "\n".join(str(source.resolve()) for source in sources)
    return folder / f"{sources[0].name}.{hashlib.sha256(names.encode()).hexdigest()[:12]}.npz"


def _stamp(sources: Sequence[Path]) -> str:
    states = [source.stat() for source in sources]
    return "\n".join([FORMAT, *(f"{state.st_size} {state.st_mtime_ns}" for state in states)])


def _read_cache(path: Path, sources: Sequence[Path]) -> Corpus | None:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if str(file["stamp"]) != _stamp(sources):
                return None
            corpus = Corpus(file["features"], file["grades"], file["starts"])
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error):
        return None
    rows = len(corpus.grades)
    whole = corpus.features.shape[:1] == (rows,) and corpus.starts[-1:].tolist() == [rows] and rows > 0
    return corpus if whole else None


def _write_cache(path: Path, sources: Sequence[Path], corpus: Corpus) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the cache folder {path.parent}: {first_line(error)}") from error
    with atomic_path(path) as partial, partial.open("wb") as file:
        stamp = np.array(_stamp(sources))
        np.savez(file, stamp=stamp, features=corpus.features, grades=corpus.grades, starts=corpus.starts)
