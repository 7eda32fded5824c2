"""A pytest plugin for `mutants.py`: tests that repeat exactly, a limit for each, and which lines each one runs.

With MUTANTS_LINES naming a file, every test's seconds and the lines of the package that it runs are written there.
"""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest
from hypothesis import settings

LIMIT = 45.0
"""Seconds of processor time after which a test counts as hanging: SIGPROF ends the process."""

settings.register_profile("mutants", derandomize=True, deadline=None, database=None)
settings.load_profile("mutants")

_wanted = os.environ.get("MUTANTS_LINES")
_lines = coverage.Coverage(data_file=None, config_file=False, include=["*/src/clickharvest/*"]) if _wanted else None
_seconds: dict[str, float] = defaultdict(float)
if _lines is not None:
    _lines.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    if _lines is not None:
        _lines.switch_context(item.nodeid)
    else:
        signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.passed:
        _seconds[report.nodeid] += report.duration
    else:
        _seconds[report.nodeid] = float("nan")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _lines is None or _wanted is None:
        return
    _lines.stop()
    data = _lines.get_data()
    ran: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for file in data.measured_files():
        name = Path(file).relative_to(session.config.rootpath).as_posix()
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                ran[test][name].append(line)
    Path(_wanted).write_text(json.dumps({"seconds": _seconds, "lines": ran}), encoding="utf-8")
