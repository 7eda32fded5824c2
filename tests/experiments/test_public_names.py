"""Experiments are written with the names that the rooms offer to everybody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from places import EXPERIMENTS, SRC

PACKAGE = SRC / "clickharvest"
SHARED = {"clickharvest.errors", "clickharvest.files", "clickharvest.progress", "clickharvest.words"}
"""Modules beside the rooms whose names are all for everybody."""


def offered(module: str) -> set[str]:
    """Return the names in the stub of a room, empty where it is no room."""
    stub = PACKAGE.joinpath(*module.split(".")[1:], "__init__.pyi")
    tree = ast.parse(stub.read_text(encoding="utf-8")) if stub.is_file() else ast.Module([], [])
    return {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


def private_imports(text: str) -> Iterator[str]:
    """Yield what a module imports from inside other rooms."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("clickharvest."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "clickharvest":
            module = str(node.module)
            if module in SHARED:
                continue
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name not in offered(module))


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.py")), ids=lambda path: path.stem)
def test_only_public_names_are_imported(path: Path) -> None:
    assert list(private_imports(path.read_text(encoding="utf-8"))) == []


def test_private_ones_would_be_noticed() -> None:
    text = (
        "from clickharvest import PBM\nfrom clickharvest.estimation import Fit, solve\n"
        "from clickharvest.estimation.loss import Fit\nimport clickharvest.rank\n"
    )
    assert list(private_imports(text)) == [
        "clickharvest.estimation.solve",
        "clickharvest.estimation.loss.Fit",
        "clickharvest.rank",
    ]
