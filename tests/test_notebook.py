"""The notebook runs, cell by cell, and finds the truth it promises to."""

import importlib.util

import pytest

from places import ROOT

NOTEBOOK = ROOT / "notebooks" / "tutorial.py"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs_and_comes_near_the_truth() -> None:
    pytest.importorskip("marimo", reason="marimo is not installed")
    spec = importlib.util.spec_from_file_location("tutorial", NOTEBOOK)
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    _, names = notebook.app.run()
    assert names["error"] < 0.15
    assert names["weights"].report.effective_share > 0.3
