"""What befalls commands: signals, closed and full streams, full disks, outputs that are inputs, hostile text."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from clickharvest.commands.output import is_among
from clickharvest.model.loading import load_propensities
from clickharvest.model.storage import read_file, write_file
from clickharvest.simulate import simulate_ab_log
from command_line import Command

PROGRAM = [sys.executable, "-m", "clickharvest"]
ATTACK = "\x1b]52;c;aGFja2Vk\x07"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log and the model of it."""
    folder = tmp_path_factory.mktemp("sound")
    pq.write_table(simulate_ab_log(pages=2000, queries=30)[0], folder / "log.parquet")
    command = [*PROGRAM, "fit", "log.parquet", "--context", "device", "--curve", "linear", "--penalty", "1"]
    subprocess.run(
        [*command, "--intervals", "sandwich", "-o", "model.safetensors"], cwd=folder, check=True, capture_output=True
    )
    return folder


def start(words: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([*PROGRAM, *words.split()], cwd=folder, text=True, **options)


def holds(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    "words",
    [
        "fit log.parquet -o no/model.safetensors",
        "report model.safetensors --log log.parquet -o no/report.html",
        "rank log.parquet features.parquet --model model.safetensors -o no/ranker.json",
        "judgments log.parquet model.safetensors -o no/judgments.csv",
        "labels log.parquet --model model.safetensors -o no/labels.parquet",
        "weigh log.parquet model.safetensors -o no/weighed.parquet",
        "harvest log.parquet -o no/interventions.parquet",
        "rerank ranker.json features.parquet -o no/ranked.parquet",
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(words: str, run: Command) -> None:
    """Not after an hour of work: none of the inputs is there."""
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: cannot write no/")
    assert "the directory no does not exist" in err


def test_the_format_of_judgments_is_told_before_anything_is_read(run: Command) -> None:
    code, _, err = run("judgments log.parquet model.safetensors -o judged.xml")
    assert (code, err[:39]) == (2, "Error: no format for judgments in judge")


@pytest.mark.parametrize("delay", [0.3, 2.0])
def test_an_interrupt_is_one_line_at_any_time(sound: Path, delay: float, tmp_path: Path) -> None:
    before = holds(sound)
    words = "fit log.parquet --context device --curve mlp --intervals bootstrap --bootstrap 10000 -o never.safetensors"
    process = start(words, sound, env=os.environ | {"TMPDIR": str(tmp_path)})
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "Interrupted; nothing was written.\n")
    assert holds(sound) == before
    assert not holds(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_inside_a_query_is_one_line(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "from clickharvest.__main__ import end_when_interrupted; end_when_interrupted()\n"
        "from clickharvest.logs.engines import DuckDBEngine\n"
        "engine = DuckDBEngine(); print('ready', flush=True)\n"
        "query = 'SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b'\n"
        "engine.backend.con.execute(query).fetchall()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (128 + number, "Interrupted; nothing was written.\n")
    assert not holds(tmp_path)


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them(sound: Path) -> None:
    process = start("check log.parquet", sound, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert (process.wait(60), process.communicate()[1]) == (0, "")


@pytest.mark.parametrize("words", ["--help", "check log.parquet"])
def test_output_that_nobody_reads(sound: Path, words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(words, sound, stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")


@pytest.mark.parametrize("words", ["show model.safetensors", "--version"])
def test_output_on_a_full_disk(sound: Path, words: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = start(words, sound, stdout=full)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("Error: cannot ")
    assert err.endswith("No space left on device\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        "weigh log.parquet model.safetensors -o new.parquet",
        "propensities model.safetensors log2.csv -o new.csv",
        "report model.safetensors -o new.html",
        "fit log.parquet --intervals none -o new.safetensors",
        "simulate ab --pages 2000 -o new",
    ],
)
def test_a_full_disk_leaves_nothing_behind(sound: Path, words: str) -> None:
    (sound / "log2.csv").write_text("device\n" + "mobile\ndesktop\n" * 500)
    before = holds(sound)
    process = start(words, sound, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700)))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert re.fullmatch(r"Error: cannot write new[.a-z]*: File too large\n", err)
    assert holds(sound) == before


def test_terminals_without_letters_or_width(sound: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "COLUMNS": "0"}
    process = start("check log.parquet", sound, env=os.environ | plain)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.isascii()
    assert "examination relative to position 1" in out
    assert "next: clickharvest fit log.parquet" in out


@pytest.mark.parametrize("size", [10**6, 10**8, 10**11])
def test_no_number_is_cut_where_counts_are_huge(size: int, run: Command, tmp_path: Path) -> None:
    """Up to a billion they stand in full, and then in three digits, also beside places with long names."""
    rows = [(k, f"a place with a name {k}", round(size * 0.7 / k), 21 * size // 10) for k in (1, 2)]
    lines = [f"q{q},d,{k},{name},{clicks},{shown}" for q in range(6) for k, name, clicks, shown in rows]
    (tmp_path / "log.csv").write_text("\n".join(["query,doc,position,slot,clicks,impressions", *lines]))
    for options in ("", " --place slot --anchor 'a place with a name 1'"):
        _, out, _ = run(f"check {tmp_path / 'log.csv'}{options} --verbose")
        first, second = (next(line for line in out.splitlines() if line.endswith(end)) for end in (" linked", " yes"))
        told = {10**6: "12,600,000", 10**8: "1.26e9", 10**11: "1.26e12"}[size]
        assert f" {told} " in second
        assert "…" not in second.removeprefix("a place with a …")
        assert "unit clicks" in first


def test_no_number_is_cut_where_a_terminal_is_narrow(run: Command, sound: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    code, out, _ = run(f"check {sound / 'log.parquet'} --context device --verbose")
    assert (code, "…" in out) == (0, False)
    assert "position  impressions     CTR  units  unit clicks  effective  linked" in out
    _, out, _ = run(f"show {sound / 'model.safetensors'}")
    assert "…" not in out


def test_queries_and_documents_are_neither_in_a_model_nor_in_its_report(run: Command, sound: Path) -> None:
    """The log's are called 'query 7' and 'doc 7'; only checks that find something in a log name one."""
    assert run(f"report {sound}/model.safetensors --log {sound}/log.parquet -o r.html")[0] == 0
    named = re.compile(rb"\b(query|doc) \d")
    assert not named.search((sound / "model.safetensors").read_bytes())
    assert not named.search(Path("r.html").read_bytes())


@pytest.mark.parametrize("kind", ["itself", "symbolic link", "hard link", "folder", "glob"])
def test_no_command_writes_what_it_reads(run: Command, kind: str) -> None:
    pq.write_table(simulate_ab_log(pages=50, queries=5)[0], "log.parquet")
    data, source, output = Path("log.parquet").read_bytes(), "log.parquet", "out.parquet"
    if kind == "itself":
        output = source
    elif kind == "symbolic link":
        Path(output).symlink_to(source)
    elif kind == "hard link":
        Path(output).hardlink_to(source)
    else:
        source = "." if kind == "folder" else "'*.parquet'"
    code, _, err = run(f"harvest {source} -o {output}")
    assert (code, "is what the command reads" in err) == (2, True)
    assert Path("log.parquet").read_bytes() == data


def test_other_files_are_not_taken_for_inputs(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"")
    assert not is_among(tmp_path / "model.safetensors", str(tmp_path))
    assert not is_among(tmp_path / "out.parquet", str(tmp_path / "log.parquet"))
    assert is_among(tmp_path / "new.parquet", str(tmp_path))


def test_models_have_the_mode_of_the_umask(sound: Path) -> None:
    assert (sound / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_searcher_cannot_steer_the_terminal(run: Command) -> None:
    shown = {"query": ["q"] * 4, "doc": ["a", "b"] * 2, "position": [1, 2, 2, 1], "click": [1, 0, 0, 1]}
    pq.write_table(
        pa.table(shown | {"page": [ATTACK, ATTACK, "y", "y"], "ranker": [ATTACK, ATTACK, "y\u202e", "y\u202e"]}),
        "log.parquet",
    )
    for words in (
        "check log.parquet --context ranker",
        "check log.parquet --position ranker",
        f"check log.parquet --doc '{ATTACK}'",
    ):
        code, out, err = run(words)
        assert code in (0, 2, 3)
        assert all(letter.isprintable() or letter == "\n" for letter in out + err)
        assert out + err


@pytest.mark.parametrize("name", ["\0", "a\0b"])
def test_a_column_with_nul_in_its_name_is_one_line(run: Command, sound: Path, name: str) -> None:
    log = pq.read_table(sound / "log.parquet")
    pq.write_table(log.append_column(name, log["device"]), "log.parquet")
    assert run("check log.parquet")[0] == 0
    for words in ("check log.parquet", "plan log.parquet", "fit log.parquet -o m.safetensors"):
        code, _, err = run(f"{words} --context '{name}'")
        assert (code, "NUL in its name" in err, err.count("\n")) == (2, True, 1), err


def test_sql_with_control_characters_is_not_printed_otherwise(run: Command) -> None:
    code, out, err = run(f"harvest t --emit-sql trino --query 'q{ATTACK}'")
    assert (code, out) == (2, "")
    assert "control characters" in err


def test_csv_guards_formulas(run: Command, sound: Path) -> None:
    pq.write_table(pa.table({"device": ["=1+1", "mobile"], "@x": [" ＝2", "a\r=b"]}), "contexts.parquet")
    assert run(f"propensities {sound / 'model.safetensors'} contexts.parquet -o out.csv")[0] == 0
    table = pc.read_csv(
        "out.csv",
        convert_options=pc.ConvertOptions(column_types={"'@x": pa.string()}),
        parse_options=pc.ParseOptions(newlines_in_values=True),
    )
    assert set(table["device"].to_pylist()) == {"'=1+1", "mobile"}
    assert set(table["'@x"].to_pylist()) == {"' ＝2", "a\r=b"}


@pytest.mark.parametrize(
    "words",
    [
        "check x.csv --max-position 99999999999999999999",
        "check x.csv --position-base 9999999999",
        "fit x.csv --seed -1", "fit x.csv --seed 99999999999999999999", "fit x.csv --penalty nan",
        "fit x.csv --penalty inf",
        "fit x.csv --bootstrap 999999999999", "rank a b --test-share nan", "rank a b --level nan", "rank a b --seed -1",
        "propensities m --level nan", "compare m --level inf", "report m --level -1",
        "demo --seed -1",
        "simulate --queries 0 -o s", "simulate --positions -1 -o s", "simulate --eta nan -o s",
        "simulate --zeta inf -o s",
        "simulate --noise nan -o s", "simulate --sweeps nan -o s", "simulate ab --pages 0 -o s",
        "simulate --seed -5 -o s",
        "simulate --test-queries -1 -o s", "simulate --training-queries 0 -o s", "simulate --threshold -1 -o s",
    ],
)  # fmt: skip
def test_options_have_bounds(run: Command, words: str) -> None:
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: Invalid value for '--")
    assert "; expected a " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("check log.csv --swap 99999999999999999999", "--swap"),
        (f"check log.csv --swap {'9' * 5000}", "--swap"),
        ("check log.csv --swap 99999999999999999999=1", "--swap"),
        ("check log.csv --rankings log.csv --traffic a=1e300,b=1e300", "--traffic"),
        ("rank log.csv log.csv --C 1e308 -o r.json", "--C 1e308"),
        ("rank log.csv log.csv --clip 1e-308 -o r.json", "--clip"),
        ("fit log.csv --context x --curve mlp --shape width=99999999999 -o m.safetensors", "--shape"),
        ("simulate --queries 10000000 --positions 1000 -o s", "more than 500,000,000"),
        ("simulate --rows --sweeps 1e9 -o s", "more than 500,000,000"),
        (b"check \xff.csv".decode(errors="surrogateescape"), "not UTF-8"),
    ],
)
def test_numbers_inside_words_have_bounds(run: Command, words: str, told: str) -> None:
    Path("log.csv").write_text("query,doc,position,click,x\nq,a,1,1,1\nq,a,2,0,1\nq,b,2,1,1\nq,b,1,0,1\n")
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"clicks": "many"}, "clicks"), ({"clicks": 10**400}, "clicks"), ({"selection": ["linear"]}, "selection"),
        ({"selection": [{"curve": "linear", "score": "good"}]}, "selection"), ({"findings": [3]}, "findings"),
        ({"estimator": [1]}, "estimator"), ({"pooled": [1]}, "pooled"), ({"log_likelihood": {}}, "log_likelihood"),
    ],
)  # fmt: skip
def test_models_that_tell_nonsense_are_refused(run: Command, sound: Path, change: dict[str, Any], told: str) -> None:
    header, tensors = read_file(sound / "model.safetensors")
    header["info"] |= change
    write_file(Path("bent.safetensors"), header, tensors)
    code, out, err = run("show bent.safetensors")
    assert (code, out) == (2, "")
    assert f"its info has {told}" in err
    assert err.count("\n") == 1


def test_an_error_is_one_short_line_whatever_a_file_holds(run: Command, sound: Path) -> None:
    header, tensors = read_file(sound / "model.safetensors")
    for forged in ({"positions": [*range(100_000, 0, -1)]}, {"curve": {"name": "x" * 10**6}}, {"anchor": 10**4_000}):
        write_file(Path("bent.safetensors"), header | forged, tensors)
        code, _, err = run("show bent.safetensors")
        assert (code, err.count("\n"), len(err) < 500) == (2, 1, True)
    code, _, err = run(f"check {sound / 'log.parquet'} --context {'x' * 10**5}")
    assert (code, err[:31], err[-7:], len(err) < 2_100) == (2, "Error: missing context column '", " click\n", True)


@pytest.mark.parametrize("value", [1e308, 800.0, -800.0])
def test_infinite_propensities_are_refused(run: Command, sound: Path, value: float) -> None:
    header, tensors = read_file(sound / "model.safetensors")
    tensors = dict(tensors) | {"params/b": tensors["params/b"] * 0 + value}
    write_file(Path("bent.safetensors"), header, tensors)
    code, out, err = run("show bent.safetensors --json")
    assert (code, out) == (2, "")
    assert "bent.safetensors cannot be used" in err
    assert err.count("\n") == 1


def test_a_fit_is_saved_before_it_is_checked(run: Command, sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("clickharvest.checks.check_fit", fail)
    code, _, err = run(f"fit {sound / 'log.parquet'} --intervals none -o model.safetensors")
    assert code == 2
    assert err.startswith("Error: there is not enough memory")
    assert load_propensities("model.safetensors").info["clicks"] > 0


def test_cells_of_a_billion_impressions_are_fitted(run: Command) -> None:
    rows = [f"q{q},d{d},{k},{3_000_000_000 // k},{5_000_000_000}" for q in range(3) for d in range(2) for k in (1, 2)]
    Path("log.csv").write_text("\n".join(["query,doc,position,clicks,impressions", *rows]) + "\n")
    code, out, _ = run("fit log.csv -o model.safetensors --json")
    assert code == 0
    assert json.loads(out)["typical_context"][1]["propensity"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("values", [[None, None], [[1.0], [2.0]]])
def test_features_that_are_no_numbers_are_one_line(run: Command, values: list[Any]) -> None:
    shown = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "click": [0, 1], "propensity": [1.0, 0.5]}
    pq.write_table(pa.table(shown), "log.parquet")
    pq.write_table(pa.table({"query": ["q", "q"], "doc": ["a", "b"], "stars": values}), "features.parquet")
    code, out, err = run("rank log.parquet features.parquet -o ranker.json")
    assert (code, out) == (2, "")
    assert "features.parquet, column 'stars' holds" in err
    assert err.count("\n") == 1
