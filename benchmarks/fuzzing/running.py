"""Running a case: in a fork of a process that has everything imported, and that is one like any other from there."""

from __future__ import annotations

import atexit
import io
import os
import resource
import select
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from cases import Case
from contract import Outcome

LONGEST = 240.0
"""Seconds that a case may take."""
INTERRUPT_WITHIN = 1.2
"""Seconds after the start within which a signal comes."""
NOBODY = 65534


def import_all() -> None:
    """Import what commands import when they run; nothing here starts a thread, so that forks are sound."""
    import duckdb  # noqa: F401
    import ibis.backends.duckdb  # noqa: F401
    import jinja2  # noqa: F401
    import lightgbm  # noqa: F401
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401
    import rich.progress
    import rich.table  # noqa: F401
    import safetensors.numpy  # noqa: F401
    import threadpoolctl  # noqa: F401
    import xgboost  # noqa: F401

    import clickharvest.__main__
    import clickharvest.baselines.comparing
    import clickharvest.checks.diagnosing
    import clickharvest.click_models.affine.estimating
    import clickharvest.click_models.base
    import clickharvest.click_models.browsing.estimating
    import clickharvest.click_models.choosing
    import clickharvest.commands.app
    import clickharvest.commands.tables
    import clickharvest.estimation.comparison
    import clickharvest.estimation.estimators
    import clickharvest.estimation.threads
    import clickharvest.harvesting.collecting
    import clickharvest.judging
    import clickharvest.logs.matching
    import clickharvest.logs.outcomes
    import clickharvest.logs.preparing
    import clickharvest.logs.tallies
    import clickharvest.model.differences
    import clickharvest.planning.designing
    import clickharvest.planning.traffic
    import clickharvest.rank.labels
    import clickharvest.rank.reranking
    import clickharvest.rank.tables
    import clickharvest.rank.training
    import clickharvest.report.page
    import clickharvest.report.tracking
    import clickharvest.simulate.ab_test
    import clickharvest.simulate.arxiv
    import clickharvest.simulate.layouts
    import clickharvest.simulate.protocol
    import clickharvest.weights  # noqa: F401
    from clickharvest.click_models.registry import CLICK_MODELS
    from clickharvest.logs.formats import FORMATS
    from clickharvest.rank.exports import EXPORTS

    for formats in (FORMATS, EXPORTS, CLICK_MODELS):
        for name in formats:
            formats[name]
    for words in PARSED:
        _parse(words)


PARSED = (
    "show nothing", "check x --anchor 0", "harvest x --max-position 0", "propensities x --level 7",
    "weigh x y --position-base 9999999",
    "report x --level 7", "compare x --level 7", "fit x --anchor 0", "rank x y --level 7", "simulate ab --queries 0",
    "tally x --position-base 9999999", "plan --positions 0", "judgments x y --level 7",
    "labels x --level 7", "rerank x y", "export x --to nothing",
)  # fmt: skip
"""Refused before anything runs, and any thread starts: Typer builds options with what it imports only then."""


def _parse(words: str) -> None:
    from clickharvest.commands.app import _run

    sys.argv = ["clickharvest", *words.split()]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert _run() == 2, words


def run(case: Case) -> Outcome:
    """Run a case to its end, and tell how it ended."""
    return fork(lambda: _command(case), case)


def fork(work: Callable[[], None], case: Case) -> Outcome:
    (out_end, out), (err_end, err), (ready_end, ready) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(out_end)
            os.close(err_end)
            _prepare(case, out, err)
            os.close(ready)
            work()
        except SystemExit as ended:  # as Python would end a process of its own
            atexit._run_exitfuncs()
            os._exit(ended.code if isinstance(ended.code, int) else 1)
        except BaseException:
            os.write(2, traceback.format_exc().encode(errors="replace"))  # whatever has become of sys.stderr
        finally:
            os._exit(1)
    for end in (out, err, ready):
        os.close(end)
    os.read(ready_end, 1)  # ends when the child is about to run: before, a signal meets no command
    os.close(ready_end)
    if case.fault == "pipe":
        os.close(out_end)
        out_end = -1
    signals = {"interrupt": signal.SIGINT, "terminate": signal.SIGTERM, "kill": signal.SIGKILL}
    texts, code = _follow(child, out_end, err_end, signals.get(case.fault or ""), case.amount * INTERRUPT_WITHIN)
    return Outcome(code, *(text.decode(errors="replace") for text in texts))


def _follow(child: int, out: int, err: int, sent: int | None, after: float) -> tuple[list[bytes], int | None]:
    """Read both streams to their ends, sending a signal meanwhile, and wait for the process."""
    begin, texts = time.monotonic(), {out: b"", err: b""}
    is_open = [end for end in (out, err) if end >= 0]
    late = False
    while is_open:
        now = time.monotonic() - begin
        if sent is not None and now >= after:
            os.kill(child, sent)
            sent = None
        if now > LONGEST and not late:
            late = True
            os.kill(child, signal.SIGKILL)
        wait = 0.5 if sent is None else max(0.0, min(0.5, after - now))
        for end in select.select(is_open, [], [], wait)[0]:
            data = os.read(end, 65536)
            texts[end] += data
            if not data:
                is_open.remove(end)
                os.close(end)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return [texts[out], texts[err]], None if late else os.waitstatus_to_exitcode(status)
        now = time.monotonic() - begin
        if (sent is not None and now >= after) or (now > LONGEST and not late):
            late = late or now > LONGEST
            os.kill(child, signal.SIGKILL if late else sent or signal.SIGKILL)
            sent = None
        time.sleep(0.005)


def _prepare(case: Case, out: int, err: int) -> None:
    """Make the fork what a process that was started in the case's folder would be."""
    os.chdir(case.folder)
    os.environ |= {"TMPDIR": str(case.folder / "tmp"), "COLUMNS": "80"} | case.environment
    tempfile.tempdir = None
    if case.fault == "no tmp":
        os.environ["TMPDIR"] = str(case.folder / "nowhere")
    if case.fault == "columns":
        os.environ["COLUMNS"] = ["0", "-1", "x", "1", "3", "99999999999999999999", ""][int(case.amount * 7)]
    if case.fault == "umask":
        os.umask(int(case.amount * 0o777))
    if case.fault == "full":
        out = os.open("/dev/full", os.O_WRONLY)
    os.dup2(out, 1)
    os.dup2(err, 2)
    encoding = "ascii" if case.fault == "ascii" else "utf-8"
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    if case.fault == "closed":
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]
    if case.fault == "no stderr":
        os.close(2)
        sys.stderr = None  # type: ignore[assignment]
    if case.fault == "fsize":
        limit = int(case.amount * 9000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if case.fault == "nobody" and os.getuid() == 0 and _is_open_to_all(Path(os.__file__)):
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["clickharvest", *case.words]


def _is_open_to_all(file: Path) -> bool:
    """Whether any user can read Python's own files, which commands import when they run."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in file.resolve().parents)


def _command(case: Case) -> None:
    from clickharvest.__main__ import main

    main()
