# SPDX-License-Identifier: Apache-2.0
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

from qjoule_drivers.channel import channel
from qjoule_drivers.comments import keys_in_statements

_ABSENT = object()
WRAPPER = "_qjoule_original"  #: attribute of a wrapper: what it wraps

Wrap = Callable[[Any], Any]
#: Module, class in it ("" for the module itself), attribute, and what makes the wrapper of the
#: original.
Site = tuple[str, str, str, Wrap]
#: Module, class and attribute that objects have by default; it stays, for objects that live on.
Default = tuple[str, str, str, object]


class OutOfRangeWarning(UserWarning):
    """A driver's version was not tested; it is left alone."""


class Patches:
    """Attributes that were replaced by wrappers of them."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._replaced)

    def replace(self, module: str, owner: str, attribute: str, wrap: Wrap) -> None:
        """Raises AttributeError, KeyError if there is no such thing."""
        holder = _holder(module, owner)
        own = vars(holder).get(attribute, _ABSENT)
        original = getattr(holder, attribute)
        wrapper = wrap(original)
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapper, name, getattr(original, name, None))
        setattr(wrapper, WRAPPER, original)
        # Whoever asks for the signature gets the original's.
        function: Any = getattr(wrapper, "__func__", wrapper)
        function.__wrapped__ = getattr(original, "__func__", original)
        setattr(holder, attribute, wrapper)
        self._replaced.append((holder, attribute, own, wrapper))

    def replace_those_there(self, sites: tuple[Site, ...]) -> None:
        """Skips what does not exist."""
        for site in sites:
            with suppress(AttributeError, KeyError):
                self.replace(*site)

    def restore(self) -> None:
        """Puts the originals back, except where others have wrapped the wrapper since."""
        while self._replaced:
            holder, attribute, own, wrapper = self._replaced.pop()
            if vars(holder).get(attribute) is not wrapper:
                continue
            if own is _ABSENT:
                delattr(holder, attribute)
            else:
                setattr(holder, attribute, own)


@dataclass
class Shim:
    """The wrappers of one driver."""

    name: str  #: as in ``import name``
    trigger: str  #: the module whose import it waits for
    distribution: str  #: as on the package index
    tested: tuple[str, str]  #: from this version, to before that one
    modules: tuple[str, ...]  #: imported before anything is wrapped
    sites: tuple[Site, ...]
    #: Where calls end; wrapped while there is a recorder that wants to know of each call.
    ends: tuple[Site, ...] = ()
    optional: tuple[Site, ...] = ()  #: skipped where they do not exist
    in_statements: tuple[Site, ...] = ()  #: likewise, and wrapped only if tags go into statements
    defaults: tuple[Default, ...] = ()
    active: bool = False
    tell: Callable[[str], None] | None = None  #: hears what became of the driver
    _wrapped: Patches = field(default_factory=Patches)
    _wrapped_ends: Patches = field(default_factory=Patches)
    _wrapped_statements: Patches = field(default_factory=Patches)
    _warned: bool = False

    def install(self) -> bool:
        """Wraps the driver, which is imported; true if it is wrapped now. Never raises, and does
        all of it or nothing.
        """
        if not self.active:
            if not self._is_tested():
                return False
            try:
                self._wrap()
            except Exception as error:
                self._wrapped.restore()
                self._warn(f"{self.name} is left alone: {type(error).__name__}: {error}")
                return False
            self.active = True
            channel.followers.append(self.follow)
            self._tell(f"{self.name} {self.version()} wrapped")
        self.follow(channel.wants_ends)
        return True

    def follow(self, wants_ends: bool) -> None:
        """Wraps what is wanted now besides, and no more: each wrapper costs every call."""
        for sites, patches, wanted in (
            (self.ends, self._wrapped_ends, wants_ends),
            (self.in_statements, self._wrapped_statements, bool(keys_in_statements)),
        ):
            if wanted and not patches:
                patches.replace_those_there(sites)
            elif not wanted:
                patches.restore()

    def uninstall(self) -> None:
        """Puts the originals back; a wrapper that others have wrapped since stays, and does
        nothing.
        """
        self.active = False
        with suppress(ValueError):
            channel.followers.remove(self.follow)
        for patches in (self._wrapped_ends, self._wrapped_statements, self._wrapped):
            patches.restore()

    def _wrap(self) -> None:
        for module in self.modules:
            importlib.import_module(module)
        for module, owner, attribute, value in self.defaults:
            setattr(_holder(module, owner), attribute, value)
        for module, owner, attribute, _ in self.ends:
            getattr(_holder(module, owner), attribute)
        for site in self.sites:
            self._wrapped.replace(*site)
        self._wrapped.replace_those_there(self.optional)

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


def _holder(module: str, owner: str) -> Any:
    found = sys.modules[module]
    return getattr(found, owner) if owner else found


def numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "4.9.1rc2" is (4, 9, 1); of none, (0,)."""
    found = re.match(r"[0-9]+(?:\.[0-9]+)*", version.strip())
    return tuple(int(number) for number in found[0].split(".")) if found else (0,)
