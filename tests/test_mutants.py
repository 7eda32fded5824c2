"""The mutation tool: which changes it makes, what it leaves alone, and that ids outlive moved lines."""

from __future__ import annotations

import ast
import importlib
from typing import Any

import pytest

from places import BENCHMARKS, ROOT

SOURCE = b'''
"""A module of 2 functions."""
from __future__ import annotations

LIMIT = 0.5


def share(a: int, b: int, level: float = 0.9, tick: object = None) -> float:
    """Return a + b."""
    if a < b and b > 0:
        raise ValueError(f"{a + 1} is below {b}")
    if tick is not None:
        tick(a / b)
    return round(a / b, ndigits=2) if not level else -a
'''


@pytest.fixture(scope="module")
def mutations() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("mutations")


def changes(mutations: Any, source: bytes) -> set[tuple[str, str, str]]:
    return {(m.operator, m.before, m.after) for m in mutations.mutants_of("room", "src/x/room/module.py", source)}


def test_every_kind_of_change_and_nothing_else(mutations: Any) -> None:
    condition, call = "a < b and b > 0", "round(a / b, ndigits=2)"
    value = f"{call} if not level else -a"
    assert changes(mutations, SOURCE) == {
        ("number", "0.5", "(1.0)"),
        ("branch", condition, "True"),
        ("branch", condition, "False"),
        ("logic", condition, "(a < b or b > 0)"),
        ("logic", condition, "(a < b)"),
        ("logic", condition, "(b > 0)"),
        ("compare", "a < b", "(a <= b)"),
        ("compare", "a < b", "(a >= b)"),
        ("compare", "b > 0", "(b >= 0)"),
        ("compare", "b > 0", "(b <= 0)"),
        ("number", "0", "(1)"),
        ("raise", 'raise ValueError(f"{a + 1} is below {b}")', "pass"),
        ("return", f"return {value}", "return None"),
        ("branch", value, f"(-a if not level else {call})"),
        ("keyword", call, "(round(a / b))"),
        ("arithmetic", "a / b", "(a * b)"),
        ("term", "a / b", "(a)"),
        ("term", "a / b", "(b)"),
        ("number", "2", "(3)"),
        ("sign", "not level", "(level)"),
        ("sign", "-a", "(a)"),
    }


def test_ids_outlive_moved_lines_and_moved_files(mutations: Any) -> None:
    first = mutations.mutants_of("room", "src/x/room/module.py", SOURCE)
    moved = mutations.mutants_of("room", "src/x/room/inner/module.py", b"import sys\n\n" + SOURCE)
    assert [m.id for m in first] == [m.id for m in moved]
    assert len({m.id for m in first}) == len(first)
    assert first[0].lines != moved[0].lines


@pytest.mark.parametrize("room", ["estimation", "checks", "rank", "weights"])
def test_every_mutant_is_another_program(mutations: Any, room: str) -> None:
    base = ROOT / "src" / "clickharvest" / room
    for file in sorted(base.rglob("*.py")) or [base.with_suffix(".py")]:
        source = file.read_bytes()
        unchanged = ast.dump(ast.parse(source))
        for mutant in mutations.mutants_of(room, str(file), source)[::61]:
            assert ast.dump(ast.parse(mutant.apply(source))) != unchanged, mutant
