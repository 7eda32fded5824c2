"""Known exports of click logs. This folder is the list of them: one module each, named like the format.

A module defines one function, marked with `log_format`, from what the user names to a `ClickLog`; the first line of its
docstring says what the format is.

    @log_format("shop")
    def read_shop(source, *, ranker=None, context=(), position_base=None, engine=None, sessions): ...

Its first parameter is the log, the others are keywords. `context`, `position_base` (None unless the user says) and
`engine` are always given. A parameter called like a role of `read_log`, such as `ranker`, or `table` lets the user
name that column; the format fixes the other roles. Further parameters are the format's own inputs, texts such as the
name of a second file, required unless they have a default. A function that passes `**options` on to `ExportOptions`
names in the mark which of them it `takes`. The mark may have a second argument, a function of one event (a `dict`)
that recognises an event of the format, so that a message about a wrong `--format` can suggest the right one. Names are
listed without importing Ibis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from clickharvest.registry import Registry

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

Reader = TypeVar("Reader", bound="Callable[..., ClickLog]")

FORMATS: Registry[Callable[..., ClickLog]] = Registry("log format", __name__)
"""The functions that read the formats, by name; a module is imported when its format is looked up."""


LOOKS: dict[str, Callable[[dict[str, Any]], bool]] = {}
"""Functions that recognise an event of a format, by the name of the format; only of imported formats."""


TAKES: dict[str, tuple[str, ...]] = {}
"""Options that the functions take by `**options`, beside `context` and `position_base`, by the name of the format."""


def log_format(
    name: str, looks: Callable[[dict[str, Any]], bool] | None = None, *, takes: tuple[str, ...] = ()
) -> Callable[[Reader], Reader]:
    """Add the function that reads a format to `FORMATS`.

    Args:
        name: the name of the format.
        looks: recognises an event of the format.
        takes: options among `query`, `ranker` and `within` that the function passes on to `ExportOptions`.
    """

    def mark(reader: Reader) -> Reader:
        FORMATS.add(name, reader)
        TAKES[name] = takes
        if looks is not None:
            LOOKS[name] = looks
        return reader

    return mark
