"""Which click model a log speaks for: each kind of users is recognised, and simple ones are left simple."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clickharvest import harvest, read_log
from clickharvest.click_models import CLICK_MODELS, choose_click_model
from clickharvest.click_models.choosing import TAKEN, USERS, ModelChoice
from clickharvest.simulate import simulate_protocol, simulate_trust_log
from command_line import run


@cache
def pages(clicks: str) -> pa.Table:
    return simulate_protocol(sweeps=14, queries=300, test_queries=2, positions=6, clicks=clicks, eta=0, seed=1).rows()


@pytest.mark.parametrize(("clicks", "model"), [("pbm", "examination"), ("ubm", "browsing"), ("cascade", "reading")])
def test_users_are_recognised_by_what_they_clicked_above(clicks: str, model: str) -> None:
    found = choose_click_model(read_log(pages(clicks)))
    assert found.model == model
    assert found.users == USERS[model]
    assert "Held-out queries" in found.why[0]


def test_trust_is_recognised_in_counts_and_in_interventions() -> None:
    log = read_log(simulate_trust_log(pages=60_000, queries=200, positions=5, docs=10)[0])
    found = choose_click_model(log)
    assert found.model == choose_click_model(harvest(log)).model == "affine"
    assert "needs one row per impression" in found.why[0]


def test_trust_is_looked_for_in_every_context() -> None:
    def chosen(**trust: float) -> ModelChoice:
        parts = []
        for seed, (device, own) in enumerate(trust.items()):
            rows = simulate_trust_log(pages=40_000, queries=150, positions=4, docs=8, trust=own, seed=seed)[0]
            parts.append(rows.append_column("device", pa.array([device] * len(rows))))
        return choose_click_model(read_log(pa.concat_tables(parts), context=["device"]))

    found = chosen(desk=0.65, phone=0.0)
    assert found.model == "affine"
    assert found.why[-1].startswith("device = desk: How clicks fall")
    none = chosen(desk=0.0, phone=0.0)
    assert none.model == "examination"
    assert "the least of 2 contexts" in none.why[-1]


def test_what_was_not_looked_for_is_not_told_of_users() -> None:
    """Where no page has a second click, nothing can show whether clicks above matter."""
    rows = simulate_protocol(sweeps=5, queries=60, test_queries=2, positions=5, clicks="pbm", eta=0, seed=1).rows()
    page, click = rows["page"].to_numpy(), rows["click"].to_numpy()
    order = np.lexsort((rows["position"].to_numpy(), page))
    so_far = np.cumsum(click[order])
    begins = np.r_[True, np.diff(page[order]) != 0]
    before = np.maximum.accumulate(np.where(begins, so_far - click[order], 0))
    first = (
        rows.take(order).drop_columns(["click"]).append_column("click", pa.array(click[order] * (so_far == before + 1)))
    )
    found = choose_click_model(read_log(first))
    assert found.model == "examination"
    assert found.users == TAKEN
    assert "Clicks above were not looked for" in found.why[0]


def test_every_model_has_its_sentence() -> None:
    assert set(USERS) == set(CLICK_MODELS)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, output = tmp_path / "log.parquet", tmp_path / "model.safetensors"
    pq.write_table(pages("ubm"), log)
    assert run("fit", log, "--model", "auto", "--curve", "linear", "-o", output) == 2
    assert "--curve: the model auto has no such option" in capsys.readouterr().err
    assert run("fit", log, "--model", "auto", "--outcome", "click", "-o", output) == 2
    capsys.readouterr()
    assert run("fit", log, "--model", "auto", "--json", "-o", output) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == "browsing"
    assert told["info"]["users"] == USERS["browsing"]
    assert run("show", output) == 0
    assert "have clicked a result click those below it" in " ".join(capsys.readouterr().out.split())
    page = tmp_path / "report.html"
    assert run("report", output, "-o", page) == 0
    assert USERS["browsing"] in page.read_text()
