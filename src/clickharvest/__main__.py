"""The program `clickharvest`, which is `python -m clickharvest` too."""

import contextlib
import gc
import os
import signal
import sys
import threading
from typing import Any, NoReturn


def main() -> None:
    """Run the command line in a process of its own."""
    end_when_interrupted()
    # Most objects of a short process belong to modules and live as long as it does: searching them for garbage all the
    # time takes a tenth of a quick check.
    gc.set_threshold(100_000, 20, 100)

    from clickharvest.commands.app import main as run_command_line

    run_command_line()


def end_when_interrupted() -> None:
    """End with one line on an interrupt from the keyboard (exit code 130) or a SIGTERM (143), whatever is running.

    Python raises KeyboardInterrupt between two of its own instructions alone: a query of DuckDB goes on to its end,
    minutes after Ctrl-C, and in the middle of an import the exception becomes other errors. So a thread waits for the
    signal, removes half-written files and ends the process. A process that ignores a signal, as behind nohup, goes on
    ignoring it.
    """
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    heeded = [number for number, handler in usual.items() if signal.getsignal(number) == handler]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in heeded:
        signal.signal(number, _leave_it_to_the_thread)
    owner = os.getpid()

    def wait() -> None:
        # PySpark replaces our handler with its own; a command that handles the signal itself restores Python's.
        number = 0
        while number not in heeded or signal.getsignal(number) is signal.default_int_handler:
            number = os.read(reader, 1)[0]
        if os.getpid() == owner:
            end_interrupted(number)

    threading.Thread(target=wait, name="clickharvest interrupts", daemon=True).start()


def _leave_it_to_the_thread(*_: Any) -> None:
    """Take the place of Python's own handler, which would raise KeyboardInterrupt, and of the system's end."""


def end_interrupted(number: int) -> NoReturn:
    """Remove half-written files, say so in one line, and end the process at once, as by that signal."""
    # A module that is not loaded yet has not written anything. In the middle of its import it has no functions.
    files: Any
    output: Any
    files, output = (sys.modules.get(f"clickharvest.{name}") for name in ("files", "commands.output"))
    finished = files.abandon() if hasattr(files, "abandon") else []
    message = output.interrupted(finished) if hasattr(output, "interrupted") else "Interrupted; nothing was written."
    terminal = getattr(sys.modules.get("clickharvest.logs.spark"), "standard_error", 2)
    with contextlib.suppress(OSError):
        os.write(terminal, ("\n" * os.isatty(terminal) + message + "\n").encode(errors="replace"))
    os._exit(128 + number)  # sys.exit would end this thread alone, and wait for the query


if __name__ == "__main__":
    main()
