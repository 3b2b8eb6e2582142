# SPDX-License-Identifier: Apache-2.0
"""Supports MongoDB: recognises it, finds what to attach to in a mongod and its cost per query, and
reads its configuration file, then its command line.

MongoDB manual, "Configuration File Options", "mongod". A file that is not YAML has lines `name =
value`, as before 2.6. Options are never abbreviated (util/options_parser).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import islice
from typing import Any

from qjoule.errors import QjouleError
from qjoule.servers.access import Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import attach_mode_by_connection
from qjoule.servers.config_files import TEXT_MAX, read_settings, shown_value
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import the_only
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.resolution import Resolution, check_machine, file_key, probes_of
from qjoule.servers.support import (
    THREAD_MODES,
    Functions,
    Identified,
    Running,
    ServerSupport,
    Settings,
    Supported,
)
from qjoule.servers.types import Fact, Server

_DEPTH_MAX, _OPTIONS_MAX, _NAME_MAX = 8, 2000, 512
_DEFAULT_COMPRESSORS = "snappy,zstd,zlib"
#: Maps options of the command line and of old files to their paths in a configuration file.
_PATHS = {
    "tlsMode": "net.tls.mode",
    "sslMode": "net.ssl.mode",
    "sslOnNormalPorts": "net.ssl.sslOnNormalPorts",
    "serviceExecutor": "net.serviceExecutor",
    "networkMessageCompressors": "net.compression.compressors",
}
_TLS = ("net.tls.mode", "net.ssl.mode")
#: A line of a file from before 2.6: `name = value`, a comment, or nothing.
_LINE = re.compile(r"\s*(?:\w+\s*=.*|#.*)?")
#: Parameters that let connections share threads (5.0 to 8.0), and the values that enable it.
_SHARED_THREADS = {
    "initialServiceExecutorThreadingModel": "borrowed",
    "initialServiceExecutorUseDedicatedThread": "false",
}
#: Names of options that every mongod since 2.6 has, and no mongos.
_OPTIONS = (b"storage.dbPath", b"systemLog.destination")


class Role(StrEnum):
    """The registry's `roles`: what a probe reports."""

    REQUEST = "mongodb-request"  # (result *, this, OperationContext *, const Message &)
    DONE = "mongodb-done"  # return of the same function


_HANDLE = "13handleRequestEPNS_16OperationContextERKNS_7MessageE"

#: src/mongo/db/service_entry_point_mongod.h, later service_entry_point_shard_role.h. The result,
#: DbResponse or Future<DbResponse>, is not part of the name; both are returned in memory. After 8.0
#: the function also gets the time when the request arrived.
SIGNATURES = (
    ("MongoDB 3.6 to 7", f"_ZN5mongo23ServiceEntryPointMongod{_HANDLE}"),
    ("MongoDB 8.0", f"_ZN5mongo26ServiceEntryPointShardRole{_HANDLE}"),
    ("MongoDB after 8.0", f"_ZN5mongo26ServiceEntryPointShardRole{_HANDLE}NS_6Date_tE"),
)
_PREFIXES = (
    "_ZN5mongo23ServiceEntryPointMongod13handleRequest",
    "_ZN5mongo26ServiceEntryPointShardRole13handleRequest",
)


def boundary_functions(executable: Executable) -> dict[str, Symbol]:
    """Returns the function that begins and ends a query, by role.

    Raises:
        CannotResolve: it is missing, ambiguous, or has clones that callers may use instead.
    """
    function = the_only(
        executable,
        "handleRequest",
        [name for _, name in SIGNATURES],
        prefixes=_PREFIXES,
        missing="handleRequest of a mongod",
    )
    return {Role.REQUEST: function, Role.DONE: function}


