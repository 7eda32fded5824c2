"""The LETOR reader: what was written comes back, each corpus's conventions, and bad lines by file and line."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from clickharvest.errors import InputError
from clickharvest.simulate import letor, read_letor
from clickharvest.simulate.letor import find_fault, parse_lines
from places import SHARED_DATA

YAHOO = """0 qid:1 10:0.89028 11:0.75088 699:0.5
4 qid:1 10:1 699:0.25
3 qid:2 11:0.1
"""
MSLR = """2 qid:1 1:3 2:0 3:2 4:-86.76
0 qid:1 1:30000 2:0 3:2 4:-20
4 qid:13 1:0 2:1 3:0 4:-86.76
"""
ISTELLA = """1 qid:1 1:1.79769313486e+308 2:0.5\r
4 qid:1 1:12 2:0\r
0 qid:1 1:-7 2:1\r
"""
MQ = """2 qid:10032 1:0.056537 2:0.000000 3:0.666667 #docid = GX029-35-5894638 inc = 0.0119881192468859 prob = 0.139842
0 qid:10032 1:0.279152 2:0.000000 3:0.000000 #docid = GX030-77-6315042 inc = 1 prob = 0.341364
1 qid:10035 1:0.130742 2:1.000000 3:0.333333 #docid = GX140-98-13566007 inc = 1 prob = 0.0701303
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "corpus.txt") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


Write = Callable[..., Path]

Document = tuple[int, dict[int, float]]
features = st.dictionaries(st.integers(1, 40), st.floats(0, 1, width=32), max_size=12)
documents = st.tuples(st.integers(0, 4), features)
corpora = st.lists(st.lists(documents, min_size=1, max_size=4), min_size=1, max_size=6)
comments = st.sampled_from(["", " ", "#", " # docid = 1:2 qid:3 # again", "\t"])


