"""The page: one HTML file with everything in it, which needs no network.

Texts go through Jinja's escaping; data goes into the page as JSON whose `<`, `>`, `&` and non-ASCII characters are
written as `\\uXXXX`, so that no string of the user's can end the script or start a tag. A content security policy
allows the page's own script alone, by its hash, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from clickharvest import __version__
from clickharvest.click_models.affine.fitted import AffineModel
from clickharvest.click_models.affine.levels import AffineLevels
from clickharvest.click_models.average import curve_of
from clickharvest.click_models.base import FittedModel
from clickharvest.click_models.browsing.fitted import BrowsingPropensities
from clickharvest.click_models.reading import ReadingPropensities
from clickharvest.files import atomic_path
from clickharvest.report.content import make_content
from clickharvest.report.log_summary import LogSummary
from clickharvest.report.sections import affine_view, browsing_view
from clickharvest.words import count

SCRIPTS = ("program.js", "model.js", "draw.js", "figures.js", "page.js")
TITLES = {
    "examination": "How far down do people look?",
    "browsing": "What does a click above change?",
    "reading": "What does a click above change?",
    "affine": "Do people trust the top?",
}
"""Titles of pages, by click model."""


def write_report(
    path: str | Path,
    model: FittedModel,
    summary: LogSummary | None = None,
    *,
    title: str = "",
    level: float = 0.95,
    name: str = "model.safetensors",
    made: str = "",
    commands: Mapping[str, str] | None = None,
) -> int:
    """Write the report of a model to one HTML file, whole or not at all, and return its size in bytes.

    Args:
        path: the file to write.
        model: the model, of whichever click model; of others than examination the curve is the average one.
        summary: what its log says, see `summarise_log`; without it, the checks that the model keeps are reported.
        title: the page's title; by default that of its click model, or of the outcome of a click.
        level: level of the intervals.
        name: the model's file name.
        made: when the report was made; left out by default, so that equal input gives equal bytes.
        commands: the commands that make the report and the weights again, by the names `report` and `weigh`; how the
            model was made is its own to tell.

    Raises:
        InputError: the file cannot be written, or the level is not between 0 and 1.
    """
    view, data = make_content(curve_of(model), summary, level=level, name=name, commands=commands or {})
    view |= {"kind": model.kind, "states": None, "lines": None, "made": made}
    after_click = f"{view['outcome']} after a click, by position" if view["outcome"] else None
    view["title"] = title or after_click or TITLES[model.kind]
    if isinstance(model, AffineModel | AffineLevels):
        view["lines"] = affine_view(model, level=level)
    elif isinstance(model, BrowsingPropensities | ReadingPropensities):
        view["states"] = browsing_view(model, level=level)
    page = render_page(view, data).encode("utf-8", "replace")
    with atomic_path(Path(path)) as partial:
        partial.write_bytes(page)
    return len(page)


def render_page(view: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the HTML of a view and its data."""
    from jinja2 import Environment, StrictUndefined

    script = "(() => {\n" + "\n".join(_read(name) for name in SCRIPTS) + "\n})();"
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["count"] = count
    return environment.from_string(_read("template.html")).render(
        **view,
        version=__version__,
        style=_read("style.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        data=script_json(data),
    )


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element.

    Example:
        >>> script_json("</script>&\\u2028")
        '"\\\\u003c/script\\\\u003e\\\\u0026\\\\u2028"'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _read(name: str) -> str:
    return files("clickharvest.report").joinpath("assets", name).read_text(encoding="utf-8")
