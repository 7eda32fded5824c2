"""The house: what may be imported from where, and what works without an engine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clickharvest
from places import ROOT, SRC

PACKAGE = SRC / "clickharvest"
ENGINES = ("ibis", "duckdb", "pyarrow", "pandas", "typer", "rich", "sklearn", "altair", "pyspark")
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))

WITHOUT_ENGINES = f"""
import sys
sys.modules.update(dict.fromkeys({ENGINES!r}))
import numpy as np
from clickharvest import CPBM, PBM, Interventions, check_fit, load_propensities
random = np.random.default_rng(0)
unit, position = np.repeat(np.arange(400), 2), np.tile([1, 2], 400)
device = np.repeat(random.choice(["mobile", "desktop"], 400), 2)
interventions = Interventions(
    unit=unit, query=unit // 4, position=position, exposure=np.ones(800),
    clicks=random.binomial(1, 0.6 / position), impressions=np.ones(800, dtype=int), contexts={{"device": device}})
for model in (PBM(replicates=20), CPBM(curve="linear", penalty=1.0, replicates=20)):
    saved = model.fit(interventions).propensities_
    saved.save("model.safetensors")
    loaded = load_propensities("model.safetensors")
    contexts = None if isinstance(model, PBM) else {{"device": ["mobile", "desktop"]}}
    assert np.array_equal(loaded.predict(contexts).propensity, saved.predict(contexts).propensity)
    assert str(loaded)
assert check_fit(interventions, PBM().fit(interventions).propensities_).budget.untested
print("fitted, saved, loaded, checked")
"""


def test_estimation_and_model_work_where_no_engine_is_installed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINES], capture_output=True, text=True, cwd=tmp_path, timeout=300
    )
    assert (ended.returncode, ended.stdout) == (0, "fitted, saved, loaded, checked\n"), ended.stderr


def test_rooms_are_names_of_the_package() -> None:
    for room in (path.parent for path in STUBS if path.parent != PACKAGE):
        if room.parent == PACKAGE:
            assert getattr(clickharvest, room.name).__name__ == f"clickharvest.{room.name}"


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_exported_names_are_listed_once_and_exist(stub: Path) -> None:
    home = ".".join(stub.parent.relative_to(SRC).parts)
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names]
    assert len(names) == len(set(names))
    __import__(home)
    for name in names:
        assert hasattr(sys.modules[home], name), f"{home} lists {name}, which is not there"


def test_a_module_of_a_room_is_not_named_like_what_the_room_offers() -> None:
    """Otherwise importing the module would hide the name behind it."""
    for stub in STUBS:
        offered = {
            alias.name
            for node in ast.parse(stub.read_text()).body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        modules = {path.stem for path in stub.parent.iterdir()}
        assert not offered & modules


def test_what_is_private_to_ibis_is_used_in_one_place() -> None:
    private = re.compile(r"ibis\.backends|ibis\.expr\.operations|\.op\(\)|backend\._|type_mapper|ibis\.config")
    using = {path.name for path in PACKAGE.rglob("*.py") if private.search(path.read_text())}
    assert using == {"ibis_inside.py"}


def test_the_way_of_a_log_is_short_and_names_modules_that_exist() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    way = page.partition("## The way of a log")[2].partition("\n## ")[0]
    modules = re.findall(r"`([a-z_/]+\.py)`", way)
    assert 20 < len(modules) <= 40
    assert [name for name in modules if not (PACKAGE / name).is_file()] == []