@given(corpora, st.data(), st.sampled_from([16, 50, 1 << 20]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_was_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    queries: list[list[Document]],
    data: st.DataObject,
    chunk: int,
    zipped: bool,
) -> None:
    numbers = data.draw(st.lists(st.integers(0, 10**9), min_size=len(queries), max_size=len(queries), unique=True))
    lines = []
    for number, docs in zip(numbers, queries, strict=True):
        for grade, features in docs:
            pairs = [f"{index}:{value!r}" for index, value in sorted(features.items())]
            lines.append(" ".join([f"{grade}", f"qid:{number}", *pairs]) + data.draw(comments))
        lines.append(data.draw(st.sampled_from(["# a comment alone", "", "  "])))
    path = tmp_path_factory.mktemp("letor") / ("corpus.gz" if zipped else "corpus")
    text = ("\n".join(lines) + data.draw(st.sampled_from(["", "\n"]))).encode()
    path.write_bytes(gzip.compress(text) if zipped else text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(letor, "CHUNK", chunk)
        corpus = read_letor(path)
    flat = [doc for docs in queries for doc in docs]
    assert corpus.sizes.tolist() == [len(docs) for docs in queries]
    assert corpus.grades.tolist() == [grade for grade, _ in flat]
    expected = np.zeros((len(flat), max((max(f, default=0) for _, f in flat), default=0)), np.float32)
    for row, (_, features) in enumerate(flat):
        for index, value in features.items():
            expected[row, index - 1] = value
    assert_array_equal(corpus.features, expected)


class TestConventions:
    def test_yahoo(self, write: Write) -> None:
        corpus = read_letor(write(YAHOO, "set1.train.txt"))
        assert corpus.threshold == 3
        assert corpus.features.shape == (3, 699)
        assert corpus.features[0, [9, 10, 698]].tolist() == pytest.approx([0.89028, 0.75088, 0.5])
        assert_array_equal(corpus.relevant, [False, True, True])

    def test_yahoo_train_and_valid_are_one_corpus(self, write: Write) -> None:
        train, valid = write(YAHOO, "set1.train.txt"), write("2 qid:3 701:1\n", "set1.valid.txt.gz")
        together = read_letor([train, valid])
        assert together.sizes.tolist() == [2, 1, 1]
        assert together.features.shape == (4, 701)
        assert_array_equal(read_letor(train.parent).features, together.features)

    def test_raw_features_of_mslr_become_ranks_and_others_stay(self, write: Write) -> None:
        corpus = read_letor(write(MSLR))
        assert corpus.threshold == 3
        assert_allclose(corpus.features, [[0.5, 0, 0.5, 0], [1, 0, 0.5, 1], [0, 1, 0, 0]])

    def test_huge_numbers_of_istella_rank_last(self, write: Write) -> None:
        assert_allclose(read_letor(write(ISTELLA)).features, [[1, 0.5], [0.5, 0], [0, 1]])

    @pytest.mark.parametrize("name", ["Querylevelnorm.txt", "train.txt.gz"])
    def test_mq(self, write: Write, name: str) -> None:
        corpus = read_letor(write(MQ, name))
        assert corpus.threshold == 1
        assert_array_equal(corpus.relevant, [True, False, True])
        assert corpus.features[2].tolist() == pytest.approx([0.130742, 1, 0.333333])

    @pytest.mark.parametrize(("largest", "threshold"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 3)])
    def test_threshold_is_one_below_the_largest_grade(self, write: Write, largest: int, threshold: int) -> None:
        path = write(f"0 qid:1 1:1\n{largest} qid:1 1:.5\n")
        assert read_letor(path).threshold == threshold
        assert read_letor(path, threshold=4).threshold == 4

    def test_more_grades_need_a_threshold(self, write: Write) -> None:
        path = write("9 qid:1 1:1\n")
        with pytest.raises(InputError, match="grades up to 9: say with threshold"):
            read_letor(path)
        assert read_letor(path, threshold=5).relevant.tolist() == [True]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1", "found nothing after the grade"),
        ("1 1:0.5", "found '1:0.5' after the grade"),
        ("1 qid:a 1:0.5", "found 'qid:a' after the grade"),
        ("1 qid: 1:0.5", "found 'qid:' after the grade"),
        ("1 qid:-4 1:0.5", "found 'qid:-4' after the grade"),
        ("good qid:1 1:0.5", "found 'good' for a grade"),
        ("-1 qid:1 1:0.5", "found '-1' for a grade"),
        ("1.5 qid:1 1:0.5", "found '1.5' for a grade"),
        ("200 qid:1 1:0.5", "found '200' for a grade"),
        ("qid:1 1:0.5", "found 'qid:1' for a grade"),
        ("1 qid:1 0.5", "found '0.5', expected a feature's number and value"),
        ("1 qid:1 1:", "found '1:'"),
        ("1 qid:1 :0.5", "found ':0.5'"),
        ("1 qid:1 1: 0.5", "found '1:'"),
        ("1 qid:1 1:2:3 4", "found '1:2:3'"),
        ("1 qid:1 1:x", "found '1:x'"),
        ("1 qid:1 1:0.5-3", "found '1:0.5-3'"),
        ("1 qid:1 1:nan", "found '1:nan'"),
        ("1 qid:1 1:inf", "found '1:inf'"),
        ("1 qid:1 1:1e999", "found '1:1e999'"),
        ("1 qid:1 qid:1 2:1", "found 'qid:1'"),
        ("1 qid:1 0:0.5", "found feature '0' after 0, expected features in ascending order"),
        ("1 qid:1 2:0.5 1:0.5", "found feature '1' after 2"),
        ("1 qid:1 2:0.5 2:0.5", "found feature '2' after 2"),
        ("1 qid:1 100001:0.5", "found feature '100001' after 0"),
        ("<b>\x1b[31m qid:1 1:0.5", r"found '<b>\\x1b\[31m' for a grade"),
    ],
)
@pytest.mark.parametrize("chunk", [30, 1 << 20])
def test_bad_lines_are_told_by_file_and_line(
    write: Write, monkeypatch: pytest.MonkeyPatch, line: str, told: str, chunk: int
) -> None:
    monkeypatch.setattr(letor, "CHUNK", chunk)
    path = write(f"# head\n2 qid:1 1:0.5 3:0.25 # fine\n\n{line}\n0 qid:1 1:0.5\n")
    with pytest.raises(InputError, match=rf"corpus\.txt:4: {told}"):
        read_letor(path)


@given(st.text(alphabet="01 2.:qid#-e\nx", max_size=60))
@settings(max_examples=300, deadline=None)
def test_bulk_and_single_lines_agree_on_what_is_bad(text: str) -> None:
    """What the bulk parser accepts has a grade and a query on every line; what it refuses has a reason."""
    lines = (text + "\n").encode()
    try:
        parsed = parse_lines(lines)
    except ValueError:
        assert find_fault(lines)[1]
    else:
        assert len(parsed.grades) == sum(bool(line.partition("#")[0].strip()) for line in text.split("\n"))


