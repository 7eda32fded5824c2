"""`check` and `fit` answer on one screen: what was read, the curve, how far off it can be, and what to do next."""

from __future__ import annotations

import json
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.checks import Finding, budget_of, percent
from clickharvest.commands.declaring import parse_positions, parse_share
from clickharvest.commands.text import problems, spell_share, wrapped
from clickharvest.errors import InputError
from clickharvest.model.loading import load_propensities
from clickharvest.simulate import simulate_ab_log
from command_line import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screen")
    shown = simulate_ab_log(pages=6_000, seed=4)[0]
    pq.write_table(shown, folder / "log.parquet")
    first = shown["position"].to_numpy() == 1
    only_first = shown.set_column(
        shown.column_names.index("click"), "click", pa.array(shown["click"].to_numpy() * first)
    )
    pq.write_table(only_first, folder / "unclicked.parquet")
    return folder


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, str]:
    """What `check` and `fit` print of a log: with a context as text, and without as JSON."""
    screens = {}
    for command in ("check", "fit"):
        for name, options in ((command, ("--context", "device")), (f"{command} as JSON", ("--json",))):
            output = ("-o", folder / f"{name}.safetensors") if command == "fit" else ()
            with redirect_stdout(StringIO()) as screen:
                assert run(command, folder / "log.parquet", *options, *output) == 0
            screens[name] = screen.getvalue()
    return screens


def fits(screen: str) -> bool:
    lines = [line for line in screen.splitlines() if not line.startswith("next: ")]  # a command stays on one line
    return len(lines) <= 25 and max(map(len, lines)) <= 80


def test_fit_prints_one_screen_and_keeps_the_budget(folder: Path, printed: dict[str, str]) -> None:
    screen = printed["fit"]
    assert fits(screen)
    assert screen.startswith("read      60,000 rows: ")
    assert "compared  " in screen
    assert "desktop" in screen
    budget = budget_of(load_propensities(folder / "fit.safetensors"))
    assert budget is not None
    assert str(budget) in " ".join(screen.split())
    (name, sizes), *_ = budget.terms.items()
    assert f"{name} {percent(max(sizes))}" in " ".join(screen.split())
    assert "not tested: " in screen
    last = screen.splitlines()[-1]
    assert last.startswith(("next: clickharvest weigh ", "saved: "))
    if last.startswith("next"):
        words = shlex.split(last.removeprefix("next: clickharvest "))
        assert run(*words, "-o", folder / "weighed.parquet") == 0


def test_check_and_fit_tell_the_same(printed: dict[str, str]) -> None:
    assert fits(printed["check"])
    assert printed["check"].splitlines()[:-1] == printed["fit"].splitlines()[:-1]
    assert "next: clickharvest fit" in " ".join(printed["check"].split())


def test_json_has_the_budget_and_every_finding(printed: dict[str, str]) -> None:
    answers = [json.loads(printed[name]) for name in ("check as JSON", "fit as JSON")]
    for answer in answers:
        assert answer["budget"]["word"] in ("usable", "with care", "cannot tell")
        assert answer["budget"]["positions"] == list(range(2, 11))
        assert len(answer["budget"]["up"]) == len(answer["budget"]["down"]) == 9
        assert {"noise", "relevance"} <= set(answer["budget"]["terms"])
        assert answer["budget"]["untested"]["crowd"] == "user"
        assert all(one["kind"] and one["severity"] and one["sentence"] for one in answer["findings"])
    assert answers[0]["budget"] == answers[1]["budget"]


def test_verbose_prints_every_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit", folder / "log.parquet", "--verbose", "-o", folder / "v.safetensors") == 0
    printed = capsys.readouterr().out
    for kind in ("relevance", "clicks above", "crowd", "rows", "step"):
        assert f"\n  {kind}" in printed or f"\n? {kind}" in printed or f"\n! {kind}" in printed
    assert max(len(line) for line in printed.splitlines() if not line.startswith("next: ")) <= 80


def test_fewer_positions_and_more_tolerance_are_easier(
    folder: Path, printed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def budget(*options: str) -> dict[str, Any]:
        assert run("check", folder / "log.parquet", *options, "--json") == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)["budget"]
        return answer

    whole, top = json.loads(printed["check as JSON"])["budget"], budget("--positions", "1-3", "--tolerance", "90%")
    assert top["positions"] == [2, 3]
    assert top["off"] < whole["off"]
    assert top["word"] == "usable"
    strict = budget("--tolerance", "10%")
    assert strict["word"] == "with care"
    assert strict["times"] > whole["times"]


def test_without_checks_nothing_is_said_of_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder / "none.safetensors"
    assert run("fit", folder / "log.parquet", "--no-checks", "-o", model) == 0
    assert "how far off the curve can be is not known" in " ".join(capsys.readouterr().out.split())
    assert budget_of(load_propensities(model)) is None


def test_without_intervals_nothing_can_be_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit", folder / "log.parquet", "--intervals", "none", "-o", folder / "i.safetensors") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "cannot tell: the fit has no intervals" in printed
    assert "inf" not in printed


@pytest.mark.parametrize(
    "words", [("--tolerance", "much"), ("--tolerance", "0"), ("--tolerance", "130%"), ("--positions", "3-1"),
              ("--positions", "a"), ("--fold", "0"), ("--fold", "1-99999999")],
)  # fmt: skip
def test_options_that_cannot_be_read_are_one_line(
    folder: Path, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fit", folder / "log.parquet", *words, "-o", folder / "x.safetensors") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (folder / "x.safetensors").exists()


def test_a_log_that_links_nothing_ends_with_3(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", folder / "unclicked.parquet") == 3
    assert "does not reveal examination" in capsys.readouterr().out


def test_at_most_three_problems_are_told_the_largest_first() -> None:
    findings = [
        Finding(f"check {size}", "warning", f"Off by {size}.", "do it", np.array([[0.0, size]]), np.zeros((1, 2)))
        for size in (0.1, 0.4, 0.2, 0.3)
    ]
    lines = list(problems([*findings, Finding("log", "decisive", "All is lost.")]))
    assert lines == ["! All is lost.", "! Off by 0.4. Do it.", "! Off by 0.3. Do it.", "and 2 more: --verbose"]


def test_words_and_numbers() -> None:
    assert spell_share(0.5, 0.45, 0.55) == ".50 (.45-.55)"
    assert spell_share(1.204, 1.1, 1.3) == "1.20 (1.10-1.30)"
    assert parse_share(" 25 % ", "--tolerance") == 0.25
    assert parse_positions("1-3, 8", "--positions") == (1, 2, 3, 8)
    assert not any(line.startswith("%") for line in wrapped("a word and 10 % " * 20))
    with pytest.raises(InputError, match="above 0 and at most 1"):
        parse_share("nan", "--tolerance")
