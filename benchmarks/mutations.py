"""Mutations of source code: small changes to a module, made on its syntax tree, that its tests should notice.

Operators: `compare` (flips and boundaries), `arithmetic` (swapped operators), `term` (one operand of + − * / dropped),
`logic` (and ↔ or, an operand dropped), `sign` (not, − and ~ dropped), `number` (n + 1, 2 x), `truth` (True ↔ False),
`branch` (a condition always or never met, branches of `a if c else b` swapped), `return` (None), `call` and `raise`
(removed), `swap` (first two arguments), `keyword` (an argument by name dropped).

Left alone, because no test could or should notice:

- text: strings of every kind, what `raise` and `warn` say, `__str__`, `__repr__`, functions that return `str`;
- types: annotations, aliases, imports, decorators, what is under `TYPE_CHECKING`;
- progress: calls of, arguments to, and conditions on `tick`, `progress`, `monitor`, `task`;
- defaults of parameters and of fields; tolerances and sizes of batches: numbers below .001, and of 30 or more;
- what is the same by construction: `strict=` of `zip` (sizes agree), `stacklevel=`, `optimize=`, `kind=` of sorts,
  `dtype=np.float64` of functions whose default it is, arguments of symmetric functions swapped.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRESS = {"tick", "_tick", "progress", "monitor", "task"}
SAME_BY_CONSTRUCTION = PROGRESS | {"strict", "stacklevel", "optimize", "kind", "name"}
SYMMETRIC = {"maximum", "minimum", "max", "min", "array_equal", "logaddexp", "inner_join", "isinstance"}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
TERMS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


@dataclass(frozen=True)
class Mutant:
    """One change to one file.

    Attributes:
        id: stays the same when lines move, or the file moves inside its room.
        file: the module's path from the root.
        place: class and function.
        operator: the kind of change.
        lines: lines of the statement's head and of what changes; tests that run none of them cannot notice.
        before: what stood there.
        after: what stands there now.
        span: bytes that are replaced.
    """

    id: str
    file: str
    place: str
    operator: str
    lines: tuple[int, ...]
    before: str
    after: str
    span: tuple[int, int]

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.span[0]] + self.after.encode() + source[self.span[1] :]


def mutants_of(room: str, file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for place, head, node, operator, new in _Walk().of_module(ast.parse(source)):
        span = (
            starts[node.lineno - 1] + node.col_offset,
            starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0),
        )
        before = " ".join(source[span[0] : span[1]].decode().split())
        text = new if isinstance(new, str) else ast.unparse(new)
        after = text if isinstance(node, ast.stmt) or isinstance(new, str) else f"({text})"
        key = (room, Path(file).stem, place, operator, before, after)
        seen[key] += 1
        name = hashlib.sha1("\0".join((*key, str(seen[key]))).encode(), usedforsecurity=False).hexdigest()[:10]
        last = node.lineno if operator in ("call", "raise") else (node.end_lineno or node.lineno)
        lines = tuple(sorted({head, *range(node.lineno, last + 1)}))
        found.append(Mutant(name, file, place, operator, lines, before, after, span))
    return found


Change = tuple[str, int, ast.stmt | ast.expr, str, ast.AST | str]
"""Class and function, line of the statement's head, what changes, how, and into what."""


