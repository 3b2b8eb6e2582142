# SPDX-License-Identifier: Apache-2.0
"""The servers whose probes perf's recordings may have: those with a module here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from qjoule.api.servers import registry
from qjoule_studies.import_perf.support import PerfSupport


def _supports() -> dict[str, PerfSupport]:
    modules = {server: f"qjoule_studies.import_perf.{server}" for server in registry.servers()}
    return {
        server: import_module(module).SUPPORT
        for server, module in modules.items()
        if find_spec(module) is not None
    }


BY_SERVER = _supports()
SUPPORTED = {family: one for one in BY_SERVER.values() for family in one.families}


def family_of(event: bytes) -> str:
    """What stands before the `_` in an event's name."""
    return event.partition(b"_")[0].decode("ascii", "replace")


def support_of(event: bytes) -> PerfSupport:
    """Whose event it is. Raises KeyError: nobody's."""
    return SUPPORTED[family_of(event)]
