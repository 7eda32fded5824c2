"""Registries: things by name, which add themselves where they are defined and are imported when they are looked up."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

from clickharvest.errors import InputError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name: those that added themselves, and those that modules of a folder will.

    The folder is the list: a module in it, called like the thing it defines, is listed without being imported.

    Args:
        kind: what the things are, for messages: `"curve"`.
        folder: the package whose modules define them, one each; None where all are defined elsewhere.
        besides: modules of the folder that define none.

    Attributes:
        things: those that are defined by now.

    Example:
        >>> fruits: Registry[str] = Registry("fruit")
        >>> fruits.add("apple", "red")
        >>> list(fruits), fruits["apple"]
        (['apple'], 'red')
        >>> fruits.find("pear")
        Traceback (most recent call last):
        clickharvest.errors.InputError: no fruit 'pear': expected one of apple
    """

    def __init__(self, kind: str, folder: str | None = None, besides: tuple[str, ...] = ()) -> None:
        self.kind, self.folder, self.besides = kind, folder, besides
        self.things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> None:
        """Add a thing; what was defined in the same place before (a notebook's cell, run again) gives way.

        Raises:
            InputError: another thing has the name.
        """
        other = self.things.get(name, thing)
        if _place(other) != _place(thing):
            raise InputError(f"the {self.kind} {name!r} is {'.'.join(_place(other))} already: choose another name")
        self.things[name] = thing

    def find(self, name: str) -> T:
        """Return a thing, or tell which there are."""
        if name not in self:
            raise InputError(f"no {self.kind} {name!r}: expected one of {', '.join(self)}")
        return self[name]

    def __getitem__(self, name: str) -> T:
        if name not in self.things and name in self._modules():
            import_module(f"{self.folder}.{name}")
        return self.things[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self.things or name in self._modules())

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._modules(), *self.things]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _modules(self) -> list[str]:
        if self.folder is None:
            return []
        found = (module.name for module in pkgutil.iter_modules(sys.modules[self.folder].__path__))
        return [name for name in found if name not in self.besides]


def _place(thing: object) -> tuple[str, str]:
    """Return the module and the name that a class or function was defined under."""
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