class _Walk:
    """A walk over a module that yields changes and knows what to leave alone."""

    def __init__(self) -> None:
        self.place: list[str] = []
        self.head = 0
        self.in_class = False

    def of_module(self, tree: ast.Module) -> Iterator[Change]:
        for statement in tree.body:
            yield from self.of_statement(statement)

    def change(self, node: ast.stmt | ast.expr, operator: str, new: ast.AST | str) -> Change:
        return (".".join(self.place) or "module", self.head, node, operator, new)

    def of_statement(self, node: ast.stmt) -> Iterator[Change]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from self.of_definition(node)
            return
        self.head = node.lineno
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or _is_alias(node, inside=bool(self.place)):
            return
        if isinstance(node, ast.Raise):
            if node.exc is not None:
                yield self.change(node, "raise", "pass")
            return
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Call) and not _is_progress(node.value):
                yield self.change(node, "call", "pass")
                if _name(node.value.func) != "warn":
                    yield from self.of_expression(node.value)
            return
        if isinstance(node, ast.If | ast.While):
            if _is_progress(node.test) or _name(node.test) == "TYPE_CHECKING":
                yield from self.of_body(node.orelse)
                return
            if isinstance(node, ast.If):
                yield from (self.change(node.test, "branch", word) for word in ("True", "False"))
            yield from self.of_expression(node.test)
            yield from self.of_body(node.body + node.orelse)
            return
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield self.change(node, "return", "return None")
        if isinstance(node, ast.AnnAssign):
            if node.value is not None and not self.in_class:
                yield from self.of_expression(node.value)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from self.of_statement(child)
            elif isinstance(child, ast.ExceptHandler):
                yield from self.of_body(child.body)
            elif isinstance(child, ast.withitem):
                yield from self.of_expression(child.context_expr)
            elif isinstance(child, ast.expr):
                yield from self.of_expression(child)

    def of_body(self, body: list[ast.stmt]) -> Iterator[Change]:
        for statement in body:
            yield from self.of_statement(statement)

    def of_definition(self, node: ast.FunctionDef | ast.ClassDef) -> Iterator[Change]:
        if isinstance(node, ast.FunctionDef) and _is_left_alone(node):
            return
        self.place.append(node.name)
        outside, self.in_class = self.in_class, isinstance(node, ast.ClassDef)
        yield from self.of_body(node.body)
        self.in_class = outside
        self.place.pop()

    def of_expression(self, node: ast.expr) -> Iterator[Change]:
        if isinstance(node, ast.JoinedStr):
            return
        if isinstance(node, ast.Call):
            yield from self.of_call(node)
            return
        yield from self.changes(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from self.of_expression(child)
            elif isinstance(child, ast.comprehension):
                for part in (child.iter, *child.ifs):
                    yield from self.of_expression(part)
                yield from (self.change(test, "branch", "True") for test in child.ifs)

    def of_call(self, node: ast.Call) -> Iterator[Change]:
        if _is_progress(node):
            return
        name = _name(node.func)
        if len(node.args) > 1 and name not in SYMMETRIC and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            swapped = copy.deepcopy(node)
            swapped.args[:2] = reversed(swapped.args[:2])
            same = ast.dump(node.args[0]) == ast.dump(node.args[1])
            if not same and not all(_is_text(argument) for argument in node.args[:2]):
                yield self.change(node, "swap", swapped)
        for i, keyword in enumerate(node.keywords):
            if keyword.arg in SAME_BY_CONSTRUCTION or _is_default_type(keyword) or _is_text(keyword.value):
                continue
            if keyword.arg is not None:
                dropped = copy.deepcopy(node)
                del dropped.keywords[i]
                yield self.change(node, "keyword", dropped)
            yield from self.of_expression(keyword.value)
        yield from self.of_expression(node.func)
        for argument in node.args:
            yield from self.of_expression(argument)

    def changes(self, node: ast.expr) -> Iterator[Change]:
        """Yield the changes of an expression itself, not of its parts."""
        if isinstance(node, ast.Compare):
            for i, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    flipped = copy.deepcopy(node)
                    flipped.ops[i] = other()
                    yield self.change(node, "compare", flipped)
        elif isinstance(node, ast.BinOp) and not (_is_text(node.left) or _is_text(node.right)):
            if type(node.op) in ARITHMETIC:
                yield self.change(node, "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
            if isinstance(node.op, TERMS):
                yield self.change(node, "term", node.left)
                yield self.change(node, "term", node.right)
        elif isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield self.change(node, "logic", ast.BoolOp(other, node.values))
            for i in range(len(node.values)):
                kept = node.values[:i] + node.values[i + 1 :]
                yield self.change(node, "logic", kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept))
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
            yield self.change(node, "sign", node.operand)
        elif isinstance(node, ast.IfExp):
            yield self.change(node, "branch", ast.IfExp(node.test, node.orelse, node.body))
        elif isinstance(node, ast.Constant):
            yield from self.of_constant(node)

    def of_constant(self, node: ast.Constant) -> Iterator[Change]:
        value = node.value
        if isinstance(value, bool):
            yield self.change(node, "truth", ast.Constant(not value))
        elif isinstance(value, int) and value < 30:
            yield self.change(node, "number", ast.Constant(value + 1))
        elif isinstance(value, float) and (value == 0 or 1e-3 <= value < 30):
            yield self.change(node, "number", ast.Constant(2 * value if value else 1.0))


def _name(node: ast.AST) -> str:
    """Return the last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_progress(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return _name(node.func) in PROGRESS
    if isinstance(node, ast.Compare):
        return _name(node.left) in PROGRESS
    return _name(node) in PROGRESS


def _is_default_type(keyword: ast.keyword) -> bool:
    return keyword.arg == "dtype" and _name(keyword.value) == "float64"


def _is_left_alone(node: ast.FunctionDef) -> bool:
    says = node.returns is not None and _name(node.returns) == "str"
    return says or node.name in PROGRESS | {"__str__", "__repr__"}


def _is_alias(node: ast.stmt, *, inside: bool) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and not inside
