"""Registries: functions and classes by name, which register where they are defined and are imported when looked up."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

from clickharvest.errors import InputError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by name: those that are registered, and those that modules of a folder define.

    A module in the folder, named like the thing it defines, is listed without being imported.

    Args:
        kind: the kind of thing, for messages: `"curve"`.
        folder: the package whose modules define one thing each; None where all are defined elsewhere.
        besides: modules of the folder that define none.

    Attributes:
        things: the registered things.

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
        """Register a thing, in place of an earlier one from the same place, such as a notebook cell that is run again.

        Raises:
            InputError: another thing has the name.
        """
        other = self.things.get(name, thing)
        if _place(other) != _place(thing):
            raise InputError(f"the {self.kind} {name!r} is {'.'.join(_place(other))} already: choose another name")
        self.things[name] = thing

    def find(self, name: str) -> T:
        """Return a thing, or raise `InputError` with the names of all."""
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
        modules = (module.name for module in pkgutil.iter_modules(sys.modules[self.folder].__path__))
        return [name for name in modules if name not in self.besides]


def _place(thing: object) -> tuple[str, str]:
    """Return the module and the name that a class or function was defined under."""
    return getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
