"""The logic of `benchmarks/peers.py` that needs no peer: single displays from counts, errors, table, resuming."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

import numpy as np
import pytest

from places import BENCHMARKS


def load(name, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        return importlib.import_module(name)


peers = load("peers", BENCHMARKS)
simulated = load("simulated", BENCHMARKS / "peers")


def options(**changes):
    asked = {"contenders": ["ours-pbm", "ultr-ctr"], "seeds": 2, "queries": 50, "sweeps": 1.0}
    return argparse.Namespace(**asked | changes)


def record(asked, **changes):
    measured = {"rel_error": 0.25, "abs_log": 0.2, "seconds": 1, "cpu_seconds": 2, "process_seconds": 3, "peak_mb": 400}
    return asked | measured | {"versions": {"a": "1", "b": "2"}, "machine": "2 cores"} | changes


def test_displays_have_the_counted_clicks_on_the_documents_shown():
    random = np.random.default_rng(0)
    shown = np.arange(2 * 5 * 3).reshape(2, 5, 3)
    served = random.integers(0, 7, (2, 5))
    served[0, 0] = 0
    clicks = random.binomial(served[:, :, None], 0.4, (2, 5, 3))
    query, doc, click = simulated.displays(shown, served, clicks, seed=1)
    assert len(query) == served.sum()
    assert set(np.unique(click)) == {0, 1}
    assert (doc // 3 % 5 == query[:, None]).all()
    assert np.array_equal(np.bincount(doc.ravel(), weights=click.ravel(), minlength=30), clicks.ravel())
    assert np.array_equal(np.bincount(doc.ravel(), minlength=30), np.repeat(served.ravel(), 3))


def test_displays_spread_the_clicks_of_positions_independently():
    shown, served, clicks = np.array([[[0, 1]]]), np.array([[4000]]), np.array([[[2000, 2000]]])
    _, _, click = simulated.displays(shown, served, clicks, seed=0)
    assert abs(np.corrcoef(click.T)[0, 1]) < 4 / np.sqrt(4000)
    assert abs(click[:2000].mean() - 0.5) < 4 * 0.5 / np.sqrt(4000)


def test_errors_are_those_of_the_formula_for_one_curve_and_for_one_per_context():
    truth = np.array([[1.0, 0.5], [1.0, 0.25]])
    flat = peers.errors(np.array([[1.0, 0.25]]), truth)
    assert flat["rel_error"] == pytest.approx((0 + 0.5 + 0 + 0) / 4)
    assert flat["abs_log"] == pytest.approx(np.log(2) / 4)
    assert peers.errors(truth, truth) == {"rel_error": 0.0, "abs_log": 0.0}
    assert peers.errors(np.array([[1.0, 0.0]]), truth)["abs_log"] == np.inf


@pytest.mark.parametrize("found", [[[1.0]], [[1.0, np.nan]], [[1.0, -0.1]], [[1.0, 1.0, 1.0]]])
def test_a_curve_that_is_none_counts_as_a_failure(found):
    with pytest.raises(peers.ContenderError, match="gave no curve"):
        peers.errors(np.array(found), np.array([[1.0, 0.5]]))


def test_plan_has_every_contender_and_seed_once_and_full_runs_are_told_from_others():
    wanted = peers.plan(options())
    assert len({peers.key_of(asked) for asked in wanted}) == len(wanted) == 8
    assert {(asked["seed"], asked["policy"]) for asked in wanted} == {(s, p) for s in (0, 1) for p in peers.POLICIES}
    full = options(contenders=list(peers.CONTENDERS), queries=peers.QUERIES, seeds=3)
    assert peers.is_full(full)
    assert not peers.is_full(options(contenders=["ours-pbm"], queries=peers.QUERIES, seeds=3))
    assert not peers.is_full(argparse.Namespace(**vars(full) | {"queries": 800}))


def test_results_of_other_code_sizes_and_requirements_are_not_taken_for_the_same(tmp_path):
    asked = peers.plan(options())[0]
    path = tmp_path / "peers.json"
    assert peers.read_results(path) == {}
    path.write_text(json.dumps([record(asked)]))
    assert peers.read_results(path) == {peers.key_of(asked): record(asked)}
    others = {
        "policy": "other",
        "code": "other",
        "script": "other",
        "queries": 51,
        "needs": ["x==2"],
        "sweeps": 2.0,
        "seed": 7,
    }
    for change in ({name: value} for name, value in others.items()):
        assert peers.key_of(asked | change) not in peers.read_results(path)


def test_table_has_means_over_seeds_and_says_why_a_contender_failed():
    first, _, strong, _, second, *_ = peers.plan(options())
    found = [record(first), record(second, rel_error=0.35, peak_mb=500), record(strong, rel_error=0.5)]
    lines = peers.table(found, {"ultr-ctr": "could not be installed: a|b <c>"}, ["ours-pbm", "ultr-ctr"])
    weak = "0.3000 ± 0.0707 | 0.2000 ± 0.0000"
    assert lines[2] == f"| clickharvest PBM | no | {weak} | 0.5000 | 0.2000 | 1.0 | 2.0 | 3.0 | 500 | 3 |"
    assert lines[3] == "| ultr-bias-toolkit CTR | no | could not be installed: a\\|b &lt;c> " + "| " * 9 + "|"
    assert "50 queries, sweeps: 1; a 1 (b 2)." in peers.notes(found)


def test_a_command_that_fails_is_told_in_one_line(tmp_path):
    with pytest.raises(peers.ContenderError, match=r"^failed with exit code 3: some thing$"):
        peers.call([sys.executable, "-c", "import sys; print('some\\nthing'); sys.exit(3)"], tmp_path / "output.txt")


def test_every_contender_has_a_script_and_every_script_but_ours_its_requirements():
    scripts = {contender.script for contender in peers.CONTENDERS.values()}
    assert scripts - {"ours"} == set(peers.REQUIREMENTS)
    assert all((peers.SCRIPTS / f"run_{script}.py").exists() for script in scripts)
