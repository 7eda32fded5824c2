"""The lines of LETOR files: many at once where all are well, one by one to say what is wrong."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def parse_lines(text: bytes) -> Documents:
    r"""Parse whole lines, all at once and with hardly any Python per line.

    Raises:
        ValueError: something is wrong with a line; `find_fault` tells what.

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
    numbers = _numbers(text.replace(b"qid:", b"").replace(b":", b" "))
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
        if told := _fault(COMMENT.sub(b"", line).split()):
            return place, told
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


def _numbers(text: bytes) -> NDArray[np.float64]:
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
