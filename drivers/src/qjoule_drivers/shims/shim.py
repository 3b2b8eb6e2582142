"""What the shims have in common: replacing a driver's methods, and putting them back."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_ABSENT = object()
_WRAPPER = "_qjoule_original"

Wrap = Callable[[Any], Any]
#: Module, class in it ("" for the module itself), attribute, and what makes the wrapper of the
#: original.
Site = tuple[str, str, str, Wrap]
#: Module, class and attribute that objects have by default; it stays, for objects that live on.
Default = tuple[str, str, str, object]


class OutOfRangeWarning(UserWarning):
    """A driver's version was not tested; it is left alone."""


@dataclass
class Shim:
    """The wrappers of one driver."""

    name: str  #: as in ``import name``
    trigger: str  #: the module whose import it waits for
    distribution: str  #: as on the package index
    tested: tuple[str, str]  #: from this version, to before that one
    modules: tuple[str, ...]  #: imported before anything is wrapped
    sites: tuple[Site, ...]
    optional: tuple[Site, ...] = ()  #: skipped where they do not exist
    defaults: tuple[Default, ...] = ()
    active: bool = False
    tell: Callable[[str], None] | None = None  #: hears what became of the driver
    _replaced: list[tuple[Any, str, Any, Any]] = field(default_factory=list)
    _warned: bool = False

    def install(self) -> bool:
        """Wraps the driver, which is imported; true if it is wrapped now. Never raises, and does
        all of it or nothing.
        """
        if self.active:
            return True
        if not self._is_tested():
            return False
        try:
            for module in self.modules:
                importlib.import_module(module)
            for module, owner, attribute, value in self.defaults:
                setattr(_holder(module, owner), attribute, value)
            for site in self.sites:
                self._replace(*site)
            for site in self.optional:
                try:
                    self._replace(*site)
                except (AttributeError, KeyError):
                    continue
        except Exception as error:
            self._restore()
            self._warn(f"{self.name} is left alone: {type(error).__name__}: {error}")
            return False
        self.active = True
        self._tell(f"{self.name} {self.version()} wrapped")
        return True

    def uninstall(self) -> None:
        """Puts the originals back; a wrapper that others have wrapped since stays, and does
        nothing.
        """
        self.active = False
        self._restore()

    def version(self) -> str | None:
        """Version of the driver that is installed; None without."""
        try:
            return importlib.metadata.version(self.distribution)
        except Exception:
            module = sys.modules.get(self.name)
            found = getattr(module, "__version__", None)
            return found if isinstance(found, str) else None

    def _is_tested(self) -> bool:
        version = self.version()
        low, high = self.tested
        if version is not None and numbers(low) <= numbers(version) < numbers(high):
            return True
        self._warn(
            f"{self.name} {version or 'of unknown version'} is left alone: "
            f"tested from {low} to before {high}"
        )
        return False

    def _warn(self, words: str) -> None:
        if not self._warned:
            self._warned = True
            self._tell(words)
            # Warnings may be errors; an application must start all the same.
            with suppress(OutOfRangeWarning):
                warnings.warn(f"qjoule-drivers: {words}", OutOfRangeWarning, stacklevel=4)

    def _tell(self, words: str) -> None:
        if self.tell is not None:
            self.tell(words)

    def _replace(self, module: str, owner: str, attribute: str, wrap: Wrap) -> None:
        holder = _holder(module, owner)
        own = vars(holder).get(attribute, _ABSENT)
        original = getattr(holder, attribute)
        wrapper = wrap(original)
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapper, name, getattr(original, name, None))
        setattr(wrapper, _WRAPPER, original)
        setattr(holder, attribute, wrapper)
        self._replaced.append((holder, attribute, own, wrapper))

    def _restore(self) -> None:
        for holder, attribute, own, wrapper in reversed(self._replaced):
            if vars(holder).get(attribute) is not wrapper:
                continue
            if own is _ABSENT:
                delattr(holder, attribute)
            else:
                setattr(holder, attribute, own)
        self._replaced.clear()


def _holder(module: str, owner: str) -> Any:
    found = sys.modules[module]
    return getattr(found, owner) if owner else found


def numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "4.9.1rc2" is (4, 9, 1); of none, (0,)."""
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version.strip())
    return tuple(int(number) for number in found[0].split(".")) if found else (0,)
