"""The tables of the benchmarks, and what the page `benchmarks/README.md` shows of them.

Every benchmark writes its whole table to `benchmarks/tables/NAME.md`. The page has places for parts of these:

    <!-- harvest | rows: 20M; 100M | columns: rows; contender; ratio to SQL -->
    <!-- end -->

shows the first table of `harvest.md`: all rows or those in which one of the regular expressions is found (cells are
joined by two spaces), all columns or those named (`browsing#2` is the second one of that name). A last line counts the
bars that hold.

    .venv/bin/python benchmarks/tables.py     # writes all these parts again
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
TABLES = HERE / "tables"
PLACE = re.compile(r"<!-- (?P<name>[\w-]+)(?P<options>( \|[^>]*)?) -->\n.*?<!-- end -->", re.DOTALL)


def write_table(name: str, text: str) -> None:
    """Write the whole table of a benchmark, and the page that shows a part of it."""
    head = f"# {name}\n\nWritten by a benchmark; `benchmarks/README.md` names it and says what the table is about.\n"
    write_whole(TABLES / f"{name}.md", f"{head}\n{text.strip()}\n")
    write_page()


def write_page() -> None:
    """Write the parts of tables that the page shows again."""
    write_whole(README, page(README.read_text(encoding="utf-8")))


def page(text: str) -> str:
    """Return the text of the page with its parts of tables as they are now."""
    return PLACE.sub(_filled, text)


def _filled(place: re.Match[str]) -> str:
    options = dict(part.strip().split(": ", 1) for part in place["options"].split("|") if part.strip())
    shown = excerpt(
        (TABLES / f"{place['name']}.md").read_text(encoding="utf-8"),
        options["rows"].split("; ") if "rows" in options else [""],
        options["columns"].split("; ") if "columns" in options else None,
    )
    link = f"[All of it](tables/{place['name']}.md)."
    return "\n".join([f"<!-- {place['name']}{place['options']} -->", *shown, "", link, "<!-- end -->"])


def excerpt(text: str, rows: list[str], columns: list[str] | None = None) -> list[str]:
    """Return lines of the first table of a text in Markdown, and one that counts the bars of the text.

    Args:
        text: holds tables and bars.
        rows: regular expressions, one of which is found in each row that is shown.
        columns: names of columns, all by default.
    """
    head, rule, *body = next(_tables(text))
    names = [name if head[:k].count(name) == 0 else f"{name}#{head[:k].count(name) + 1}" for k, name in enumerate(head)]
    if unknown := set(columns or ()) - set(names):
        raise ValueError(f"the table has no columns {sorted(unknown)}: it has {names}")
    chosen = [names.index(name) for name in columns] if columns else range(len(head))
    kept = [cells for cells in body if any(re.search(row, "  ".join(cells)) for row in rows)]
    lines = ["| " + " | ".join(cells[k] for k in chosen) + " |" for cells in (head, rule, *kept)]
    return [*lines, *_count_bars(text)]


def _tables(text: str) -> Iterator[list[list[str]]]:
    """Yield the cells of each table."""
    table: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])])
        elif table:
            yield table
            table = []


def _count_bars(text: str) -> list[str]:
    held, missed = (len(re.findall(rf"^- {word}:", text, re.MULTILINE | re.IGNORECASE)) for word in ("pass", "fail"))
    if counted := re.findall(r"^(\d+) of (\d+) bars hold\.$", text, re.MULTILINE):
        held, missed = sum(int(some) for some, _ in counted), sum(int(all_) - int(some) for some, all_ in counted)
    return ["", f"{held} of {held + missed} bars hold."] if held + missed else []


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_between_markers(path: Path, name: str, text: str) -> None:
    """Replace what stands between the markers of a file; add them at its end where it has none."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    content = path.read_text()
    if begin not in content:
        content = f"{content.rstrip()}\n\n{begin}\n{end}\n"
    before, rest = content.split(begin)
    write_whole(path, f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    write_page()
