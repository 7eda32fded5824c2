"""Writes the page of all commands and options from the command line itself: `python docs/reference.py`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from clickharvest import errors
from clickharvest.commands.app import app

PAGE = Path(__file__).parent / "commands.md"
DEFAULT = re.compile(r"\s*\[(?:(default: (?P<value>[^\]]+))|(?P<required>required))\]")
START = """# Commands

Every command is one step of the pipeline. It reads files and writes one file, so each step can be run again on its own.
This page is written by `docs/reference.py` from the options themselves; `clickharvest COMMAND --help` says the same.

"""
CODES = {
    0: "Done.",
    1: "`reproduce`: a claim of the paper does not hold.",
    130: "Interrupted from the keyboard.",
}
NAMED = re.compile(r"(?<!`)(?<![\w-])(--[a-z][\w-]*)(?!`)")


class Panel(NamedTuple):
    """A group of options as the help shows it: its title and its rows of (spelling, meaning, default)."""

    title: str
    rows: tuple[tuple[str, str, str], ...]


def write_page() -> str:
    """Return the page as Markdown."""
    group: Any = typer.main.get_command(app)
    root = group.context_class(group, info_name="clickharvest")
    commands = {name: group.get_command(root, name) for name in group.list_commands(root)}
    contexts = {
        name: command.context_class(command, info_name=name, parent=root) for name, command in commands.items()
    }
    panels = {name: list(read_panels(command, contexts[name])) for name, command in commands.items()}
    uses = Counter(panel for own in panels.values() for panel in own if panel.title)
    shared = [panel for panel, times in uses.items() if times > 1]
    first = {name: command.help.splitlines()[0].strip() for name, command in commands.items()}
    parts = [START, "| command | what it does |\n|---|---|\n"]
    parts += [f"| [`{name}`](#{name}) | {escape(first[name])} |\n" for name in commands]
    parts += ["\n## Exit codes\n\n", *write_codes()]
    for name, command in commands.items():
        parts += write_command(name, command, contexts[name], panels[name], shared)
    parts.append("\n## Shared options\n\nThese groups of options are the same for every command that lists them.\n")
    for panel in shared:
        parts += [f"\n### {panel.title}\n\n", write_table("option", panel.rows)]
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


def write_command(name: str, command: Any, context: Any, panels: list[Panel], shared: list[Panel]) -> Iterator[str]:
    """Write one command: what it does, how it is called, examples, options."""
    text, _, examples = re.split(r"^(Examples?:)$", command.help + "\n", maxsplit=1, flags=re.MULTILINE)
    yield f"\n## {name}\n\n{mark_options(text.strip())}\n"
    usage = [command.get_usage(context).removeprefix("Usage: "), "", *filter(None, map(str.strip, examples.split("\n")))]
    yield "\n```bash\n" + "\n".join(usage) + "\n```\n"
    for panel in panels:
        if panel in shared:
            continue
        kind = "argument" if panel.title == "Arguments" else "option"
        yield f"\n**{panel.title}**\n\n" if panel.title else "\n"
        yield write_table(kind, panel.rows)
    links = [f"[{panel.title}](#{anchor(panel.title)})" for panel in panels if panel in shared]
    if links:
        yield f"\nAnd the shared options: {', '.join(links)}.\n"


def read_panels(command: Any, context: Any) -> Iterator[Panel]:
    """Read the groups of a command's options: arguments first, then its own options, then the titled groups."""
    groups: dict[str, list[tuple[str, str, str]]] = {"Arguments": [], "": []}
    for parameter in command.params:
        record = None if parameter.hidden else parameter.get_help_record(context)
        if record is None:
            continue
        spelling, told = record
        found = DEFAULT.search(told)
        default = "" if found is None else "required" if found["required"] else f"`{found['value']}`"
        is_argument = parameter.param_type_name == "argument"
        spelling = re.sub(r" <(?:str|path)>$", "", spelling) if is_argument else spelling
        title = "Arguments" if is_argument else parameter.rich_help_panel or ""
        groups.setdefault(title, []).append((f"`{spelling}`", mark_options(DEFAULT.sub("", told)), default))
    return (Panel(title, tuple(rows)) for title, rows in groups.items() if rows)


def write_table(kind: str, rows: tuple[tuple[str, str, str], ...]) -> str:
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
