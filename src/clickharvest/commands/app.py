"""The command line: its commands, a file each, and what becomes of failures and warnings.

Exit codes: 0 done, 2 bad input or options (one line on standard error), 3 not identified, 130 interrupted, 141 nobody
reads the output, 143 terminated.

Command modules import engines and drawing when a command runs: `--help` and `--version` need none of them.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from clickharvest import __version__
from clickharvest.commands.output import complain, interrupted, prepare_streams, tell
from clickharvest.errors import ClickharvestError, ClickharvestWarning, InputError
from clickharvest.files import written
from clickharvest.words import clean_text, first_line


class _Commands(TyperGroup):
    """The commands; help on one of them does not load what checks the values of options."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, false where it is not given: Typer takes a missing one through Pydantic."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


COMMANDS = (
    "check", "plan", "tally", "harvest", "fit", "propensities", "weigh", "judgments", "labels", "rank", "rerank",
    "export", "report", "show", "compare", "simulate", "reproduce", "demo",
)  # fmt: skip
"""The commands in the order of the help; each is the function of its name in the module of its name."""


def _version(wanted: bool) -> None:
    if wanted:
        tell(f"clickharvest {__version__}")
        raise typer.Exit


def clickharvest(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Examination propensities from ordinary click logs."""


def assemble(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line; where its first word is a command, that one alone: the others take time to import."""
    line = typer.Typer(
        name="clickharvest",
        cls=_Commands,
        help="Examination propensities from ordinary click logs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    line.callback()(clickharvest)
    first = words[0] if words else None
    asked = [name for name in COMMANDS if name == first and name != "demo"]  # which runs the others
    for name in () if first == "--version" else asked or COMMANDS:
        command = getattr(import_module(f"clickharvest.commands.{name}"), name)
        line.command(name, help=flowing(command.__doc__ or ""))(_listed if first == "--help" else command)
    return line


def _listed() -> None:
    """Stand for a command without its options, which take time to build: a list of commands needs the help alone."""


def flowing(text: str) -> str:
    """Return a docstring with its paragraphs in one line each, which terminals of any width break; examples stay.

    Example:
        >>> flowing("Do this.\\n\\n    And that, at\\n    length.\\n\\n      clickharvest do\\n")
        'Do this.\\n\\nAnd that, at length.\\n\\n  clickharvest do'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith(" ") else part.replace("\n", " ") for part in paragraphs)


def _check_words(words: Sequence[str]) -> None:
    """Refuse words that are no text: a file may have any bytes for a name, but engines take UTF-8 alone."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{clean_text(word)!r} is not UTF-8: engines cannot take such a name; rename it") from None


def main() -> None:
    """Run the command line; every expected failure is one line on standard error and an exit code."""
    sys.exit(_run())


def _run() -> int:
    told: set[str] = set()
    prepare_streams()
    written.clear()

    def print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        """Print the library's own warnings, once each; those of other libraries are for programmers."""
        if issubclass(category, ClickharvestWarning) and str(message) not in told:
            told.add(str(message))
            complain(f"Warning: {message}")

    shown = warnings.showwarning
    warnings.showwarning = print_warning
    try:
        _check_words(sys.argv[1:])
        code = assemble(sys.argv[1:])(standalone_mode=False) or 0
        if code == 130:  # Typer makes it of KeyboardInterrupt
            complain(interrupted(written))
        return code
    except ClickharvestError as error:
        complain(f"Error: {error}")
        return error.exit_code
    except typer.exceptions.TyperException as error:
        asked = "".join(f" {word}" for word in sys.argv[1:2] if word in COMMANDS)
        message = error.format_message().replace("Value error, ", "")  # which Pydantic puts before what a choice says
        complain(f"Error: {message} (see clickharvest{asked} --help)")
        return 2
    except typer.Abort:  # whoever raised it has told why
        return 130
    except SystemExit:  # Typer's end of a command whose output nobody reads
        return 141
    except OSError as error:
        what = "cannot read or print" if error.filename is None else f"cannot use {error.filename}"
        complain(f"Error: {what}: {error.strerror or first_line(error)}")
        return 2
    except MemoryError as error:
        complain(f"Error: there is not enough memory: {first_line(error)} Use a smaller log, or a machine with more.")
        return 2
    finally:
        warnings.showwarning = shown
