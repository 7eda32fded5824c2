"""Options are data: how they are declared, which values they take, how values are read, and how Typer learns of them.

An option is a field of a dataclass, such as `query: str | None = option("Query a result was shown for.", "COLUMN")`, or
stands in `Annotated` where one command has it. A command takes a parameter of one of the dataclasses; `with_options`
shows the fields to Typer as if they were the command's own.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from functools import cache, wraps
from importlib import import_module
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from clickharvest.commands.output import tell
from clickharvest.errors import InputError

Check = Callable[[Any], Any]
Names = Iterable[str] | Callable[[], Iterable[str]]

LARGEST = 2**31 - 1
"""Of positions, and of seeds that every library takes."""
LARGEST_SHARE = 1e15
"""Of traffic: beyond it, the sum of a few shares would not be exact."""
MOST_LISTED = 10_000
"""Positions that a list may name."""


def option(
    help: str,
    metavar: str | None = None,
    default: Any = None,
    *,
    flags: tuple[str, ...] = (),
    panel: str | None = None,
    rare: bool = False,
    check: Callable[..., Any] | None = None,
    names: Names | None = None,
    eager: bool = False,
) -> Any:
    """Return the field of a dataclass that is an option of the command line.

    Args:
        help: what it says or asks for.
        metavar: what stands for its value in the help; by default the type.
        default: the value where it is not given.
        flags: its spellings; by default the field's name, with hyphens.
        panel: the section of the help.
        rare: whether --help-all shows it and --help does not, unless the command's description or examples name it.
        check: called with the value, to refuse it.
        names: the values there are, or a function that returns them, see `registered`.
        eager: whether its check comes before all others.
    """
    about = {"help": help, "metavar": metavar, "rich_help_panel": panel, "hidden": rare, "callback": check}
    return dataclasses.field(
        default=default, metadata=about | {"is_eager": eager, "flags": flags, "names": names, "is_option": True}
    )


def argument(help: str, metavar: str | None = None, default: Any = MISSING, *, names: Names | None = None) -> Any:
    """Return the field of a dataclass that is an argument of the command line, required unless it has a default."""
    return dataclasses.field(
        default=default, metadata={"help": help, "metavar": metavar, "names": names, "is_option": False}
    )


def registered(module: str, registry: str, *others: str) -> Callable[[], list[str]]:
    """Return a function that lists the names of a registry, which is imported when the command is built.

    Example:
        >>> registered("model.curves.registry", "CURVES", "auto")()[:3]
        ['auto', 'constant', 'index']
    """
    return lambda: [*others, *getattr(import_module(f"clickharvest.{module}"), registry)]


def whole(least: int, most: int) -> Check:
    """Return what checks that an option is an integer in [least, most], if it is given.

    Example:
        >>> whole(1, 9)(10)
        Traceback (most recent call last):
        typer._click.exceptions.BadParameter: found 10; expected a whole number from 1 to 9
    """
    return _checking(lambda value: least <= value <= most, f"a whole number from {least:,} to {most:,}")


def between(least: float, most: float, *, ends: bool = True) -> Check:
    """Return what checks that an option is a number in [least, most], if it is given; without ends, inside of it.

    Typer's own ranges let `nan` pass, which is neither too small nor too large.

    Example:
        >>> between(0, 1, ends=False)(float("nan"))
        Traceback (most recent call last):
        typer._click.exceptions.BadParameter: found nan; expected a number between 0 and 1
    """
    if ends:
        return _checking(lambda value: least <= value <= most, f"a number from {least:g} to {most:g}")
    return _checking(lambda value: least < value < most, f"a number between {least:g} and {most:g}")


def _checking(fits: Callable[[Any], bool], expected: str) -> Check:
    def check(value: Any) -> Any:
        if value is not None and not fits(value):
            raise typer.BadParameter(f"found {str(value)[:30]}; expected {expected}")
        return value

    return check


SEED = whole(0, LARGEST)
POSITION = whole(1, LARGEST)


def position_or_place(value: str) -> str:
    """Return the name of a place as it is; a number must be that of a position.

    Example:
        >>> position_or_place("1,2"), position_or_place("3")
        ('1,2', '3')
        >>> position_or_place("0")
        Traceback (most recent call last):
        typer._click.exceptions.BadParameter: found 0; expected a whole number from 1 to 2,147,483,647
    """
    if value.removeprefix("-").isdecimal():
        POSITION(int(value))
    return value


def one_of(names: list[str], argument: str | None = None) -> Callable[[str], str]:
    """Return a function that returns one of the names as it is, and refuses others; an argument needs its name."""

    def parse(value: str) -> str:
        if value not in names:
            raise typer.BadParameter(
                f"{value!r} is not one of {', '.join(map(repr, names))}.", param_hint=argument and repr(argument)
            )
        return value

    return parse


class _Parameter(NamedTuple):
    """A parameter of a command: its name, its type, what `option` or `argument` say of it, and its default."""

    name: str
    type: Any
    about: Mapping[str, Any]
    default: Any

    def for_typer(self, described: set[str]) -> inspect.Parameter:
        """Return it as Typer reads it; a rare option is shown where the command's description names it."""
        about, annotation = dict(self.about), self.type
        default = inspect.Parameter.empty if self.default is MISSING else self.default
        if about:
            about["show_default"] = default not in (None, "", inspect.Parameter.empty)
            if (names := about.pop("names")) is not None:
                known = list(names() if callable(names) else names)
                of = "" if about["is_option"] else f"{self.name} "
                about |= {"parser": one_of(known, of.strip() or None), "metavar": f"{of}<{'|'.join(known)}>"}
            if about.pop("is_option"):
                flags = about.pop("flags") or (f"--{self.name.replace('_', '-')}",)
                about["hidden"] = about["hidden"] and described.isdisjoint(flags)
                annotation = Annotated[self.type, typer.Option(*flags, **about)]
            else:
                annotation = Annotated[self.type, typer.Argument(**about)]
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@cache
def _fields(options: Any) -> list[_Parameter]:
    """Return what the fields of an option class declare; to read annotations takes milliseconds."""
    hints = get_type_hints(options)
    return [_Parameter(one.name, hints[one.name], one.metadata, one.default) for one in dataclasses.fields(options)]


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for one in context.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        tell(context.get_help())
        raise typer.Exit


