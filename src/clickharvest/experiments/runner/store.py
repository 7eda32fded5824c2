"""The store: one small JSON file per measured run, so that nothing is measured twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clickharvest.errors import InputError
from clickharvest.experiments.runner.runs import Numbers, Result, Results, Run
from clickharvest.files import atomic_path


@dataclass(frozen=True)
class Store:
    """A folder of results, `folder/world/runs/key.json`.

    A file appears whole or not at all. One that cannot be read, or that tells of another run, counts as missing.

    Example:
        >>> import tempfile
        >>> store, run = Store(Path(tempfile.mkdtemp())), Run("f", "synthetic", 0, {"eta": 0.5})
        >>> store.load(run) is None
        True
        >>> store.save(run, {"error": 0.1})
        >>> store.load(run)
        {'error': 0.1}
    """

    folder: Path

    def path(self, run: Run) -> Path:
        """Return where the result of a run is kept."""
        return self.folder / run.world / "runs" / f"{run.key}.json"

    def load(self, run: Run) -> Numbers | None:
        """Return the numbers of a run, None where it has not been measured."""
        try:
            kept = json.loads(self.path(run).read_text(encoding="utf-8"))
            numbers: Numbers = kept["numbers"]
            return numbers if kept["run"] == json.loads(json.dumps(run.to_dict())) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, run: Run, numbers: Numbers) -> None:
        """Keep the numbers of a run."""
        path = self.path(run)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write results to {path.parent}: {error.strerror}; name another folder") from error
        with atomic_path(path) as partial:
            text = json.dumps({"run": run.to_dict(), "numbers": numbers}, indent=1, ensure_ascii=False, allow_nan=False)
            partial.write_text(text + "\n", encoding="utf-8")

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that have not been measured, each once."""
        return [run for run in dict.fromkeys(runs) if self.load(run) is None]

    def results(self, runs: Iterable[Run]) -> Results:
        """Return the results of those runs that have been measured."""
        found = ((run, self.load(run)) for run in dict.fromkeys(runs))
        return Results(Result(run, numbers) for run, numbers in found if numbers is not None)
