"""The contract of every command, and whether a case kept it.

Exit code 0 (done), 2 (bad input: one line that begins with `Error:`), 3 (not identified), 130 or 143 (after a signal)
or 141 (nobody reads); no traceback; no control character on either stream; JSON that is JSON; inputs as they were; no
temporary file left; an output that is whole, or not there, or as it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from dataclasses import dataclass
from pathlib import Path

from cases import Case


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    code: int | None
    out: str
    err: str


State = dict[str, tuple[int, str]]


def state_of(folder: Path) -> State:
    """What a folder holds: the mode and contents of everything in it."""
    found: State = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        told = str(path.readlink()) if path.is_symlink() else ""
        if stat.S_ISREG(mode):
            told = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = (mode, told)
    return found


def broken(case: Case, before: State, after: State, outcome: Outcome) -> list[str]:
    """Return what of the contract a case broke; nothing where it kept it."""
    found = [*_code(case, outcome), *_streams(case, outcome)]
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    for name in sorted(changed):
        if name == "tmp" or not any(name == output or name.startswith(f"{output}/") for output in case.outputs):
            found.append(f"{'left' if name not in before else 'changed'} {name!r}")
        elif name in after and (fault := _half(case.folder / name, case.command)):
            found.append(f"{name!r} is not whole: {fault}")
        elif name not in after:
            found.append(f"{name!r} is lost")
        elif case.theme == "valid":
            found += _numbers(case.folder / name)
    if case.theme == "valid" and outcome.code == 0:
        found += [f"exit code 0 without {name!r}" for name in case.outputs if name not in after]
    return found


OWN_NUMBERS = {
    "exposure", "propensity", "ips_weight", "policy_propensity", "outcome_propensity", "outcome_weight", "click_slope",
    "click_offset", "corrected_click", "lower", "upper", "relevance", "rating", "effective_impressions",
}  # fmt: skip
"""Columns of files that commands write, which hold finite numbers or nothing."""


def _numbers(path: Path) -> list[str]:
    """Return which numbers of a written table are not finite, or outside their own interval."""
    import csv

    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        rows = pq.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        rows = list(csv.DictReader(path.read_text().splitlines()))
    else:
        return []
    found = set()
    for row in rows:
        own = {name: float(row[name]) for name in OWN_NUMBERS & row.keys() if row[name] not in (None, "")}
        found |= {f"{name} is {value}" for name, value in own.items() if not math.isfinite(value)}
        ends = own.get("lower", -math.inf), own.get("upper", math.inf)
        if not ends[0] - 1e-9 <= own.get("propensity", ends[0]) <= ends[1] + 1e-9:
            found.add("a propensity outside its interval")
    return sorted(found)


def _code(case: Case, outcome: Outcome) -> list[str]:
    allowed = {0, 2, 3}
    allowed |= {{"interrupt": 130, "terminate": 143}.get(case.fault or "", 0)}
    allowed |= {141} if case.fault == "pipe" else set()
    if case.fault == "kill" and outcome.code == -9:
        return []
    if outcome.code is None:
        return ["took too long"]
    return [] if outcome.code in allowed else [f"exit code {outcome.code}"]


def _streams(case: Case, outcome: Outcome) -> list[str]:
    found = []
    for name, text in (("output", outcome.out), ("error output", outcome.err)):
        if "Traceback (most" in text:
            found.append(f"a traceback: {text.strip().splitlines()[-1][:200]}")
        if wrong := {c for c in text if not c.isprintable() and c not in "\n"}:
            found.append(f"control characters in the {name}: {sorted(map(ascii, wrong))[:5]}")
    lines = outcome.err.splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    others = [line for line in lines if not line.startswith(("Error: ", "Warning: ", "Interrupted"))]
    if case.fault in ("no stderr", "kill") or outcome.code is None:
        return found
    if others and not found:
        found.append(f"a line that is neither error nor warning: {others[0][:200]}")
    if outcome.code == 2 and len(errors) != 1:
        found.append(f"exit code 2 with {len(errors)} lines of error")
    if outcome.code == 0 and errors:
        found.append("exit code 0 with an error")
    if outcome.code in (130, 143) and sum(line.startswith("Interrupted") for line in lines) != 1:
        found.append(f"exit code {outcome.code} without a word")
    if (
        outcome.code == 0
        and "--json" in case.words
        and case.fault not in ("full", "closed", "pipe")
        and "--help" not in case.words
        and "--emit-sql" not in case.words
    ):
        try:
            json.loads(outcome.out, parse_constant=_refuse)
        except ValueError as error:
            found.append(f"no JSON: {error}")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _half(path: Path, command: str) -> str:
    """Return what is wrong with a file that should be whole."""
    import pyarrow.parquet as pq

    from clickharvest.click_models.base import load_model

    if not path.is_file():
        return ""
    data = path.read_bytes()
    if data == b"older":
        return ""
    try:
        if command == "export":
            return _half_export(data)
        if path.suffix == ".parquet":
            pq.read_table(path)
        elif path.suffix == ".safetensors":
            load_model(path)
        elif path.suffix == ".json" and command != "judgments":  # --to may make it anything
            json.loads(data)
        elif path.suffix == ".html" and not data.rstrip().endswith(b"</html>"):
            return "it has no end"
        elif path.suffix in (".csv", ".txt") and not data.endswith(b"\n"):
            return "its last line has no end"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _half_export(data: bytes) -> str:
    """Return what is wrong with a ranker for an engine: JSON, LightGBM's text, or ONNX."""
    import onnx

    if data.lstrip()[:1] in (b"{", b"["):
        json.loads(data)
    elif data.startswith(b"tree\n"):
        return "" if b"end of trees" in data else "its trees have no end"
    else:
        onnx.load_from_string(data)
    return ""
