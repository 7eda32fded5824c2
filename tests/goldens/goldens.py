"""Golden figures of six fixed logs: what `check`, `fit`, `weigh`, `report` and `plan` say of them, in numbers.

    cd tests && ../.venv/bin/python -m goldens.goldens      # makes them anew: say in the commit why they changed

Sentences are left out, and tolerances allow another optimiser, or other digits, but no other answer.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clickharvest.simulate import simulate_ab_log, simulate_trust_log
from clickharvest.simulate.layouts import simulate_places
from command_line import run

FOLDER = Path(__file__).parent
WORDS = (
    "sentence", "advice", "details", "why", "note", "also", "file", "log", "bytes", "untold_where", "lender",
    "findings",
)  # fmt: skip
"""Keys of what people read, or of files."""
SCORED = ("propensity", "lower", "upper")
PLANNED = ("position", "margin", "queries", "times", "times_range")
RELATIVE, ABSOLUTE = 0.05, 0.02
"""Tolerance of a number that is not a propensity: counts are exact, as whole numbers have to be equal."""
MOVED, WIDER = 0.15, 0.10
"""How far a propensity may move, in half widths of its interval, and by how much an interval may change its width."""


@dataclass(frozen=True)
class Golden:
    """A fixed log.

    Attributes:
        make: returns it.
        options: those of `check` and `fit`.
        fit: further options of `fit`.
        plan: whether `plan` takes the log.
        contexts: contexts to predict for, if any.
    """

    make: Callable[[], pa.Table]
    options: str = ""
    fit: str = ""
    plan: bool = True
    contexts: dict[str, list[Any]] | None = None


def _pages(seed: int, pages: int, queries: int, context: dict[str, Any], steepness: Any) -> pa.Table:
    """Return a log of six results, ranked by one of two rankers, read to the power of a page's steepness."""
    random, k = np.random.default_rng(seed), 6
    query = np.minimum(random.geometric(4 / queries, pages), queries) - 1
    quality = random.beta(1, 2, (queries, k))
    ranked = np.argsort(-quality - random.normal(0, 0.25, (2, queries, k)), axis=2)
    arm = random.integers(2, size=pages)
    doc = ranked[arm, query]
    chance = np.arange(1, k + 1) ** -np.maximum(steepness, 0)[:, None] * quality[query[:, None], doc]
    columns = {"query": query, "page": np.arange(pages), "ranker": np.array(["a", "b"])[arm], **context}
    return pa.table(
        {name: np.repeat(values, k) for name, values in columns.items()}
        | {"doc": doc.ravel(), "position": np.tile(np.arange(1, k + 1), pages)}
        | {"click": (random.random((pages, k)) < chance).ravel().astype(np.int8)}
    )


def _levels() -> pa.Table:
    random = np.random.default_rng(1)
    city = random.integers(15, size=6_000)
    return _pages(2, 6_000, 40, {"city": np.array([f"city {i}" for i in range(15)])[city]}, 0.6 + 0.06 * city)


def _numbers() -> pa.Table:
    age, length = np.random.default_rng(3).normal(size=(2, 5_000)).round(1)
    return _pages(4, 5_000, 40, {"age": age, "length": length}, 1 + 0.4 * age)


GOLDENS = {
    "small": Golden(
        lambda: simulate_ab_log(pages=2_000, queries=30, seed=0)[0],
        "--context device", contexts={"device": ["desktop", "mobile"]},
    ),
    "thin": Golden(lambda: simulate_ab_log(pages=150, queries=20, seed=1)[0]),
    "levels": Golden(_levels, "--context city", contexts={"city": [f"city {i}" for i in range(15)]}),
    "numbers": Golden(
        _numbers, "--context age --context length",
        contexts={"age": [-1.0, 0.0, 1.0, 2.0], "length": [0.0, 1.0, 0.0, -1.0]},
    ),
    "places": Golden(lambda: simulate_places("grid", pages=3_000, seed=5)[0], "--place row,column", plan=False),
    "affine": Golden(
        lambda: simulate_trust_log(pages=12_000, queries=120, positions=4, docs=8)[0], fit="--model affine", plan=False
    ),
}  # fmt: skip


