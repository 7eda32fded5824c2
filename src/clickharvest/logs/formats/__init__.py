"""Known exports of click logs. This folder is the list of them: one module each, named like the format.

A module defines one function, marked with `log_format`, from what the user names to a `ClickLog`; the first line of its
docstring says what the format is.

    @log_format("shop")
    def read_shop(source, *, ranker=None, context=(), position_base=1, engine=None, sessions): ...

Its first parameter is the log, the others are keywords. `context`, `position_base` and `engine` are always given. A
role of `read_log`, such as `ranker`, or `table` is one that the user may name; the roles that are missing are fixed by
the format. What remains are the format's own inputs, texts such as the name of a second file, which are needed unless
they have a default. Names are listed without importing Ibis.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from clickharvest.errors import InputError
from clickharvest.registry import Registry

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog

Reader = TypeVar("Reader", bound="Callable[..., ClickLog]")

FORMATS: Registry[Callable[..., ClickLog]] = Registry("log format", __name__)
"""The functions that read the formats, by name; a module is imported when its format is looked up."""


def log_format(name: str) -> Callable[[Reader], Reader]:
    """Mark the function that reads a format, and add it to `FORMATS`."""

    def mark(reader: Reader) -> Reader:
        FORMATS.add(name, reader)
        return reader

    return mark


def read_format(
    name: str, source: Any, *, columns: Mapping[str, str], inputs: Mapping[str, str], **always: Any
) -> ClickLog:
    """Read a log of a known format.

    Args:
        name: the format, one of `FORMATS`.
        source: the log, anything `open_source` takes.
        columns: columns that the user named, by role, and `table`.
        inputs: the format's own inputs.
        always: `context`, `position_base` and `engine`, as `read_log` takes them.

    Raises:
        InputError: there is no such format, it fixes a column that was named, lacks an input or has no such input; or
            the log cannot be read.

    Example:
        >>> import pyarrow as pa
        >>> read_format("ubi", pa.table({"query_id": ["1"]}), columns={"ranker": "arm"}, inputs={})
        Traceback (most recent call last):
        clickharvest.errors.InputError: the format ubi needs queries: name it with --inputs queries=FILE
    """
    reader = FORMATS.find(name)
    from clickharvest.logs.click_log import ROLES  # loads Ibis, as the reader did

    _, *parameters = inspect.signature(reader).parameters.values()
    takes = [parameter.name for parameter in parameters]
    if fixed := [column for column in columns if column not in takes]:
        raise InputError(f"--{fixed[0].replace('_', '-')} does not go with the format {name}: it fixes its columns")
    own = [parameter for parameter in parameters if parameter.name not in (*ROLES, "table", *always)]
    if foreign := [given for given in inputs if given not in [parameter.name for parameter in own]]:
        known = ", ".join(parameter.name for parameter in own) or "none"
        raise InputError(f"the format {name} has no input {foreign[0]!r}: expected {known}")
    needed = [parameter.name for parameter in own if parameter.default is parameter.empty]
    if missing := [own_name for own_name in needed if own_name not in inputs]:
        raise InputError(f"the format {name} needs {missing[0]}: name it with --inputs {missing[0]}=FILE")
    return reader(source, **columns, **inputs, **always)
