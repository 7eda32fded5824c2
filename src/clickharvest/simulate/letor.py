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
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from clickharvest.simulate.corpus import Corpus
from clickharvest.words import first_line

CHUNK = 1 << 24
"""Bytes of text parsed at a time."""
FORMAT = "clickharvest letor 1"
"""What a cache of this version says about itself."""
MOST_FEATURES = 100_000
LARGEST_GRADE = 127
LARGEST_QID = 2**53

COMMENT = re.compile(rb"#[^\n]*")
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
SPACES = np.isin(np.arange(256), list(b" \t\n\r\v\f"))


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents in the order of their lines: grades [n], queries [n], features [n, F]."""

    grades: NDArray[np.int8]
    queries: NDArray[np.int64]
    features: NDArray[np.float32]


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
            files = sorted(file for file in place.glob("[!.]*") if file.name.endswith((".txt", ".txt.gz")))
            if not files:
                folders = sorted(file.name for file in place.iterdir() if file.is_dir())
                hint = f"name one of its folders, such as {place / folders[0]}" if folders else "name a file"
                raise InputError(f"no .txt or .txt.gz file in {place}: {hint}")
            sources += files
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
        queries_here = {int(query) for part in parts[begin:] for query in np.unique(part.queries)}
        if both := sorted(queries_here & source_of.keys()):
            raise InputError(
                f"query {both[0]} is in {source_of[both[0]]} and in {source}: folds hold the same queries again, and "
                "copies the same file; name one fold, or files that share no query"
            )
        source_of |= dict.fromkeys(queries_here, source)
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
            place, fault = find_fault(text)
            raise InputError(f"{source}:{first_line_number + place}: {fault}") from None
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


def parse_lines(text: bytes) -> Documents:
    r"""Parse whole lines, all at once and with hardly any Python per line.

    Raises:
        ValueError: something is wrong with a line; `find_fault` says what.

    Example:
        >>> documents = parse_lines(b"2 qid:10 1:0.5 3:75e-2 # a comment\n0 qid:10 2:1\n")
        >>> documents.grades.tolist(), documents.queries.tolist(), documents.features.tolist()
        ([2, 0], [10, 10], [[0.5, 0.0, 0.75], [0.0, 1.0, 0.0]])
    """
    if b"#" in text:
        text = COMMENT.sub(b"", text)
    codes = np.frombuffer(text, np.uint8)
    space, colon = SPACES[codes], codes == ord(":")
    token = ~space & np.concatenate([[True], space[:-1]])
    events = np.flatnonzero(token | colon)
    is_colon = colon[events]
    newlines = np.flatnonzero(codes == ord("\n"))
    starts = np.searchsorted(events, np.concatenate([[0], newlines + 1]))
    counts = np.diff(starts)  # of events, line by line
    starts, counts = starts[:-1][counts > 0], counts[counts > 0]
    rank = np.arange(len(events)) - np.repeat(starts, counts)
    # A line is a token without a colon, then tokens with one each: token, token, colon, token, colon, …
    _check(np.array_equal(is_colon, (rank >= 2) & (rank % 2 == 0)))
    places = events[is_colon]
    _check(not (space[places - 1] | space[places + 1]).any())
    sizes = counts // 2  # colons of each line, that of the query included
    _check((counts % 2 == 1).all() and (sizes > 0).all() and text.count(b"qid:") == len(starts))
    second = events[starts + 1]
    _check(all((codes[second + i] == letter).all() for i, letter in enumerate(b"qid:")))
    numbers = _parse_numbers(text.replace(b"qid:", b"").replace(b":", b" "))
    _check(len(numbers) == 2 * sizes.sum())
    ends = np.cumsum(sizes) * 2
    head = ends - 2 * sizes
    grades, queries = numbers[head], numbers[head + 1]
    _check(_whole(grades, 0, LARGEST_GRADE) and _whole(queries, 0, LARGEST_QID))
    is_feature = np.ones(len(numbers) // 2, bool)
    is_feature[head // 2] = False
    index, value = (numbers[i::2][is_feature] for i in range(2))
    row = np.repeat(np.arange(len(sizes)), sizes - 1)
    _check(_whole(index, 1, MOST_FEATURES) and bool(np.isfinite(value).all()))
    _check(not ((np.diff(index) <= 0) & (np.diff(row) == 0)).any())
    largest = np.finfo(np.float32).max
    features = np.zeros((len(sizes), int(index.max(initial=0))), np.float32)
    features[row, index.astype(np.int64) - 1] = np.clip(value, -largest, largest)
    return Documents(grades.astype(np.int8), queries.astype(np.int64), features)


def find_fault(text: bytes) -> tuple[int, str]:
    r"""Return the first bad line of a text, counted from 0, and what is wrong with it.

    Example:
        >>> find_fault(b"2 qid:10 1:0.5\n1 qid:ten 1:0.5\n")
        (1, "found 'qid:ten' after the grade, expected qid: and a whole number")
    """
    for place, line in enumerate(text.split(b"\n")):
        if fault := _fault(COMMENT.sub(b"", line).split()):
            return place, fault
    return 0, "found lines that are not of the form: 2 qid:10 1:0.03 3:0.5"


def line_of(text: bytes, document: int) -> int:
    """Return the line of a document, both counted from 0; blank lines and comments hold none."""
    lines = (place for place, line in enumerate(text.split(b"\n")) if COMMENT.sub(b"", line).strip())
    return next(place for count, place in enumerate(lines) if count == document)


def _check(holds: bool | np.bool_) -> None:
    if not holds:
        raise ValueError


def _whole(numbers: NDArray[np.float64], least: float, most: float) -> bool:
    return bool(((numbers >= least) & (numbers <= most) & (numbers == np.floor(numbers))).all())


def _parse_numbers(text: bytes) -> NDArray[np.float64]:
    if not text.strip():
        return np.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy's word for text that is no number
        try:
            return np.fromstring(text, sep=" ")
        except DeprecationWarning:
            raise ValueError from None


def _fault(tokens: list[bytes]) -> str | None:
    if not tokens:
        return None
    grade, *others = tokens
    if not NUMBER.fullmatch(grade) or not _whole(np.array([float(grade)]), 0, LARGEST_GRADE):
        return f"found {_shown(grade)} for a grade, expected a whole number from 0 to {LARGEST_GRADE}"
    if not others or not re.fullmatch(rb"qid:\d+", others[0]) or int(others[0][4:]) > LARGEST_QID:
        return f"found {_shown(others[0]) if others else 'nothing'} after the grade, expected qid: and a whole number"
    last = 0
    for token in others[1:]:
        index, colon, value = token.partition(b":")
        if not colon or not index.isdigit() or not NUMBER.fullmatch(value) or not np.isfinite(float(value)):
            return f"found {_shown(token)}, expected a feature's number and value such as 3:0.5"
        if not last < int(index) <= MOST_FEATURES:
            rule = f"expected features in ascending order, from 1 to at most {MOST_FEATURES:,}, each once"
            return f"found feature {_shown(index)} after {last}, {rule}"
        last = int(index)
    return None


def _shown(token: bytes) -> str:
    return ascii(token.decode("utf-8", "replace")[:40])
