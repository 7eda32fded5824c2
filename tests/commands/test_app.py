"""The commands: help, JSON, plain output when piped, exit codes, and how options are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from clickharvest import __version__
from clickharvest.commands.app import COMMANDS, assemble
from clickharvest.commands.declaring import parse_shares
from clickharvest.commands.options import HarvestOptions, LogOptions
from clickharvest.errors import InputError
from clickharvest.harvesting.designs import Rankings, Swap
from clickharvest.harvesting.reading import read_interventions
from clickharvest.logs.engines import DuckDBEngine
from clickharvest.simulate import simulate_ab_log
from command_line import Command


@pytest.fixture
def log(run: Command) -> str:
    pq.write_table(simulate_ab_log(pages=3000, queries=40)[0], "log.parquet")
    return "log.parquet"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_two_screens_and_shows_an_example(
    command: str, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run(f"{command} --help")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) <= 48
    assert max(map(len, out.splitlines())) <= 80
    assert f"clickharvest {command}" in out.partition("Example")[2]


def test_rarely_used_options_are_shown_on_request(run: Command) -> None:
    out = run("check --help")[1]
    assert "--spark-master" not in out
    assert out.endswith("more options: clickharvest check --help-all\n")
    code, whole, err = run("check --help-all")
    assert (code, err) == (0, "")
    assert "--spark-master" in whole
    assert "more options" not in whole
    assert "--random" in run("validate --help")[1]  # which its description names


def test_help_lists_the_commands(run: Command) -> None:
    _, out, _ = run("--help")
    assert all(command in out for command in ("check", "harvest", "demo"))
    assert run("--version") == (0, f"clickharvest {__version__}\n", "")


def test_check_prints_json_alone(run: Command, log: str) -> None:
    code, out, err = run(f"check {log} --context device --json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["identified"] is True
    assert told["totals"]["impressions"] == 30_000
    assert {finding["severity"] for finding in told["findings"]} <= {"ok", "untested", "note", "warning", "decisive"}


def test_harvest_prints_json_alone(run: Command, log: str) -> None:
    code, out, err = run(f"harvest {log} --context device -o out.parquet --json")
    written = read_interventions("out.parquet")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "file": "out.parquet",
        "rows": len(written),
        "units": written.n_units,
        "clicks": written.clicks.sum(),
    }


def test_a_file_of_interventions_can_be_checked(run: Command, log: str) -> None:
    assert run(f"harvest {log} --context device -o out.parquet")[0] == 0
    code, out, _ = run("check out.parquet --json")
    assert code == 0
    assert json.loads(out)["linked"] == list(range(1, 11))


def test_what_cannot_be_linked_is_exit_code_3(run: Command) -> None:
    Path("log.csv").write_text("query,doc,position,click\nq,a,1,1\nq,b,2,0\n")
    code, out, err = run("check log.csv")
    assert (code, err) == (3, "")
    assert "does not reveal examination" in out
    code, out, err = run("harvest log.csv -o out.parquet")
    assert (code, out) == (3, "")
    assert err.startswith("Error: nothing to harvest")
    assert [path.name for path in Path().iterdir()] == ["log.csv"]


def test_one_position_is_no_comparison(run: Command) -> None:
    Path("log.csv").write_text("query,doc,position,click,device\nq,a,1,1,m\nq,b,1,0,m\n")
    code, out, _ = run("check log.csv --context device")
    assert (code, out.splitlines()[-1]) == (3, "This log does not reveal examination.")
    assert out.startswith("Log:     2 impressions, 1 click, 1 query, position 1\n")
    assert "✗ Only one position was ever shown: there is nothing to compare." in out
    _, out, _ = run("check log.csv --context device --verbose")
    assert "· No impression shows a query and document seen more than once." in out


def test_a_wrong_option_names_the_help_of_its_command(run: Command) -> None:
    code, _, err = run("propensities model.safetensors --level 95")
    assert (code, err.endswith("(see clickharvest propensities --help)\n")) == (2, True)
    code, _, err = run("simulate nothing -o there")
    assert "'simulator': 'nothing' is not one of" in err
    assert run("nothing")[2] == "Error: No such command 'nothing'. (see clickharvest --help)\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("fit x.csv --curve cubic", "Invalid value for '--curve': 'cubic' is not one of 'auto', 'constant', 'index'"),
        ("fit x.csv --objective mse", "'--objective': 'mse' is not one of 'allpairs', 'clickshare'"),
        (
            "fit x.csv --relevance deep",
            "'--relevance': 'deep' is not one of 'auto', 'constant', 'mlp', 'squares', 'free'",
        ),
        ("fit x.csv --weighting max", "'--weighting': 'max' is not one of 'paper', 'min', 'harmonic'"),
        ("rank x.csv f.csv --learner bm25", "'--learner': 'bm25' is not one of 'lightgbm', 'linear', 'svm', 'xgboost'"),
        ("simulate --examination bathtub", "'--examination': 'bathtub' is not one of 'power', 'fold'"),
        ("simulate --clicks ccm", "'--clicks': 'ccm' is not one of 'pbm', 'trust', 'cascade'"),
        ("simulate --repetition odd", "'--repetition': 'odd' is not one of 'even', 'zipf', 'same'"),
        ("simulate --deployment cd", "'--deployment': 'cd' is not one of 'ab', 'consecutive'"),
        ("harvest x.csv --format ga3", "'--format': 'ga3' is not one of 'adobe', 'algolia', 'elastic', 'ga4'"),
    ],
)
def test_another_name_is_refused_in_one_line(run: Command, arguments: str, told: str) -> None:
    code, out, err = run(arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("extra", ["-o harvest.sql", "--json", "--placement p", "--placements p.csv"])
def test_what_a_printed_query_does_not_do_is_refused(extra: str, run: Command) -> None:
    code, out, err = run(f"harvest shop.clicks --emit-sql bigquery {extra}")
    assert (code, out) == (2, "")
    assert f"{extra} does not go with --emit-sql" in err or f"--emit-sql does not go with {extra.split()[0]}" in err


@pytest.mark.parametrize(
    ("words", "name", "content", "told"),
    [
        ("check", "log.parquet", b"PAR1 and no end", "cannot be read as Parquet: it is cut off, or a file of another"),
        ("show", "ranker.json", b'{"what": "ranker"} ' * 9, "it is damaged, or a file of another kind"),
        ("rerank", "model.json", b"\xc0\x00\x00", "cannot be read as JSON: it is no text in UTF-8. Expected a ranker."),
    ],
)
def test_another_kind_of_file_is_told_in_plain_words(
    words: str, name: str, content: bytes, told: str, run: Command
) -> None:
    Path(name).write_bytes(content)
    code, _, err = run(f"{words} {name} {'documents.csv -o ranked.parquet' * (words == 'rerank')}")
    assert (code, told in err) == (2, True), err


def test_every_source_goes_through_the_command_line(run: Command) -> None:
    Path("log.csv").write_text("q,d,rank,c,device\nx,007,0,True,m\nx,007,1,False,m\nx,7,1,True,m\nx,7,0,False,m\n")
    roles = "--query q --doc d --position rank --click c --position-base 0 --context device"
    assert run(f"harvest log.csv {roles} -o out.parquet")[0] == 0
    rows = pq.read_table("out.parquet").to_pylist()
    assert [(row["unit"], row["position"], row["clicks"], row["device"]) for row in rows] == [
        (0, 1, 1, "m"), (0, 2, 0, "m"), (1, 1, 0, "m"), (1, 2, 1, "m"),
    ]  # fmt: skip


def test_nothing_is_coloured_or_drawn_when_piped(log: str) -> None:
    program = str(Path(sys.executable).with_name("clickharvest"))
    command = [program, "check", log, "--context", "device"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80


def test_an_older_output_survives_a_failure(run: Command) -> None:
    Path("log.csv").write_text("query,doc,position,click\nq,a,1,1\nq,b,2,0\n")
    Path("out.parquet").write_bytes(b"older")
    assert run("harvest log.csv -o out.parquet")[0] == 3
    assert Path("out.parquet").read_bytes() == b"older"


def test_context_columns_split_at_commas_and_add_up() -> None:
    options = LogOptions(source="x", context=["a, b", "c,"])
    assert options.context_columns == ("a", "b", "c")


def test_only_named_columns_are_passed_on() -> None:
    assert LogOptions(source="x", query="q", page="").columns == {"query": "q", "page": ""}


def test_designs_are_read_from_options() -> None:
    assert HarvestOptions().design(1) is None
    assert HarvestOptions(rankings="r.csv", traffic="a=1,b=3").design(0) == Rankings("r.csv", {"a": 1.0, "b": 3.0}, 0)
    assert HarvestOptions(swap="4").design(1) == Swap.uniform(4)
    assert HarvestOptions(swap="1=.5,3=.5").design(1) == Swap({1: 0.5, 3: 0.5})
    assert HarvestOptions(swap="2", rankings="r.csv").design(1) == Swap.uniform(2, Rankings("r.csv"))


@pytest.mark.parametrize("text", ["", "a", "a=", "=1", "a=1,a=2", "a=x", "a=1,", "a=nan", "a=inf", "a=-1"])
def test_shares_that_are_no_shares(text: str) -> None:
    with pytest.raises(InputError, match="expected name=number"):
        parse_shares(text, "--traffic")


def test_memory_limits_reach_the_engine() -> None:
    engine = LogOptions(source="x", memory_limit="300MB").start_engine()
    assert isinstance(engine, DuckDBEngine)
    setting = engine.backend.con.execute("SELECT current_setting('memory_limit')").fetchone()[0]
    assert setting.startswith("286")


def test_one_command_is_built_alone_but_the_demo_has_all() -> None:
    def names(*words: str) -> list[str | None]:
        return [command.name for command in assemble(words).registered_commands]

    assert names("fit", "log.csv") == ["fit"]
    assert names("--version") == []
    assert names("demo") == names("--help") == names() == names("nothing") == list(COMMANDS)
