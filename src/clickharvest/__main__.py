"""The program `clickharvest`, which is `python -m clickharvest` too."""

import atexit
import contextlib
import gc
import os
import sys
from typing import NoReturn


def main() -> None:
    """Run the command line in a process of its own."""
    # What a short process makes is mostly modules, which live as long as it does: to look through them for garbage all
    # the time takes a tenth of a quick check.
    gc.set_threshold(100_000, 20, 100)

    from clickharvest.commands.app import main as run_command_line

    try:
        run_command_line()
    except SystemExit as ended:
        leave(int(ended.code or 0))


def leave(code: int) -> NoReturn:
    """End the process at once: to take all modules apart first would take another tenth of a quick check."""
    atexit._run_exitfuncs()  # temporary folders go, Spark stops
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = 141
    except OSError as error:
        print(f"Error: cannot write to standard output: {error.strerror}", file=sys.stderr)
        code = 2
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
