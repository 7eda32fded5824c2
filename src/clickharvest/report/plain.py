"""Pages without scripts, of click models other than examination: what they share."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from clickharvest import __version__
from clickharvest.checks import findings_of
from clickharvest.files import atomic_path


def write_page(path: Path, template: str, view: Mapping[str, Any]) -> int:
    """Fill in a template that extends `plain.html`, write it, whole or not at all, and return its size in bytes."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    assets = files("clickharvest.report").joinpath("assets")

    def read(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = environment.get_template(template).render(**view, version=__version__, style=read("style.css"))
    page = text.encode("utf-8", "replace")
    with atomic_path(path) as partial:
        partial.write_bytes(page)
    return len(page)


def kept_findings(model: Any) -> list[dict[str, str]]:
    """Return the checks that a model's file keeps: severity, kind and sentence."""
    return [{"severity": str(one.severity), "kind": one.kind, "sentence": one.sentence} for one in findings_of(model)]