class TestFiles:
    @pytest.mark.parametrize("chunk", [20, 1 << 20])
    def test_scattered_queries_are_refused(self, write: Write, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
        monkeypatch.setattr(letor, "CHUNK", chunk)
        path = write("1 qid:7 1:1\n\n1 qid:8 1:1\n# note\n0 qid:7 1:0\n")
        with pytest.raises(InputError, match=r"corpus\.txt:5: query 7 again after another one"):
            read_letor(path)

    def test_folds_that_overlap_are_refused(self, write: Write) -> None:
        write(MQ, "train.txt")
        path = write(MQ, "test.txt")
        with pytest.raises(InputError, match=r"query 10032 is in .*test\.txt and in .*train\.txt: folds"):
            read_letor(path.parent)

    def test_folder_of_folds_names_one(self, write: Write) -> None:
        path = write(MQ, "Fold1/train.txt")
        with pytest.raises(InputError, match=r"no \.txt or \.txt\.gz file .* such as .*Fold1"):
            read_letor(path.parent.parent)

    @pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
    def test_no_documents(self, write: Write, text: str) -> None:
        with pytest.raises(InputError, match="no documents"):
            read_letor(write(text))

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no corpus at .*missing"):
            read_letor(tmp_path / "missing.txt")
        with pytest.raises(InputError, match="no corpus named"):
            read_letor([])

    @pytest.mark.parametrize(
        "content", [b"1 qid:1 1:1\n", gzip.compress(b"1 qid:1 1:1\n" * 1000)[:-20]], ids=["not gzip", "cut off"]
    )
    def test_broken_gz(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "corpus.txt.gz"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"cannot read .*corpus"):
            read_letor(path)


class TestCache:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "new" / "cache"

    def test_second_reading_comes_from_the_cache(
        self, write: Write, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(MQ)
        first = read_letor(path, cache=folder)
        assert [file.suffix for file in folder.iterdir()] == [".npz"]
        monkeypatch.setattr(letor, "parse_lines", None)
        again = read_letor(path, cache=folder, threshold=2)
        assert_array_equal(again.features, first.features)
        assert_array_equal(again.starts, first.starts)
        assert (first.threshold, again.threshold) == (1, 2)

    @pytest.mark.parametrize("change", ["size", "time"])
    def test_a_changed_source_is_read_again(self, write: Write, folder: Path, change: str) -> None:
        path = write(MQ)
        read_letor(path, cache=folder)
        before = path.stat()
        path.write_text(MQ + "0 qid:1 1:1\n" if change == "size" else MQ.replace("2 qid", "1 qid"))
        later = before.st_mtime_ns + (0 if change == "size" else 1_000_000_000)
        os.utime(path, ns=(later, later))
        corpus = read_letor(path, cache=folder)
        assert len(corpus.grades) == (4 if change == "size" else 3)
        assert corpus.grades[0] == (2 if change == "size" else 1)
        assert len(list(folder.iterdir())) == 1

    @pytest.mark.parametrize("broken", ["noise", "cut", "empty", "pickle", "lacking", "shorter"])
    def test_a_broken_cache_is_made_again(self, write: Write, folder: Path, broken: str) -> None:
        path = write(MQ)
        expected = read_letor(path, cache=folder)
        (file,) = folder.iterdir()
        whole = file.read_bytes()
        with np.load(file) as kept:
            arrays = dict(kept)
        if broken == "pickle":
            np.savez(file, **arrays | {"features": np.array([object()], object)})  # type: ignore[arg-type]
        elif broken == "lacking":
            np.savez(file, stamp=arrays["stamp"])
        elif broken == "shorter":
            np.savez(file, **arrays | {"features": arrays["features"][:1]})  # type: ignore[arg-type]
        else:
            file.write_bytes({"noise": b"noise", "cut": whole[: len(whole) // 2], "empty": b""}[broken])
        assert_array_equal(read_letor(path, cache=folder).features, expected.features)
        assert file.read_bytes() == whole

    def test_sources_of_one_name_do_not_share_a_cache(self, write: Write, folder: Path) -> None:
        one, other = write(MQ, "a/x.txt"), write(YAHOO, "b/x.txt")
        assert read_letor(one, cache=folder).features.shape[1] == 3
        assert read_letor(other, cache=folder).features.shape[1] == 699
        assert len(list(folder.iterdir())) == 2

    def test_a_file_in_its_place_is_told(self, write: Write) -> None:
        path = write(MQ)
        with pytest.raises(InputError, match="cannot make the cache folder"):
            read_letor(path, cache=path)


def shared(name: str) -> Path:
    if not (SHARED_DATA / name).exists():
        pytest.skip(f"the corpus {name} is not on this machine")
    return SHARED_DATA / name


def test_agrees_with_another_reader() -> None:
    svmlight = pytest.importorskip(
        "sklearn.datasets", reason="scikit-learn is not installed: pip install -e '.[dev]'"
    ).load_svmlight_file
    path = shared("mq2008.txt.gz")
    features, grades, queries = svmlight(str(path), query_id=True)
    corpus = read_letor(path)
    assert_array_equal(corpus.features, features.toarray().astype(np.float32))
    assert_array_equal(corpus.grades, grades)
    assert_array_equal(corpus.starts[1:-1], np.flatnonzero(np.diff(queries)) + 1)


def test_reads_mq2007() -> None:
    corpus = read_letor(shared("mq2007_part.txt.gz"))
    assert (len(corpus), corpus.features.shape, corpus.threshold) == (1692, (59135, 46), 1)


def test_needs_numpy_and_scipy_alone(write: Write) -> None:
    path = write(MQ)
    code = (
        "import sys\n"
        "for name in ('ibis', 'duckdb', 'pyarrow', 'pandas', 'sklearn', 'typer', 'rich'): "
        "sys.modules[name] = None\n"
        "from clickharvest.simulate import read_letor, simulate_protocol\n"
        f"print(len(read_letor({str(path)!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", "")
