"""Runs pytest again and again, each time in a fork of a process that has imported the libraries, for `mutants.py`.

Reads one JSON object a line, {"arguments": […], "output": file, "timeout": seconds}, and answers with a line: the exit
code, or `timeout`. The package itself is never imported here, so that every fork imports it as it is then.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback

import pytest

LIBRARIES = (
    "numpy", "scipy.optimize", "scipy.sparse", "scipy.special", "scipy.stats", "duckdb",
    "ibis", "ibis.backends.duckdb", "ibis.backends.sql.compilers.duckdb", "pyarrow", "pyarrow.compute",
    "pyarrow.dataset", "pyarrow.parquet", "pandas", "sklearn.base", "sklearn.metrics", "safetensors.numpy",
    "hypothesis", "typer", "rich.progress", "pytest", "mutant_plugin",
)  # fmt: skip


def main() -> None:
    """Answer requests until there are none."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if any(name.partition(".")[0] == "clickharvest" for name in sys.modules):
        sys.exit("a library imports clickharvest: forks would not see its mutants")
    gc.freeze()
    for line in sys.stdin:
        print(answer(**json.loads(line)), flush=True)


def answer(arguments: list[str], output: str, timeout: float) -> str:
    """Run pytest in a fork and return how it ended."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(source, target)
        code = 70
        try:
            code = int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments]))
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return str(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


if __name__ == "__main__":
    main()
