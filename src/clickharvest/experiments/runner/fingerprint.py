"""Fingerprints of code: whether what a run was measured with is still what is here.

A fingerprint stands for the syntax trees of all modules of this package that a file reaches by import statements,
those inside functions included, followed through the stubs of the rooms. It does not follow

- comments, docstrings, annotations, formatting, the order of imports and where in the package a module lies: none of
  them changes a number, so that no run is repeated for them;
- `RUNNER` and `SILENT`, which carry, tell and keep numbers but do not make them;
- `ENGINE`, where what is measured needs no engine: imports of it are then for other uses of the same module;
- other libraries, and the machine.

A module that is reached by a computed name only is not seen; one that a string names in full is, and so are all modules
of a folder that a registry lists.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).parents[2]
RUNNER = f"{PACKAGE}.experiments.runner"
SILENT = {f"{PACKAGE}.{name}" for name in ("errors", "files", "progress", "words")}
ENGINE = tuple(f"{PACKAGE}.{name}" for name in ("logs", "harvesting.collecting", "harvesting.designs"))
LENGTH = 16
LEFT_OUT = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind"}
"""Parts of a syntax tree that do not change what is computed, or that some versions of Python do not have."""


@cache
def fingerprint(file: Path, *, engine: bool = True) -> str:
    """Return the fingerprint of the code that a file depends on, itself included.

    Args:
        file: the file.
        engine: whether what it does needs an engine.

    Example:
        >>> import tempfile
        >>> first, second, third = (Path(tempfile.mkdtemp()) / "some.py" for _ in range(3))
        >>> _ = first.write_text("def double(x):\\n    return 2 * x\\n")
        >>> _ = second.write_text("def double(x: int) -> int:\\n    'Twice.'\\n    return 2*x  # quick\\n")
        >>> _ = third.write_text("def double(x):\\n    return 2.0 * x\\n")
        >>> fingerprint(first) == fingerprint(second), fingerprint(first) == fingerprint(third)
        (True, False)
    """
    digests = sorted({_digest(path) for path in reached(file, engine=engine)})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:LENGTH]


def reached(file: Path, *, engine: bool = True) -> set[Path]:
    """Return the files that a fingerprint is made of: a file, and those of this package that it imports, and so on."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            modules = (module for module in _imported(path) if _counts(module, engine))
            waiting += [place for module in modules if (place := _file(module)) is not None]
    return found


@cache
def _imported(file: Path) -> set[str]:
    """Return the modules that a file imports, or names in a string; of a room of this package, all that it offers."""
    modules: set[str] = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {_defining(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules.add(node.value)
        elif isinstance(node, ast.Name) and node.id == "Registry":
            modules |= _listed(file)
    offered = {_defining(*source) for module in modules if _file(module) for source in _stub(module).values()}
    return modules | offered


def _listed(file: Path) -> set[str]:
    """Return the modules beside a file that makes a registry: where the folder is the list, any of them may be used."""
    folder = ".".join(file.parent.relative_to(ROOT.parent).parts) if file.is_relative_to(ROOT) else ""
    beside = {f"{folder}.{path.stem}" for path in file.parent.glob("*.py") if path.stem != "__init__"}
    return beside if folder != PACKAGE else set()


def _defining(module: str, name: str) -> str:
    """Return the module that defines a name which another one offers: `clickharvest.PBM` is in `….estimators`."""
    if _file(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    source = _stub(module).get(name)
    return module if source is None else _defining(*source)


@cache
def _stub(module: str) -> dict[str, tuple[str, str]]:
    """Return where the names of a room come from, by its stub; empty where it has none."""
    path = _folder(module) / "__init__.pyi"
    if module.partition(".")[0] != PACKAGE or not path.is_file():
        return {}
    statements = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: (f"{module}.{node.module}" if node.module else module, alias.name)
        for node in statements
        for alias in node.names
    }


def _counts(module: str, engine: bool) -> bool:
    """Return whether a module may make numbers."""
    rooms = (RUNNER,) if engine else (RUNNER, *ENGINE)
    return module not in SILENT and not any(f"{module}.".startswith(f"{room}.") for room in rooms)


@cache
def _file(module: str) -> Path | None:
    """Return the file of a module of this package, None of any other."""
    if not module.startswith(f"{PACKAGE}."):
        return None
    folder = _folder(module)
    places = (folder.with_name(f"{folder.name}.py"), folder / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _folder(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")[1:])


@cache
def _digest(file: Path) -> str:
    tree = _tree(file)
    told = [*sorted(set(_names(tree))), _told(tree)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield what imports bring: names alone where this package is their source, for its modules may move."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            source = "" if module.partition(".")[0] == PACKAGE else f"{module}."
            yield from (f"{source}{alias.name} as {alias.asname or alias.name}" for alias in node.names)


@cache
def _tree(file: Path) -> ast.Module:
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    _Typing().visit(tree)
    return tree


class _Typing(ast.NodeTransformer):
    """Leaves out what only type checkers read."""

    def visit_If(self, node: ast.If) -> Any:
        is_typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_typing else self.generic_visit(node)


def _told(value: Any) -> str:
    """Return a syntax tree as text that every version of Python agrees on."""
    if isinstance(value, ast.AST):
        fields = ((name, entry) for name, entry in ast.iter_fields(value) if name not in LEFT_OUT)
        parts = (f"{name}={part}" for name, entry in fields if (part := _told(entry)))
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, list):
        told = [_told(entry) for entry in value if not _is_silent(entry)]
        return f"[{', '.join(told)}]" if told else ""
    return "" if value is None else repr(value)


def _is_silent(node: Any) -> bool:
    """Return whether a node is an import, which `_names` tells, a docstring or `pass`."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)
