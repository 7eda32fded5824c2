"""The program `clickharvest`, which is `python -m clickharvest` too."""

import atexit
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
    # What a short process makes is mostly modules, which live as long as it does: to look through them for garbage all
    # the time takes a tenth of a quick check.
    gc.set_threshold(100_000, 20, 100)

    from clickharvest.commands.app import main as run_command_line

    try:
        run_command_line()
    except SystemExit as ended:
        leave(int(ended.code or 0))


def end_when_interrupted() -> None:
    """End with one line on an interrupt from the keyboard (exit code 130) or a SIGTERM (143), whatever is being done.

    Python raises KeyboardInterrupt only between two instructions of its own: not inside a query of DuckDB or a fit, and
    in the middle of an import, where it becomes other errors. So a thread waits for the signal, removes what is half
    written and ends the process. A process that ignores a signal, as behind nohup, goes on ignoring it.
    """
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    heeded = [number for number, handler in usual.items() if signal.getsignal(number) == handler]
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    for number in heeded:
        signal.signal(number, _leave_it_to_the_thread)
    owner = os.getpid()

    def wait() -> None:
        # PySpark puts a handler of its own in the place of ours; Python's is there where a command wants to be asked.
        number = 0
        while number not in heeded or signal.getsignal(number) is signal.default_int_handler:
            number = os.read(heard, 1)[0]
        if os.getpid() == owner:
            end_interrupted(number)

    threading.Thread(target=wait, name="clickharvest interrupts", daemon=True).start()


def _leave_it_to_the_thread(*_: Any) -> None:
    """Take the place of Python's own handler, which would raise KeyboardInterrupt, and of the system's end."""


def end_interrupted(number: int) -> NoReturn:
    """Remove what is half written, say so in one line, and end the process at once, as by that signal."""
    # What is not loaded yet has not written anything. In the middle of its import there is a module, but no function.
    files: Any
    output: Any
    files, output = (sys.modules.get(f"clickharvest.{name}") for name in ("files", "commands.output"))
    finished = files.abandon() if hasattr(files, "abandon") else []
    said = output.interrupted(finished) if hasattr(output, "interrupted") else "Interrupted; nothing was written."
    terminal = getattr(sys.modules.get("clickharvest.logs.spark"), "standard_error", 2)
    with contextlib.suppress(OSError):
        os.write(terminal, ("\n" * os.isatty(terminal) + said + "\n").encode(errors="replace"))
    os._exit(128 + number)


def leave(code: int) -> NoReturn:
    """End the process at once.

    Python would take all modules apart first: `check` on a log of 30,000 rows then takes 4.5 s of CPU instead of 3.7.
    What is registered with `atexit` has to be run by hand for that, which only a private function does.
    """
    try:
        atexit._run_exitfuncs()  # temporary folders go, Spark stops
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = 141
    except OSError as error:
        if code != 2:  # else that was told already
            from clickharvest.commands.output import complain

            complain(f"Error: cannot write to standard output: {error.strerror}")
        code = 2
    with contextlib.suppress(OSError, ValueError, AttributeError):  # standard error may be closed, or not there
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
