"""Examples of docstrings as code: Markdown would take the `>>>` of a doctest for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^([ \t]*)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts fences around the doctests of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests of one object."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"
