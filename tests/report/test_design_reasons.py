"""Exposures by design that the log contradicts are told wherever a model or its log is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest.diagnosis.findings import Finding
from clickharvest.model.curves import make_curve
from clickharvest.model.loading import load_propensities
from clickharvest.model.propensities import Propensities
from clickharvest.report.reasons import Grounds, check_reasons
from command_line import run

PAGES, K = 3_000, 4
SWAP = ("--swap", K, "--original", "original")


def a_model() -> Propensities:
    return Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, (1, 2), None, None)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("design", 0.02, "with care"),
        ("design", 0.1, "cannot tell"),
        ("swap ranks", 0.05, None),
        ("swap ranks", 0.12, "with care"),
        ("swap ranks", 0.25, "cannot tell"),
    ],
)
def test_how_far_the_log_is_off_makes_the_word(name: str, value: float, word: str | None) -> None:
    finding = Finding(name, "warning", "Off.", value, 1e-9 if name == "swap ranks" else None)
    for grounds in (Grounds(findings=(finding,)), Grounds(checks=(finding,), realised=False)):
        reasons = list(check_reasons(a_model(), grounds))
        assert [reason.word for reason in reasons] == ([] if word is None else [word])


def test_the_share_is_told_and_a_note_is_no_reason() -> None:
    (reason,) = check_reasons(a_model(), Grounds(findings=(Finding("design", "warning", "Off.", 0.212),)))
    assert reason.why.startswith("21.2 % of what was shown stood where the given rankings or swaps say it could not")
    assert "--rankings" in reason.advice
    for finding in (Finding("design", "note", "Off.", 0.005), Finding("swap ranks", "ok", "Fine.", 0.0, 0.4)):
        assert not list(check_reasons(a_model(), Grounds(findings=(finding,))))


def test_a_weak_sign_of_other_ranks_costs_the_good_word() -> None:
    (reason,) = check_reasons(a_model(), Grounds(findings=(Finding("swap ranks", "note", "Off.", 0.3, 0.004),)))
    assert reason.word == "with care"
    assert reason.why.startswith("There may be a bias")


def swaps(swapped: float) -> dict[str, Any]:
    random = np.random.default_rng(0)
    drawn = np.where(random.random(PAGES) < swapped, random.integers(K, size=PAGES), 0)
    original = np.tile(np.arange(K), (PAGES, 1))
    position = original.copy()
    position[:, 0] = drawn
    position[np.arange(PAGES), drawn] = 0
    query = random.integers(20, size=PAGES)
    relevance = random.beta(2, 2, (20, K))[query]
    click = random.random((PAGES, K)) < relevance / (position + 1)
    rows = {"page": np.arange(PAGES).repeat(K), "query": query.repeat(K), "original": original.ravel() + 1}
    rows["doc"] = rows["query"] * K + original.ravel()
    return rows | {"position": position.ravel() + 1, "click": click.ravel().astype(int)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("designs")
    for name, swapped in (("sound", 1.0), ("part", 0.2)):
        pq.write_table(pa.table(swaps(swapped)), folder / f"{name}.parquet")
    rows = swaps(0.0)
    docs = np.unique(rows["doc"])
    random = np.random.default_rng(1)
    ranked = {"query": docs // K, "ranker": ["f"] * len(docs), "doc": docs, "position": docs % K + 1}
    shuffled = [*np.concatenate([random.permutation(K) + 1 for _ in range(20)])]
    both = {name: [*column, *column] for name, column in ranked.items()}
    both |= {"ranker": ["f"] * len(docs) + ["g"] * len(docs), "position": [*ranked["position"], *shuffled]}
    pq.write_table(pa.table(both), folder / "rankings.parquet")
    arm = (np.arange(PAGES) % 2).repeat(K)
    other = random.permuted(np.tile(np.arange(1, K + 1), (PAGES, 1)), axis=1).ravel()
    rows["position"] = np.where(arm == 1, other, rows["position"])
    pq.write_table(pa.table(rows | {"ranker": np.array(["f", "g"])[arm]}), folder / "contradicted.parquet")
    return folder


@pytest.mark.parametrize(
    ("log", "options", "name"),
    [("part", SWAP, "swap ranks"), ("contradicted", ("--rankings", "{}/rankings.parquet"), "design")],
)
@pytest.mark.filterwarnings("ignore::clickharvest.errors.HarvestWarning")
def test_a_design_that_the_log_contradicts_is_told_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str], log: str, options: tuple[Any, ...], name: str
) -> None:
    given = [str(option).format(folder) for option in options]
    source, model, page = folder / f"{log}.parquet", folder / f"{log}.safetensors", folder / f"{log}.html"
    assert run("check", source, *given, "--json") == 0
    (finding,) = (own for own in json.loads(capsys.readouterr().out)["findings"] if own["name"] == name)
    assert finding["status"] == "warning"
    assert run("check", source, *given) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert finding["sentence"] in printed
    assert "spoils it" in printed

    assert run("fit", source, *given, "-o", model) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert finding["sentence"] in printed
    assert "Verdict: cannot tell." in printed
    assert name in [check["name"] for check in load_propensities(model).info["checks"]]
    assert run("show", model) == 0
    assert "Verdict: cannot tell." in " ".join(capsys.readouterr().out.split())
    for with_log in ([], ["--log", source, *given]):
        assert run("report", model, *with_log, "-o", page) == 0
        assert "Verdict: cannot tell." in " ".join(capsys.readouterr().out.split())
        assert page.read_text().count(finding["sentence"][:60]) == 1  # once, though fit and the log both tell it


def test_sound_swaps_are_no_matter(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit", folder / "sound.parquet", *SWAP, "-o", folder / "sound.safetensors", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"]["word"] == "with care"
    found = {check["name"]: check["status"] for check in load_propensities(folder / "sound.safetensors").info["checks"]}
    assert (found["design"], found["swap ranks"]) == ("ok", "ok")


def test_a_harvest_warns_of_swaps_that_did_not_take_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for log, warned in (("sound", False), ("part", True)):
        assert run("harvest", folder / f"{log}.parquet", *SWAP, "-o", folder / "harvest.parquet") == 0
        assert ("Swaps were not drawn as the design says" in capsys.readouterr().err) == warned