def measure(golden: Golden) -> dict[str, Any]:
    """Return what the commands say of a log, run in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pq.write_table(golden.make(), "log.parquet")
        found = {
            "check": _said(f"check log.parquet {golden.options}"),
            "fit": _fitted(_said(f"fit log.parquet {golden.options} {golden.fit} -o model.safetensors")),
            "weigh": _said("weigh log.parquet model.safetensors -o weighed.parquet"),
            "report": _said(f"report model.safetensors {'' if golden.fit else '--log log.parquet'} -o report.html"),
        }
        if golden.plan:
            needed = _said(f"plan log.parquet {golden.options}")["needed"]
            found["plan"] = [{name: row[name] for name in PLANNED} for row in needed[::5]]
        if not golden.fit:
            if golden.contexts is not None:
                pq.write_table(pa.table(golden.contexts), "contexts.parquet")
            contexts = "contexts.parquet" if golden.contexts is not None else ""
            _said(f"propensities model.safetensors {contexts} -o propensities.parquet")
            scored = pq.read_table("propensities.parquet").select([*SCORED, "propensity_state"])
            found["propensities"] = scored.to_pylist()
    return _plain(found)


def _said(command: str) -> Any:
    """Return what a command prints for machines."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(*command.split(), "--json")
    assert code in (0, 3), err.getvalue()
    return json.loads(out.getvalue())


def _fitted(said: dict[str, Any]) -> dict[str, Any]:
    """Return what of a fit does not depend on how it was found."""
    names = ("anchor", "positions", "unsupported", "slopes", "rows")
    counts = ("log_likelihood", "units", "clicks", "queries")
    kept = {name: said[name] for name in names if name in said}
    kept["info"] = {name: said["info"][name] for name in counts if name in said["info"]}
    return kept | {"curve": said.get("curve", {}).get("name"), "budget": said.get("budget")}


def _plain(value: Any) -> Any:
    """Return a value without words."""
    if isinstance(value, dict):
        return {name: _plain(own) for name, own in value.items() if name not in WORDS}
    return [_plain(own) for own in value] if isinstance(value, list) else value


def differences(found: Any, golden: Any, place: str = "") -> Iterator[str]:
    """Yield what is another answer, each with its place."""
    if isinstance(golden, dict) and isinstance(found, dict):
        if found.keys() != golden.keys():
            yield f"{place}: {sorted(found.keys() ^ golden.keys())} in one of them alone"
        if set(SCORED) <= found.keys() & golden.keys():
            yield from _moved(found, golden, place)
            found, golden = ({k: v for k, v in one.items() if k not in SCORED} for one in (found, golden))
        for name in found.keys() & golden.keys():
            yield from differences(found[name], golden[name], f"{place}/{name}")
    elif isinstance(golden, list) and isinstance(found, list) and len(found) == len(golden):
        for i, (one, other) in enumerate(zip(found, golden, strict=True)):
            yield from differences(one, other, f"{place}/{i}")
    elif isinstance(golden, float) and isinstance(found, int | float):
        if not math.isclose(found, golden, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{place}: {found}, and was {golden}"
    elif found != golden:
        yield f"{place}: {found!r}, and was {golden!r}"


def _moved(found: dict[str, Any], golden: dict[str, Any], place: str) -> Iterator[str]:
    """Yield where a propensity is elsewhere, by the width of its interval, or an interval has another width."""
    (p, low, high), (was, low_was, high_was) = ([one[name] for name in SCORED] for one in (found, golden))
    if [x is None for x in (p, low, high)] != [x is None for x in (was, low_was, high_was)]:
        yield f"{place}: {p} ({low} to {high}), and was {was} ({low_was} to {high_was})"
    elif None not in (p, low, high) and low_was < high_was:
        half, half_was = math.log(high / low) / 2, math.log(high_was / low_was) / 2
        if abs(math.log(p / was)) > MOVED * half_was + 1e-3 or abs(half / half_was - 1) > WIDER:
            yield f"{place}: {p} ({low} to {high}), and was {was} ({low_was} to {high_was})"
    elif p is not None and not math.isclose(p, was, rel_tol=RELATIVE):
        yield f"{place}: {p}, and was {was}"


def read(name: str) -> dict[str, Any]:
    """Return the golden figures of a log."""
    figures: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return figures


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(own) for name, own in value.items()}
    if isinstance(value, list):
        return [_rounded(own) for own in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    for name, golden in GOLDENS.items():
        figures = _rounded(measure(golden))
        (FOLDER / f"{name}.json").write_text(json.dumps(figures, indent=None, separators=(",", ":")) + "\n")
        print(name, "written", flush=True)
