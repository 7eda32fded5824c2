"""`clickharvest simulate`: the folder it writes whole or not at all, and the commands it names."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from clickharvest.commands.simulate import ALLOWED, SimulateOptions
from clickharvest.simulate import Corpus, simulate_protocol, synthetic_corpus
from command_line import Command

SMALL = "--corpus corpus.txt --queries 150 --test-queries 40"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return synthetic_corpus(500, docs=(8, 12), features=12, seed=2)


@pytest.fixture
def letor(run: Command, corpus: Corpus) -> None:
    """Write the corpus as corpus.txt in the current folder."""
    with Path("corpus.txt").open("w") as file:
        for grade, query, features in zip(corpus.grades, corpus.query, corpus.features, strict=True):
            pairs = " ".join(f"{j}:{value!r}" for j, value in enumerate(features.tolist(), 1))
            file.write(f"{grade} qid:{query} {pairs}\n")


@pytest.mark.usefixtures("letor")
class TestProtocol:
    def test_folder_holds_what_the_simulator_gives(self, run: Command, corpus: Corpus) -> None:
        options = "--traffic 80,20 --clicks trust --eta 1 --seed 3 --cache kept"
        code, out, err = run(f"simulate {SMALL} {options} -o made")
        assert (code, err) == (0, "")
        assert max(map(len, out.splitlines())) <= 80
        expected = simulate_protocol(
            sweeps=1, queries=150, test_queries=40, traffic=(80, 20), clicks="trust", eta=1, seed=3, corpus=corpus
        )
        assert sorted(path.name for path in Path("made").iterdir()) == [
            "log.parquet", "rankings.parquet", "settings.json", "truth.parquet"
        ]  # fmt: skip
        assert pq.read_table("made/log.parquet").equals(expected.log)
        assert pq.read_table("made/rankings.parquet").equals(expected.rankings)
        truth = pq.read_table("made/truth.parquet")
        assert truth.column_names == [*expected.context, "position", "examination"]
        assert np.array_equal(truth["examination"].to_numpy().reshape(40, 10), expected.test_examination)
        assert np.array_equal(truth["x4"].to_numpy()[::10], expected.test_contexts[:, 3])
        settings = json.loads(Path("made/settings.json").read_text())
        assert settings["simulator"] == "protocol"
        assert (settings["clicks"], settings["traffic"], settings["queries"]) == ("trust", [80, 20], 150)
        assert (settings["corpus"], settings["threshold"], settings["features"]) == ("corpus.txt", 3, 12)
        assert len(list(Path("kept").glob("*.npz"))) == 1

    def test_the_commands_it_names_work(self, run: Command) -> None:
        _, out, _ = run(f"simulate {SMALL} --sweeps 10 -o 'made here' --json")
        report = json.loads(out)
        assert report["rows"] == pq.read_metadata("made here/log.parquet").num_rows
        assert report["clicks"] == pq.read_table("made here/log.parquet")["clicks"].to_numpy().sum()
        assert report["settings"] == json.loads(Path("made here/settings.json").read_text())
        check, fit = (shlex.split(command) for command in report["next"])
        code, _, err = run(shlex.join(check[1:]))
        assert (code, err) == (0, "")
        options = ["--curve", "constant", "--intervals", "none"]
        code, _, err = run(shlex.join([*fit[1:], *options]))
        assert code == 0, err
        assert Path("made here.safetensors").exists()

    def test_documents_are_those_of_the_log_with_features_and_grades(self, run: Command) -> None:
        code, _, _ = run("simulate --queries 30 --test-queries 10 --documents -o made")
        assert code == 0
        log, documents, judgements = (
            pq.read_table(f"made/{name}.parquet") for name in ("log", "documents", "judgements")
        )
        assert documents.column_names[:3] == ["query", "doc", "f1"]
        assert judgements.select(["query", "doc"]) == documents.select(["query", "doc"])
        keys = set(zip(*documents.select(["query", "doc"]).to_pydict().values(), strict=True))
        assert set(zip(*log.select(["query", "doc"]).to_pydict().values(), strict=True)) < keys
        assert set(judgements["grade"].to_pylist()) <= {0, 1, 2, 3, 4}

    def test_rows_have_page_and_time(self, run: Command) -> None:
        assert run(f"simulate {SMALL} --rows --training-queries 300 --deployment consecutive -o made")[0] == 0
        log = pq.read_table("made/log.parquet")
        assert {"page", "time", "click"} < set(log.column_names)
        assert log["page"].to_numpy().max() == 599

    def test_the_whole_corpus_by_default(self, run: Command, corpus: Corpus) -> None:
        assert run("simulate --corpus corpus.txt --threshold 4 -o made")[0] == 2
        assert run("simulate --corpus corpus.txt --threshold 2 -o made")[0] == 0
        settings = json.loads(Path("made/settings.json").read_text())
        usable = len(np.unique(corpus.query[corpus.grades >= 2])) - 206
        assert settings["threshold"] == 2
        assert settings["queries"] + settings["test_queries"] == usable

    def test_nothing_stays_of_a_failure(self, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        assert run(f"simulate {SMALL} -o made")[0] == 0
        before = {path.name: path.read_bytes() for path in Path("made").iterdir()}

        def fail(*_: object) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(pq, "write_table", fail)
        for folder in ("made", "other"):
            code, _, err = run(f"simulate {SMALL} --seed 1 --force -o {folder}")
            assert (code, err) == (2, f"Error: cannot write {folder}: no space left\n")
        assert sorted(path.name for path in Path().iterdir()) == ["corpus.txt", "made"]
        assert {path.name: path.read_bytes() for path in Path("made").iterdir()} == before


class TestFolder:
    def test_is_not_overwritten_unless_forced(self, run: Command) -> None:
        assert run("simulate ab --pages 20 -o made")[0] == 0
        before = Path("made/log.parquet").read_bytes()
        code, out, err = run("simulate ab --pages 30 -o made")
        assert (code, out) == (2, "")
        assert err == ("Error: made is not empty: name another folder, or replace a simulation in it with --force\n")
        assert Path("made/log.parquet").read_bytes() == before
        assert run("simulate ab --pages 30 -o made --force")[0] == 0
        assert pq.read_metadata("made/log.parquet").num_rows == 300
        assert [path.name for path in Path().iterdir()] == ["made"]

    def test_with_other_files_is_never_replaced(self, run: Command) -> None:
        Path("made").mkdir()
        Path("made/thesis.tex").write_text("years of work")
        code, _, err = run("simulate ab --pages 20 --force -o made")
        assert code == 2
        assert "made holds thesis.tex, which is not of a simulation" in err
        assert Path("made/thesis.tex").read_text() == "years of work"

    def test_may_be_there_and_empty(self, run: Command) -> None:
        Path("made").mkdir()
        assert run("simulate ab --pages 20 -o made/")[0] == 0

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ("simulate ab", "name a folder with -o simulated"),
            ("simulate ab -o file", "file is a file"),
            ("simulate ab -o no/where", "the directory no does not exist"),
            ("simulate ab --eta 1 -o made", "--eta does not go with simulate ab: it has --pages, --queries"),
            ("simulate arxiv --rows -o made", "--rows does not go with simulate arxiv"),
            ("simulate --pages 5 -o made", "--pages does not go with simulate protocol"),
            ("simulate --threshold 2 -o made", "--threshold goes with --corpus PATH"),
            ("simulate --traffic a,b -o made", "--traffic a,b: expected numbers such as 80,15,5"),
            ("simulate --corpus nowhere.txt -o made", "no corpus at nowhere.txt"),
            ("simulate --clicks ccm --queries 5 -o made", "'ccm' is not one of 'pbm'"),
            ("simulate --sweeps 1 --training-queries 5 -o made", "expected either sweeps"),
            ("simulate web -o made", "'web'"),
        ],
    )
    def test_bad_input_is_one_line(self, run: Command, arguments: str, told: str) -> None:
        Path("file").write_text("")
        code, out, err = run(arguments)
        assert (code, out) == (2, "")
        assert told in err
        assert err.count("\n") == 1
        assert [path.name for path in Path().iterdir()] == ["file"]


def test_ab(run: Command) -> None:
    code, out, _ = run("simulate ab --pages 3000 --queries 40 --seed 1 -o made --json")
    assert code == 0
    truth = pq.read_table("made/truth.parquet").to_pydict()
    assert truth["device"] == ["desktop"] * 10 + ["mobile"] * 10
    assert truth["examination"] == pytest.approx([k**-0.7 for k in range(1, 11)] + [k**-1.4 for k in range(1, 11)])
    check = shlex.split(json.loads(out)["next"][0])
    assert run(shlex.join(check[1:]))[0] == 0


def test_arxiv(run: Command) -> None:
    code, out, _ = run("simulate arxiv --queries 3000 --positions 5 -o made --json")
    assert code == 0
    log, swap = (pq.read_table(f"made/{name}.parquet") for name in ("log", "swap"))
    assert not any(log["swap"].to_pylist())
    assert all(swap["swap"].to_pylist())
    truth = pq.read_table("made/truth.parquet")
    assert truth.num_rows == 300 * 5
    assert {"complex", "query_len", "position", "examination"} < set(truth.column_names)
    check = shlex.split(json.loads(out)["next"][0])
    code, _, err = run(shlex.join(check[1:]))
    assert (code, err) == (0, "")


def test_every_option_has_a_simulator() -> None:
    assert set().union(*ALLOWED.values()) == set(SimulateOptions.__dataclass_fields__)
    assert SimulateOptions(eta=2.0).arguments("protocol") == {"seed": 0, "eta": 2.0}
