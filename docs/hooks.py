"""What the build of these pages does beside MkDocs.

Some pages are generated (`make reproduce`) and may not be there yet: the menu then
leaves them out. Their figures lie in the folder of results, outside of `docs`, and are taken along. Links to other
files of the repository, which the site does not have, become their names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FIGURE = re.compile(r"(!\[[^\]]*\]\()\.\./(results/[\w./-]+\.svg)\)")

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(\.\./([\w./-]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave pages out of the menu that are not there."""
    config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take the figures along that pages show from the folder of results."""
    root = Path(config.docs_dir).parent
    shown = {match[2] for page in files.documentation_pages() for match in FIGURE.finditer(page.content_string)}
    for figure in sorted(shown):
        if (root / figure).is_file():
            files.append(File.generated(config, figure, abs_src_path=str(root / figure)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point at the figures where the site has them, and at the first page instead of the README."""
    shown = FIGURE.sub(r"\1\2)", markdown)
    return shown if "/" in page.file.src_uri else LINK.sub(_on_site, shown)  # in folders, .. is still among the pages


def _on_site(link: re.Match[str]) -> str:
    text, target = link.groups()
    return f"[{text}](index.md)" if target == "README.md" else f"{text} (`{target}`)"


def _present(entries: Any, docs: Path) -> Any:
    """Return the entries of a menu whose pages exist, without empty sections."""
    if isinstance(entries, str):
        return entries if (docs / entries).is_file() else None
    if isinstance(entries, dict):
        kept = {title: _present(entry, docs) for title, entry in entries.items()}
        return {title: entry for title, entry in kept.items() if entry} or None
    return [entry for entry in (_present(entry, docs) for entry in entries) if entry]
