"""Writes the page of all commands and options from the command line itself: `python docs/reference.py`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from clickharvest import errors
from clickharvest.commands.app import assemble

ARGUMENTS = "Arguments"
PAGE = Path(__file__).parent / "commands.md"
DEFAULT = re.compile(r"\s*\[(?:default: (?P<value>[^\]]+)|(?P<required>required))\]|\s*\(default: (?P<told>[^)]+)\)")
START = """# Commands

Every command is one step of the pipeline. It reads files and writes one file, so each step can be run again on its own.
This page is written by `docs/reference.py` from the options themselves, as `clickharvest COMMAND --help-all` is.

"""
CODES = {
    0: "Done.",
    130: "Interrupted from the keyboard.",
    143: "Ended by the system (SIGTERM), such as by `docker stop` or `timeout`.",
}
NAMED = re.compile(r"(?<!`)(?<![\w-])(--[a-z][\w-]*)(?!`)")


Row = tuple[str, str, str]
"""An option: its spelling, meaning and default."""


def commands() -> dict[str, tuple[Any, Any]]:
    """Return every command, by name, and the context that its help needs."""
    group: Any = typer.main.get_command(assemble())
    root = group.context_class(group, info_name="clickharvest")
    found = {name: group.get_command(root, name) for name in group.list_commands(root)}
    return {name: (own, own.context_class(own, info_name=name, parent=root)) for name, own in found.items()}


def write_page() -> str:
    """Return the page as Markdown."""
    found = commands()
    panels = {name: read_panels(*command) for name, command in found.items()}
    uses = Counter((title, row) for own in panels.values() for title, rows in own.items() if title for row in rows)
    shared: dict[str, list[Row]] = {}
    for (title, row), times in uses.items():
        if times > 1 and title != ARGUMENTS:
            shared.setdefault(title, []).append(row)
    parts = [START, "| command | what it does |\n|---|---|\n"]
    parts += [f"| [`{name}`](#{name}) | {escape(own.help.splitlines()[0])} |\n" for name, (own, _) in found.items()]
    parts += ["\n## Exit codes\n\n", *write_codes()]
    for name, command in found.items():
        parts += write_command(name, *command, panels[name], shared)
    parts.append("\n## Shared options\n\nThese groups of options are the same for every command that refers to them.\n")
    for title, rows in shared.items():
        parts += [f"\n### {title}\n\n", write_table("option", rows)]
    return "".join(parts)


def write_codes() -> Iterator[str]:
    """Write the exit codes, from the classes of errors that carry them."""
    found = dict(CODES)
    for name in ("InputError", "EngineError", "NotIdentifiedError"):
        error = getattr(errors, name)
        sentence = (error.__doc__ or "").splitlines()[0]
        found[error.exit_code] = " ".join(filter(None, [found.get(error.exit_code), sentence]))
    yield "| code | meaning |\n|--:|---|\n"
    yield from (f"| {code} | {escape(found[code])} |\n" for code in sorted(found))
    yield "\nAn error is one line on standard error that says what was found, what was expected and what to do.\n"


def write_command(
    name: str, command: Any, context: Any, panels: dict[str, list[Row]], shared: dict[str, list[Row]]
) -> Iterator[str]:
    """Write one command: what it does, how it is called, examples, options."""
    text, _, examples = re.split(r"^(Examples?:)$", command.help + "\n", maxsplit=1, flags=re.MULTILINE)
    yield f"\n## {name}\n\n{mark_options(text.strip())}\n"
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield "\n".join(["\n```bash", usage, "", *filter(None, map(str.strip, examples.split("\n"))), "```", ""])
    links = []
    for title, rows in panels.items():
        common = shared.get(title, [])
        if common and set(common) <= set(rows):
            links.append(f"[{title}](#{anchor(title)})")
            rows = [row for row in rows if row not in common]
        if rows:
            yield f"\n**{title}**\n\n" if title else "\n"
            yield write_table("argument" if title == ARGUMENTS else "option", rows)
    if links:
        yield f"\nAlso the shared options {', '.join(links)}.\n"


def read_panels(command: Any, context: Any) -> dict[str, list[Row]]:
    """Return a command's options by the title of their group: arguments, then those without a title, then the rest."""
    panels: dict[str, list[Row]] = {ARGUMENTS: [], "": []}
    for parameter in command.params:
        parameter.hidden = False  # --help shows the everyday options alone, this page all
        record = None if parameter.name == "help_all" else parameter.get_help_record(context)
        if record is None:
            continue
        spelling, told = record
        found = DEFAULT.search(told)
        default = ""
        if found is not None:
            default = "required" if found["required"] else found["told"] or f"`{found['value']}`"
        is_argument = parameter.param_type_name == "argument"
        spelling = re.sub(r" <(?:str|path|list\[str\])>$", "", spelling) if is_argument else spelling
        title = ARGUMENTS if is_argument else parameter.rich_help_panel or ""
        panels.setdefault(title, []).append((f"`{spelling}`", mark_options(DEFAULT.sub("", told)), default))
    return panels


def write_table(kind: str, rows: list[Row]) -> str:
    """Write rows as a Markdown table."""
    lines = [f"| {kind} | meaning | default |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(escape, row))} |" for row in rows), ""])


def mark_options(text: str) -> str:
    """Set the names of options in a text as code."""
    return NAMED.sub(r"`\1`", text)


def escape(text: str) -> str:
    """Return a text that can stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def anchor(title: str) -> str:
    """Return the anchor that the site gives a heading."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


if __name__ == "__main__":
    PAGE.write_text(write_page())
    print(f"{PAGE.name}: written")
