"""The store: one line of JSON per measured run, one file per world, so that nothing is measured twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from clickharvest.errors import InputError
from clickharvest.files import atomic_path
from experiments.runner.runs import Result, Results, Run

FILE = "runs.jsonl"


@dataclass(frozen=True)
class Store:
    """A folder of results, `folder/world/runs.jsonl`.

    A line holds the run and its numbers. Several processes may add lines at once: a line is written at once, between
    line ends of its own. One that was cut off, as its process was killed, does not count. Of the lines of one run the
    last counts.

    Example:
        >>> import tempfile
        >>> store, run = Store(Path(tempfile.mkdtemp())), Run("f", "synthetic", 0, {"eta": 0.5})
        >>> store.find(run) is None
        True
        >>> store.save(Result(run, {"error": 0.1}))
        >>> store.find(run).numbers
        {'error': 0.1}
    """

    folder: Path

    def path(self, world: str) -> Path:
        """Return where the runs of a world are kept."""
        return self.folder / world / FILE

    def worlds(self) -> list[str]:
        """Return the worlds that have a file of runs."""
        return sorted(path.parent.name for path in self.folder.glob(f"*/{FILE}"))

    def find(self, run: Run) -> Result | None:
        """Return the result of a run, None where it has not been measured."""
        kept = self.load(run.world).get(run.key)
        return None if kept is None else replace(kept, run=run)

    def load(self, world: str) -> Mapping[str, Result]:
        """Return all results of a world, by the keys of their runs."""
        path = self.path(world)
        try:
            state = path.stat()
        except OSError:
            return {}
        return _read(path, state.st_mtime_ns, state.st_size)

    def save(self, result: Result) -> None:
        """Keep a result.

        Raises:
            InputError: the folder cannot be written to.
            ValueError: a number is not finite.
        """
        line = f"\n{_line(result)}\n".encode()
        path = self.path(result.run.world)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                written = os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            raise InputError(f"cannot write results to {path.parent}: {error.strerror}; name another folder") from error
        if written < len(line):
            raise InputError(f"cannot write results to {path.parent}: the disk is full; make room or name another")

    def rewrite(self, world: str, results: Iterable[Result]) -> None:
        """Write all results of a world, sorted by key, so that equal results are equal bytes."""
        lines = {result.run.key: f"{_line(result)}\n" for result in results}
        with atomic_path(self.path(world)) as partial:
            partial.write_text("".join(lines[key] for key in sorted(lines)), encoding="utf-8")

    def tidy(self, worlds: Iterable[str]) -> None:
        """Write files of runs anew: sorted, one line per run, without what was cut off.

        What another command adds in that moment is lost, and measured again.
        """
        for world in dict.fromkeys(worlds):
            if results := self.load(world):
                self.rewrite(world, results.values())

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that have not been measured, each once."""
        return [run for run in dict.fromkeys(runs) if self.find(run) is None]

    def results(self, runs: Iterable[Run]) -> Results:
        """Return the results of those runs that have been measured."""
        found = (self.find(run) for run in dict.fromkeys(runs))
        return Results(result for result in found if result is not None)


@lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> dict[str, Result]:
    """Return the results of a file by key; when it changed, and its size, tell whether it has to be read again."""
    results = {}
    for line in path.read_bytes().split(b"\n"):
        try:
            kept = json.loads(line)
            result = Result(Run(**kept["run"]), kept["numbers"])
        except (ValueError, KeyError, TypeError):
            continue
        results[result.run.key] = result
    return results


def _line(result: Result) -> str:
    kept = {"run": result.run.to_dict(), "numbers": result.numbers}
    return json.dumps(kept, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
