"""Stochastic policies as designs: logged probabilities, tables of them, and team draft, against simulations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from clickharvest.errors import InputError
from clickharvest.estimation import PBM
from clickharvest.harvesting import LoggedPlacements, Placements, Rankings, TeamDraft, harvest, read_interventions
from clickharvest.logs.reading import read_log
from command_line import run

pytestmark = pytest.mark.usefixtures("one_duckdb")

P = np.array([1.0, 0.5, 0.3])


def shuffled(pages: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """A policy that puts each of six orders of three documents on a page with known probabilities; and these."""
    random = np.random.default_rng(seed)
    orders = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    rows, placed = [], []
    for q in range(60):
        chance = random.dirichlet(np.full(6, 2.0))
        at = np.array([[chance[(orders[:, k] == d)].sum() for k in range(3)] for d in range(3)])
        relevance = random.uniform(0.2, 0.9, 3)
        placed += [(f"q{q}", f"d{d}", k + 1, at[d, k]) for d in range(3) for k in range(3)]
        for order in orders[random.choice(6, pages, p=chance)]:
            rows += [
                (f"q{q}", f"d{d}", k + 1, int(random.random() < P[k] * relevance[d]), at[d, k])
                for k, d in enumerate(order)
            ]
    names = ("query", "doc", "position", "click", "propensity_of_placement")
    log = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    names = ("query", "doc", "position", "probability")
    return log, pa.table(dict(zip(names, map(list, zip(*placed, strict=True)), strict=True)))


def test_logged_probabilities_and_their_table_give_the_curve() -> None:
    rows, table = shuffled(60, seed=1)
    log = read_log(rows)
    for design in (LoggedPlacements(), Placements(table)):
        interventions = harvest(log, design=design)
        assert interventions.exposure_kind == "design"
        p = PBM().fit(interventions).predict().propensity[0]
        np.testing.assert_allclose(p, P, rtol=0.12)


def test_probabilities_that_varied_are_averaged_over_pages() -> None:
    """Ten pages place a at 1 with .9, ten with .3: on average with .6, whatever pages it stood on."""
    shown = {"query": ["q"] * 12, "doc": ["a"] * 12, "position": [1] * 12, "click": [1] + [0] * 11}
    log = read_log(pa.table(shown | {"propensity_of_placement": [0.9] * 9 + [0.3] * 3}))
    found = log.engine.fetch(LoggedPlacements().exposures(log), task="")
    assert found["exposure"].to_pylist() == pytest.approx([0.6])


def test_team_draft_is_what_its_simulation_gives() -> None:
    random = np.random.default_rng(0)
    first, second = list("abcdef"), list("cafebd")
    ranked = {
        "query": ["q"] * 12,
        "ranker": ["f"] * 6 + ["g"] * 6,
        "doc": first + second,
        "position": [*range(1, 7)] * 2,
    }
    log = read_log(pa.table({"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}))
    design = TeamDraft(Rankings(pa.table(ranked)), depth=5)
    rows = log.engine.fetch(design.exposures(log), task="").to_pylist()
    exposure = {(row["doc"], row["position"]): row["exposure"] for row in rows}
    count: dict[tuple[str, int], int] = {}
    for _ in range(4_000):
        page: list[str] = []
        while len(page) < 5:
            for team in (first, second) if random.random() < 0.5 else (second, first):
                if len(page) < 5:
                    page.append(next(doc for doc in team if doc not in page))
        for k, doc in enumerate(page, 1):
            count[doc, k] = count.get((doc, k), 0) + 1
    assert set(count) == set(exposure)
    for cell, n in count.items():
        assert n / 4_000 == pytest.approx(exposure[cell], abs=0.03)
    assert sum(exposure.values()) == pytest.approx(5)


def test_team_draft_knows_contexts_that_rankings_depend_on() -> None:
    ranked = {
        "query": ["q"] * 8, "device": (["desk"] * 4 + ["phone"] * 4), "ranker": list("ffgg") * 2,
        "doc": list("abba") + list("abab"), "position": [1, 2] * 4,
    }  # fmt: skip
    shown = {"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 1], "click": [1, 0], "device": ["desk", "phone"]}
    log = read_log(pa.table(shown), context=["device"])
    rows = log.engine.fetch(TeamDraft(Rankings(pa.table(ranked)), depth=2).exposures(log), task="").to_pylist()
    assert {(r["device"], r["doc"], r["position"]): r["exposure"] for r in rows} == {
        ("desk", "a", 1): 0.5, ("desk", "a", 2): 0.5, ("desk", "b", 1): 0.5, ("desk", "b", 2): 0.5,
        ("phone", "a", 1): 1.0, ("phone", "b", 2): 1.0,
    }  # fmt: skip


def test_what_is_refused() -> None:
    shown = {"query": ["q"], "doc": ["a"], "position": [1], "click": [1]}
    log = read_log(pa.table(shown | {"wrong": [0.0]}))
    with pytest.raises(InputError, match="no column 'propensity_of_placement'"):
        LoggedPlacements().exposures(log)
    with pytest.raises(InputError, match="no probabilities"):
        LoggedPlacements("wrong").exposures(log)
    with pytest.raises(InputError, match="lacks probability"):
        Placements(pa.table(shown)).exposures(log)
    with pytest.raises(InputError, match="no numbers from 0 to 1"):
        Placements(pa.table(shown | {"probability": [1.5]})).exposures(log)
    with pytest.raises(InputError, match="two rankers, found f"):
        TeamDraft(Rankings(pa.table(shown | {"ranker": ["f"]}))).exposures(log)
    with pytest.raises(InputError, match="2 to 16"):
        TeamDraft(Rankings(pa.table(shown)), depth=99)


def test_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, table = shuffled(10, seed=2)
    pq.write_table(rows, tmp_path / "log.parquet")
    pq.write_table(table, tmp_path / "placed.parquet")
    words = ("harvest", tmp_path / "log.parquet", "-o", tmp_path / "i.parquet")
    assert run(*words, "--placement", "propensity_of_placement") == 0
    assert run(*words, "--placements", tmp_path / "placed.parquet") == 0
    assert read_interventions(tmp_path / "i.parquet").exposure_kind == "design"
    assert run(*words, "--team-draft", 3) == 2
    assert "needs the two rankings" in capsys.readouterr().err
    assert run(*words, "--placement", "x", "--swap", 3) == 2
    assert "two designs" in capsys.readouterr().err


def test_check_of_a_text_log_with_logged_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of text are parsed once for all that a check asks: the probabilities are among them."""
    rows, _ = shuffled(10, seed=2)
    pa_csv.write_csv(rows, tmp_path / "log.csv")
    pq.write_table(rows, tmp_path / "log.parquet")
    told = []
    for name in ("log.csv", "log.parquet"):
        assert run("check", tmp_path / name, "--placement", "propensity_of_placement", "--json") == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
