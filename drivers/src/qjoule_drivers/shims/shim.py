# SPDX-License-Identifier: Apache-2.0
"""Shared by all shims: replacing a driver's methods, and putting them back.

A driver's connection carries ``_qjoule_peer``, which describes the connection so that the recorder
can find the server's end, and ``_qjoule_call``, the call under way.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import keys_in_statements
from qjoule_drivers.ring import ERROR, OK

_ABSENT = object()
WRAPPER = "_qjoule_original"  #: attribute of a wrapper that holds the original

Wrap = Callable[[Any], Any]
#: Module, class in it ("" for the module itself), attribute, and the function that makes the
#: wrapper from the original.
Site = tuple[str, str, str, Wrap]
#: Module, class, attribute, and the class's default value. It stays after unwrapping, for live
#: objects.
Default = tuple[str, str, str, object]


class OutOfRangeWarning(UserWarning):
    """This version of the driver was not tested, so it is not wrapped."""


class Patches:
    """Attributes that were replaced by wrappers."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._replaced)

    def replace(self, module: str, owner: str, attribute: str, wrap: Wrap) -> None:
        """Raises AttributeError or KeyError if the attribute does not exist."""
        holder = _holder(module, owner)
        replaced = vars(holder).get(attribute, _ABSENT)
        original = getattr(holder, attribute)
        wrapper = wrap(original)
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(wrapper, name, getattr(original, name, None))
        setattr(wrapper, WRAPPER, original)
        # Makes introspection show the original's signature.
        function: Any = getattr(wrapper, "__func__", wrapper)
        function.__wrapped__ = getattr(original, "__func__", original)
        setattr(holder, attribute, wrapper)
        self._replaced.append((holder, attribute, replaced, wrapper))

    def replace_existing(self, sites: tuple[Site, ...]) -> None:
        """Replaces these sites, skipping any that do not exist."""
        for site in sites:
            with suppress(AttributeError, KeyError):
                self.replace(*site)

    def restore(self) -> None:
        """Puts the originals back, except where others have wrapped the wrapper since."""
        while self._replaced:
            holder, attribute, replaced, wrapper = self._replaced.pop()
            if vars(holder).get(attribute) is not wrapper:
                continue
            if replaced is _ABSENT:
                delattr(holder, attribute)
            else:
                setattr(holder, attribute, replaced)


@dataclass
class Shim:
    """The wrappers of one driver."""

    name: str  #: as in ``import name``
    trigger: str  #: the module whose import triggers the wrapping
    distribution: str  #: as on the package index
    tested: tuple[str, str]  #: first tested version, and first version beyond
    modules: tuple[str, ...]  #: imported before anything is wrapped
    sites: tuple[Site, ...]
    #: Where calls end. Wrapped only while a recorder wants each call.
    ends: tuple[Site, ...] = ()
    optional: tuple[Site, ...] = ()  #: skipped if they do not exist
    in_statements: tuple[Site, ...] = ()  #: optional too; wrapped only if tags go into statements
    defaults: tuple[Default, ...] = ()
    active: bool = False
    tell: Callable[[str], None] | None = None  #: called with messages about the wrapping
    _wrapped: Patches = field(default_factory=Patches)
    _wrapped_ends: Patches = field(default_factory=Patches)
    _wrapped_statements: Patches = field(default_factory=Patches)
    _warned: bool = False

    def install(self) -> bool:
        """Wraps the imported driver, completely or not at all. Returns whether it is wrapped now.
        Never raises.
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
        """Wraps exactly the optional sites wanted now: each wrapper adds a cost to every call."""
        for sites, patches, wanted in (
            (self.ends, self._wrapped_ends, wants_ends),
            (self.in_statements, self._wrapped_statements, bool(keys_in_statements)),
        ):
            if wanted and not patches:
                patches.replace_existing(sites)
            elif not wanted:
                patches.restore()

    def uninstall(self) -> None:
        """Puts the originals back. A wrapper that others have wrapped stays, and does nothing."""
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
        self._wrapped.replace_existing(self.optional)

    def version(self) -> str | None:
        """Version of the installed driver; None if it is not installed."""
        try:
            return importlib.metadata.version(self.distribution)
        except Exception:
            module = sys.modules.get(self.name)
            version = getattr(module, "__version__", None)
            return version if isinstance(version, str) else None

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

    def _warn(self, line: str) -> None:
        if not self._warned:
            self._warned = True
            self._tell(line)
            # The application may turn warnings into errors, but must still start.
            with suppress(OutOfRangeWarning):
                warnings.warn(f"qjoule-drivers: {line}", OutOfRangeWarning, stacklevel=4)

    def _tell(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)


def _holder(module: str, owner: str) -> Any:
    holder = sys.modules[module]
    return getattr(holder, owner) if owner else holder


def numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: "4.9.1rc2" is (4, 9, 1). Without any, (0,)."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version.strip())
    return tuple(int(number) for number in match[0].split(".")) if match else (0,)


_INET = (socket.AF_INET, socket.AF_INET6)


def find_peer(connection: Any, describe: Callable[[Any], Peer]) -> Peer | None:
    """The peer of a connection at its first call, then stored as ``_qjoule_peer``. None if it
    cannot be determined. Never raises.
    """
    try:
        connection._qjoule_peer = peer = describe(connection)
    except Exception:
        channel.failed(call_is_lost=True)
        return None
    return peer


def end(connection: Any, status: int) -> None:
    """Ends the connection's call, if one is under way. Never raises."""
    call, connection._qjoule_call = connection._qjoule_call, 0
    channel.end(connection._qjoule_peer, call, status)


def ending(original: Any) -> Any:
    """Wraps a connection's method that returns when its call's result has arrived."""

    def read(self: Any, *args: Any) -> Any:
        try:
            result = original(self, *args)
        except BaseException:
            end(self, ERROR)
            raise
        end(self, OK)
        return result

    return read


def peer_of(sock: Any, system: str, session: int | None = None) -> Peer:
    """The peer of a connected socket, plain or TLS. Raises OSError if it is not connected.

    ``session`` is the number that the server gave to the connection, if known.
    """
    of: dict[str, object] = {"db.system.name": system}
    if sock.family == socket.AF_UNIX:
        path = sock.getpeername()
        of["network.transport"] = "unix"
        of["client.inode"] = os.fstat(sock.fileno()).st_ino
        of["server.address"] = path if isinstance(path, str) else os.fsdecode(path)
    elif sock.family in _INET:
        local, peer = sock.getsockname(), sock.getpeername()
        of["network.transport"] = "tcp"
        of["network.local.address"], of["network.local.port"] = local[:2]
        of["server.address"], of["server.port"] = peer[:2]
    if session:
        of["server.session"] = session
    return Peer(of)


def peer_of_descriptor(fd: int, system: str, session: int | None = None) -> Peer:
    """Like :func:`peer_of`, for a connection whose socket belongs to a C library. Raises
    OSError.
    """
    borrowed = socket.socket(fileno=fd)
    try:
        return peer_of(borrowed, system, session)
    finally:
        borrowed.detach()