HELP_ALL = option("Show all options and exit.", default=False, check=_show_all, eager=True)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Typer, with one parameter for each field of its option classes."""
    signature = inspect.signature(command).parameters
    groups: dict[str, Any] = {}
    parameters: list[_Parameter] = []
    for name, hint in get_type_hints(command, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            groups[name] = hint
            parameters += _fields(groups[name])
        elif name in signature:
            kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            parameters.append(_Parameter(name, kind, about[0].metadata if about else {}, signature[name].default))
    described = set(re.findall(r"--[a-z-]+", command.__doc__ or ""))
    if any(one.about.get("hidden") for one in parameters):
        parameters.append(_Parameter("help_all", bool, HELP_ALL.metadata, False))
    for_typer = [one.for_typer(described) for one in parameters]

    @wraps(command)
    def flat_command(**values: Any) -> None:
        values.pop("help_all", None)
        grouped = {
            name: options(**{field.name: values.pop(field.name) for field in dataclasses.fields(options)})
            for name, options in groups.items()
        }
        command(**values, **grouped)

    flat_command.__signature__ = inspect.Signature(for_typer)  # type: ignore[attr-defined]
    flat_command.__annotations__ = {parameter.name: parameter.annotation for parameter in for_typer}
    return flat_command


def split_list(texts: list[str] | None) -> tuple[str, ...]:
    """Return the words of an option that takes A,B,… and may be given several times."""
    return tuple(part.strip() for text in texts or () for part in text.split(",") if part.strip())


def parse_numbers(text: str, option: str, expected: str) -> list[float]:
    """Return the numbers of a list.

    Example:
        >>> parse_numbers("0.3,0.12", "--click-rates", "numbers, such as 0.3,0.12,0.08")
        [0.3, 0.12]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} {text}: expected {expected}") from None


def parse_words(text: str, option: str) -> dict[str, str]:
    """Return the words of `a=x,b=y`; a comma that no name follows is part of a word.

    Example:
        >>> parse_words("a=my,file.csv, b=2", "--inputs")
        {'a': 'my,file.csv', 'b': '2'}
    """
    words: dict[str, str] = {}
    for part in re.split(r",(?=\s*[^,=]+=)", text):
        name, _, value = (word.strip() for word in part.partition("="))
        if not name or not value or name in words:
            raise InputError(f"{option} {text}: expected name=value,name=value,… with every name once")
        words[name] = value
    return words


def parse_shares(text: str, option: str) -> dict[str, float]:
    """Return the numbers of `a=1,b=2`.

    Example:
        >>> parse_shares("a=80, b=20", "--traffic")
        {'a': 80.0, 'b': 20.0}
    """
    shares = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        try:
            if not separator or not name.strip() or name.strip() in shares or not 0 <= float(value) <= LARGEST_SHARE:
                raise ValueError
            shares[name.strip()] = float(value)
        except ValueError:
            raise InputError(
                f"{option} {text}: expected name=number,name=number,… with every name once and numbers of 0 or more"
            ) from None
    return shares


def parse_share(text: str, option: str) -> float:
    """Return a share as a number, from a fraction or a percentage.

    Example:
        >>> parse_share("30%", "--tolerance"), parse_share("0.25", "--tolerance")
        (0.3, 0.25)
    """
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise InputError(f"{option} {text}: expected a share such as 30% or 0.3, above 0 and at most 1")
    return share


def parse_positions(text: str, option: str) -> tuple[int, ...]:
    """Return the positions of a list of numbers and ranges.

    Example:
        >>> parse_positions("1-3,7", "--positions")
        (1, 2, 3, 7)
    """
    positions: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        ends = (first, last or first)
        if not all(end.strip().isascii() and end.strip().isdigit() and len(end) < 10 for end in ends):
            raise InputError(f"{option} {text}: expected positions such as 1-10 or 1,3,5")
        low, high = map(int, ends)
        if not 1 <= low <= high < low + MOST_LISTED:
            raise InputError(f"{option} {text}: expected positions from 1 on, the smaller first, such as 1-10")
        positions.update(range(low, high + 1))
    return tuple(sorted(positions))
