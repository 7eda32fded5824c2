"""The numbers that options take: bounds, so that no number asks for all of the memory or breaks a library.

Typer's own ranges let `nan` pass, which is neither too small nor too large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

SEED = (0, 2**31 - 1)
"""Seeds that every library takes."""
POSITION = (1, 2**31 - 1)
MOST_RANKS = 1_000
"""Ranks of a swap: each is a part of the query that harvests."""


def whole(least: int, most: int) -> Callable[[Any], Any]:
    """Return what checks that an option is an integer in [least, most], if it is given.

    Example:
        >>> whole(1, 9)(10)
        Traceback (most recent call last):
        typer._click.exceptions.BadParameter: found 10; expected a whole number from 1 to 9
    """
    return _checking(lambda value: least <= value <= most, f"a whole number from {least:,} to {most:,}")


def between(least: float, most: float, *, ends: bool = True) -> Callable[[Any], Any]:
    """Return what checks that an option is a number in [least, most], if it is given; without ends, inside of it.

    Example:
        >>> between(0, 1, ends=False)(float("nan"))
        Traceback (most recent call last):
        typer._click.exceptions.BadParameter: found nan; expected a number between 0 and 1
    """
    if ends:
        return _checking(lambda value: least <= value <= most, f"a number from {least:g} to {most:g}")
    return _checking(lambda value: least < value < most, f"a number between {least:g} and {most:g}")


def position_or_place(value: str) -> str:
    """Return what may name a place as it is; a number must be one of a position.

    Example:
        >>> position_or_place("1,2"), position_or_place("3")
        ('1,2', '3')
        >>> position_or_place("0")
        Traceback (most recent call last):
        typer._click.exceptions.BadParameter: found 0; expected a whole number from 1 to 2,147,483,647
    """
    if value.removeprefix("-").isdecimal():
        whole(*POSITION)(int(value))
    return value


def _checking(fits: Callable[[Any], bool], expected: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not None and not fits(value):
            raise typer.BadParameter(f"found {str(value)[:30]}; expected {expected}")
        return value

    return check
