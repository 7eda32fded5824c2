"""The command line: its commands, a module each, and how failures and warnings are reported.

Exit codes: 0 done, 2 bad input or options (one line on standard error), 3 not identified, 130 interrupted, 141 nobody
reads the output, 143 terminated.

Command modules import engines and drawing when a command runs: `--help` and `--version` need none of them.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from clickharvest import __version__
from clickharvest.commands.declaring import with_options
from clickharvest.commands.output import complain, interrupted, prepare_streams, tell
from clickharvest.errors import ClickharvestError, ClickharvestWarning, InputError
from clickharvest.files import written
from clickharvest.words import clean_text, first_line

COMMANDS = (
    "check", "plan", "tally", "harvest", "fit", "validate", "propensities", "weigh", "judgments", "labels", "rank",
    "rerank", "export", "report", "show", "compare", "simulate", "demo",
)  # fmt: skip
"""The commands in the order of the help; each is the function of its name in the module of its name."""
OLDER = {"judgments": {"--as": "--to"}}
"""Older spellings of options, by command, which scripts may have."""
ON_ONE_THREAD = ("check", "compare", "demo", "fit", "plan", "report", "validate")
"""Commands whose linear algebra is small: more threads gain nothing, but wait for each other by spinning. On two busy
cores a fit of 100,000 rows took two to five times as much CPU time with two."""
LIMITS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""The environment variables of threads that the libraries of NumPy and SciPy read as they are loaded."""


class _Commands(TyperGroup):
    """The commands; help on one of them does not load what checks the values of options."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option --help, false where it is not given: Typer takes a missing one through Pydantic."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of every command, whole."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, (one.help or "").partition("\n")[0]) for name, one in self.commands.items()])


class _Command(TyperCommand):
    """A command, whose help has the everyday options by section, and all of them with --help-all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command, older spellings of options as the present ones."""
        parts = [word.partition("=") for word in args]
        older = OLDER.get(self.name or "", {})
        return super().parse_args(ctx, ["".join((older.get(name, name), *value)) for name, *value in parts])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage, arguments by their names alone."""
        return [re.sub(r"[{}]| <.*>", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does, and an example per line."""
        text, *examples = re.split(r"\n\n(Examples?:)$", self.help or "", maxsplit=1, flags=re.MULTILINE)
        formatter.write_paragraph()
        formatter.write_text(text)
        formatter.write_paragraph()
        for line in filter(None, "\n".join(examples).split("\n")):
            whole = re.sub(r"( --?\w[\w-]*) (?=[^-])", "\\1\xa0", line)  # an option and its value stay on one line
            lines = fill(whole, formatter.width, subsequent_indent="      ", break_on_hyphens=False)
            formatter.write(lines.replace("\xa0", " ") + "\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options by section; those without a section, which most commands have, come last."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for one in self.params:
            record = None if one.name == "help_all" else one.get_help_record(ctx)
            if record is None:
                continue
            title = getattr(one, "rich_help_panel", None) or ""
            if one.param_type_name != "option":
                title = "Arguments"
                record = (record[0].partition(" <")[0], record[1].removesuffix("  [required]"))
            sections.setdefault(title, []).append(record)
        last = sections.pop("", [])
        formatter.write_paragraph()
        for title, rows in (sections | {"Options": last}).items():
            if not rows:
                continue
            if title != "Arguments":
                formatter.write_heading(title)
            with formatter.indentation():
                formatter.write_dl(rows, col_max=20)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write how many options are not shown."""
        if more := sum(getattr(one, "hidden", False) for one in self.params):
            formatter.write(f"\n{more} more options: clickharvest {self.name} --help-all\n")


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
        rich_markup_mode=None,
    )
    line.callback()(clickharvest)
    first = words[0] if words else None
    alone = [name for name in COMMANDS if name == first and name != "demo"]  # which runs the others
    for name in () if first == "--version" else alone or COMMANDS:
        command = getattr(import_module(f"clickharvest.commands.{name}"), name)
        listed = _listed if first == "--help" else with_options(command)
        line.command(name, cls=_Command, help=flowing(command.__doc__ or ""))(listed)
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


def keep_to_one_thread() -> None:
    """Let linear algebra run on one thread, unless the user says otherwise; to be called before NumPy is imported."""
    if not any(name in os.environ for name in LIMITS):
        os.environ |= dict.fromkeys(LIMITS[:2], "1")


def main() -> None:
    """Run the command line; every expected failure is one line on standard error and an exit code."""
    sys.exit(_flush(_run()))


def _flush(code: int) -> int:
    """Write the rest of the output, and return the exit code; Python would complain in many lines where it fails."""
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = 141
    except OSError as error:
        if code != 2:  # else the command has complained already
            complain(f"Error: cannot write to standard output: {error.strerror}")
        code = 2
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
    return code


def _run() -> int:
    warned: set[str] = set()
    prepare_streams()
    written.clear()

    def print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        """Print the library's own warnings, once each; those of other libraries are for programmers."""
        if issubclass(category, ClickharvestWarning) and str(message) not in warned:
            warned.add(str(message))
            complain(f"Warning: {message}")

    words, show_warning = sys.argv[1:], warnings.showwarning
    command = words[0] if words and words[0] in COMMANDS else ""
    warnings.showwarning = print_warning
    try:
        _require_utf8(words)
        if command in ON_ONE_THREAD:
            keep_to_one_thread()
        code = assemble(words)(standalone_mode=False) or 0
        if code == 130:  # Typer makes it of KeyboardInterrupt
            complain(interrupted(written))
        return code
    except ClickharvestError as error:
        complain(f"Error: {error}")
        return error.exit_code
    except typer.exceptions.TyperException as error:
        complain(f"Error: {error.format_message()} (see clickharvest{command and f' {command}'} --help)")
        return 2
    except typer.Abort:  # whoever raised it has complained
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
        warnings.showwarning = show_warning


def _require_utf8(words: Sequence[str]) -> None:
    """Refuse words that are no text: a file may have any bytes for a name, but engines take UTF-8 alone."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{clean_text(word)!r} is not UTF-8: engines cannot take such a name; rename it") from None
