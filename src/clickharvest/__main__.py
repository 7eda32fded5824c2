"""The program `clickharvest`, which is `python -m clickharvest` too."""

import atexit
import gc


def main() -> None:
    """Run the command line in a process of its own."""
    # What a short process makes is mostly modules, which live as long as it does. To look through them for garbage all
    # the time, and once more at the end, takes a fifth of a quick check.
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)

    from clickharvest.commands.app import main as run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
