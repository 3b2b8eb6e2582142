# SPDX-License-Identifier: Apache-2.0
"""Servers of a study's own: started in a temporary directory, on loopback, and surely ended.

    with start(name, {setting: value}) as target:
        ...

A server that can ask for a password asks for one that is made up for each start. None of them runs
as root.

This folder and others have one module for each server. It has the server's name in the registry,
which may stand for several products; other modules of the folder are helpers.
"""

from __future__ import annotations

import importlib
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import ending_in_order
from qjoule.api.servers import registry
from qjoule_studies.workload import Target, Value

_SETTING = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
#: The folder of what go-ycsb and the Twitter pairs need of each server.
STORES = "qjoule_studies.stores"


def products() -> tuple[str, ...]:
    """Products that a target may be: those whose requests have a language, each by its own name."""
    return tuple(
        product
        for product, server in registry.flavours().items()
        if server.dialects and not server.of
    )


def products_in(package: str) -> tuple[str, ...]:
    """Products that a folder has a module for; imports none of them."""
    spec = find_spec(package)
    folder = spec.submodule_search_locations if spec else None
    modules = {module.name for module in iter_modules(folder)}
    return tuple(product for product in products() if registry.server_of(product).name in modules)


def module_for(package: str, product: str) -> ModuleType:
    """The product's module. Raises ModuleNotFoundError if it, or what it imports, is not there."""
    return importlib.import_module(f"{package}.{registry.server_of(product).name}")


#: Names of the servers: those with a module here. `STARTS` of it starts its products by name, and
#: `OURS` are the settings that the start itself decides on.
STARTED = products_in(__name__)


@contextmanager
def start(name: str, settings: Mapping[str, Value]) -> Iterator[Target]:
    """A server with these settings, ended and removed on the way out.

    Start it from a thread that stays: it ends when that thread does, even by kill -9.

    Args:
        name: one of `STARTED`.
        settings: the server's own, by the names that its manual has: variables, parameters,
            directives, options or keys of its file.

    Raises:
        UsageError: no such server, or a setting that cannot be given.
        QjouleError: it is not here (says what to install or to fetch), or does not start.
    """
    if name not in STARTED:
        raise UsageError(f"no server {name!r:.50} can be started: choose {', '.join(STARTED)}")
    try:
        starter = module_for(__name__, name)
    except ModuleNotFoundError as error:
        raise QjouleError(
            f"starting {name} needs {error.name}: pip install 'qjoule-studies[bench]'"
        ) from error
    for setting, value in settings.items():
        _check(name, setting, value, starter.OURS)
    with ending_in_order(_unhandled()), starter.STARTS[name](settings) as target:
        yield target


def _unhandled() -> list[signal.Signals]:
    """The signals that would end this program at once and leave its servers behind."""
    if threading.current_thread() is not threading.main_thread():
        return []  # Python handles signals in the main thread alone
    ends = (signal.SIGTERM, signal.SIGHUP)
    return [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]


def _check(name: str, setting: str, value: Value, ours: frozenset[str]) -> None:
    if not isinstance(setting, str) or not _SETTING.fullmatch(setting):
        raise UsageError(f"{name}: {setting!r:.50} is no name of a setting")
    if setting.lower().replace("_", "-") in ours:
        raise UsageError(f"{name}: {setting} is chosen by qjoule, which starts the server")
    if not isinstance(value, (str, int, float)):
        raise UsageError(f"{name}: {setting} has to be a text, a number, true or false")
    if isinstance(value, str) and not value.isprintable():
        raise UsageError(f"{name}: {setting} has characters that cannot be printed")