def resolve(candidate: Candidate, _version: str) -> Resolution:
    """
    Raises:
        QjouleError: the identity of its file cannot be read.
    """
    executable = candidate.executable
    resolution = Resolution(file_key(executable))
    try:
        check_machine(executable)
        boundary = probes_of(executable, boundary_functions(executable))
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary)


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Returns the cost of a query."""
    return costs[Role.DONE].both_ns if Role.DONE in costs else 0


def settings(running: Running) -> Settings:
    """Reads the settings from its command line and its configuration file."""
    try:
        options = _options(running.candidate)
    except QjouleError as error:
        unknown = Fact(None, str(error))
        return Settings(unknown, unknown, unknown)
    return Settings(_encryption(options), _thread_pool(options), _compression(options))


def _encryption(options: Mapping[str, str]) -> Fact:
    if options.get("net.ssl.sslOnNormalPorts", "false") != "false":
        return Fact(True, "sslOnNormalPorts")
    for path in _TLS:
        mode = options.get(path, "disabled")
        if mode != "disabled":
            return Fact(True, f"{path}: {shown_value(mode)}")
    return Fact(False, "TLS is not turned on")


def _thread_pool(options: Mapping[str, str]) -> Fact:
    executor = options.get("net.serviceExecutor", "synchronous")
    if executor != "synchronous":
        return Fact(True, f"net.serviceExecutor: {shown_value(executor)}")
    for name, shared in _SHARED_THREADS.items():
        if options.get(f"setParameter.{name}", "").lower() == shared:
            return Fact(True, f"setParameter {name}={shared}")
    return Fact(False, "one thread per connection")


def _compression(options: Mapping[str, str]) -> Fact:
    compressors = options.get("net.compression.compressors", _DEFAULT_COMPRESSORS)
    if compressors == "disabled":
        return Fact(False, "net.compression.compressors: disabled")
    return Fact(True, f"it offers {shown_value(compressors)}")


def _options(candidate: Candidate) -> dict[str, str]:
    if not candidate.arguments:
        raise Unreadable("its command line cannot be read")
    command_line = dict(_command_line(candidate.arguments[1:]))
    options: dict[str, str] = {}
    if file := command_line.get("config"):
        options = _file(candidate, posixpath.join(candidate.working_directory, file))
    for name, value in command_line.items():
        options[_PATHS.get(name, name)] = value
    return options


def _command_line(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (name, value); a `--setParameter name=value` as `setParameter.name`."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        name = "config" if name == "f" else name
        if not equals and (name in _PATHS or name in ("config", "setParameter")):
            value = "true" if name == "sslOnNormalPorts" else next(rest, "")
        if name == "setParameter":
            parameter, _, value = value.partition("=")
            name = f"setParameter.{parameter}"
        yield name, value


def _file(candidate: Candidate, path: str) -> dict[str, str]:
    text = candidate.text(path)
    if text is None:
        raise Unreadable(f"{path} is not there")
    if len(text) > TEXT_MAX:
        raise Unreadable(f"{path} is larger than {TEXT_MAX >> 10} KiB")
    if all(_LINE.fullmatch(line) for line in text.splitlines()):
        pairs = (line.partition("#")[0].partition("=") for line in text.splitlines())
        lines = ((name.strip(), value.strip()) for name, equals, value in pairs if equals)
        return {_PATHS.get(name, name): value for name, value in lines}
    settings = read_settings(text, path)
    if settings is None:
        return {}
    if not isinstance(settings, dict):
        raise Unreadable(f"{path} is no mapping")
    options = dict(islice(_flattened(settings, "", path, 0), _OPTIONS_MAX + 1))
    if len(options) > _OPTIONS_MAX:
        raise Unreadable(f"{path} has too many options")
    return options


def _flattened(
    settings: dict[str, Any], prefix: str, path: str, depth: int
) -> Iterator[tuple[str, str]]:
    """Flattens nested keys: `net: {tls: {mode: x}}` and `net.tls.mode: x` are equal."""
    if depth > _DEPTH_MAX:
        raise Unreadable(f"{path} is nested too deeply")
    for key, value in settings.items():
        if key in ("__rest", "__exec"):
            raise Unreadable(f"{path} takes {shown_value(prefix) or 'all'} from elsewhere ({key})")
        name = f"{prefix}.{key}" if prefix else key
        if len(name) > _NAME_MAX:
            raise Unreadable(f"{path} has options with too long names")
        if isinstance(value, dict):
            yield from _flattened(value, name, path, depth + 1)
        else:
            yield name, _word(value)


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "(a list)"  # no relevant option takes one
    return str(value).lower() if isinstance(value, bool) else str(value)


def identify(executable: Executable) -> Identified | None:
    strings = executable.constants()
    return Identified("mongodb") if all(option in strings for option in _OPTIONS) else None


def _blind_spots(server: Server) -> tuple[str, ...]:
    before = (
        "sessions opened before tracing have no user and no application (appName) without "
        "--credentials FILE"
    )
    if server.compression.value is False:
        return (before,)
    return (
        before,
        f"requests that a driver compresses by zlib or zstd are one row in the live view "
        f"({server.compression.source})",
    )


SUPPORT = ServerSupport(
    name="mongodb",
    flavours={"mongodb": "MongoDB"},
    executables="mongod",
    installed=("usr/bin/mongod",),
    identify=identify,
    settings=settings,
    resolve=resolve,
    choose_attach_mode=attach_mode_by_connection,
    symbol_loops=True,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
)


#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "mongodb",
        "MongoDB",
        THREAD_MODES,
        ("stand-in",),  # the tests' mongod_like, which reads like a mongod
        tuple(Functions(versions, (name,)) for versions, name in SIGNATURES),
    ),
)
