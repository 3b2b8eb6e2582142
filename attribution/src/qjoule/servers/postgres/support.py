# SPDX-License-Identifier: Apache-2.0
"""Supports PostgreSQL: recognises it, and reads its settings: postgresql.conf,
postgresql.auto.conf, the command line.

PostgreSQL manual, "Setting Parameters": the last value in a file counts, ALTER SYSTEM's file comes
after it, and the command line wins.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from qjoule.servers.access import Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, attach_mode_by_connection
from qjoule.servers.config_files import ConfigFiles, shown_value
from qjoule.servers.elf import Executable
from qjoule.servers.function_code import AFTER, places
from qjoule.servers.postgres.find import (
    FACTS,
    FUNCTIONS,
    MAJORS,
    SYMBOL_FACTS,
    Role,
    boundary_cost_ns,
    resolve,
)
from qjoule.servers.postgres.plan_nodes import kinds_of_file
from qjoule.servers.support import (
    PLAIN,
    TLS,
    UNKNOWN,
    Functions,
    Identified,
    Mode,
    Running,
    ServerSupport,
    Settings,
    Supported,
)
from qjoule.servers.types import Fact, Server

_LINE = re.compile(r"\s*([A-Za-z_][\w.]*)(?:\s*=\s*|\s+)(?:'((?:[^']|'')*)'|([^\s#']+))")
_SHOWN = ("on", "off", "true", "false", "yes", "no", "1", "0", "t", "f", "y", "n")

#: PostgreSQL forks a process for every connection, in every configuration.
NO_POOL = Fact(False, "one process per connection")
_NAME = b"PostgreSQL "
_VERSION = re.compile(rb"(\d{2}(?:\.\d{1,3})?)[^\d.]")
_CHILD = b"postgres: "  #: prefix of a child's title


def settings(running: Running) -> Settings:
    """Reads the settings from its configuration files and its command line."""
    return Settings(encryption(running.candidate), NO_POOL)


def encryption(candidate: Candidate) -> Fact:
    """Returns whether a session may be encrypted. Sessions over unix sockets never are."""
    flags = dict(_command_line(candidate.arguments[1:]))
    if "ssl" in flags:
        return _fact(flags["ssl"], "command line")
    try:
        data = _data_directory(candidate)
        main = flags.get("config_file") or posixpath.join(_config_directory(candidate, data), _CONF)
        files = ConfigFiles(candidate)
        settings = [*_settings(files, posixpath.join(data, main))]
        if not settings:
            raise Unreadable(f"{main} is missing or empty")
        settings += _settings(files, posixpath.join(data, "postgresql.auto.conf"))
    except Unreadable as reason:
        return Fact(None, str(reason))
    values = [(value, path) for name, value, path in settings if name == "ssl"]
    return _fact(*values[-1]) if values else Fact(False, "ssl is off by default")


_CONF = "postgresql.conf"


def _fact(value: str, source: str) -> Fact:
    plain = value.strip().lower()
    on = plain == "1" or (plain != "o" and any(w.startswith(plain) for w in ("on", "true", "yes")))
    return Fact(bool(plain) and on, f"ssl = {shown_value(plain, _SHOWN)}: {source}")


def _command_line(arguments: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields settings given as `-c name=value`, `-cname=value`, `--name=value`, `-l`."""
    waiting = False
    for argument in arguments:
        setting = ""
        if waiting:
            setting = argument
        elif argument == "-l":
            setting = "ssl=on"
        elif argument.startswith("--"):
            setting = argument.removeprefix("--")
        elif argument.startswith("-c") and argument != "-c":
            setting = argument.removeprefix("-c")
        waiting = argument == "-c" and not waiting
        name, equals, value = setting.partition("=")
        if equals:
            yield name.replace("-", "_").lower(), value


def _data_directory(candidate: Candidate) -> str:
    # The postmaster works in its data directory (ChangeToDataDir in miscinit.c).
    directory = candidate.working_directory
    if not directory.startswith("/"):
        raise Unreadable("its data directory cannot be read: run as root")
    return directory


def _config_directory(candidate: Candidate, data: str) -> str:
    """`-D` or PGDATA may name a directory that holds only the configuration."""
    arguments = candidate.arguments
    named = candidate.environment.get("PGDATA", "")
    for position, argument in enumerate(arguments):
        if argument.startswith("-D"):
            named = argument[2:] or next(iter(arguments[position + 1 :]), "")
    # A relative path started where the server was started, most likely its data directory.
    return named if named.startswith("/") else data


def _settings(files: ConfigFiles, path: str, depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yields (name, value, file) of every setting, with includes expanded in place."""
    for line in files.lines(path, depth):
        match = _LINE.match(line)
        if not match:
            continue
        name, quoted, bare = match.groups()
        value = quoted.replace("''", "'") if quoted is not None else bare
        if name.lower() in ("include", "include_if_exists"):
            yield from _settings(files, _relative_to(path, value), depth + 1)
        elif name.lower() == "include_dir":
            directory = _relative_to(path, value)
            for entry in files.candidate.access.names(directory):
                if entry.endswith(".conf") and not entry.startswith("."):
                    yield from _settings(files, posixpath.join(directory, entry), depth + 1)
        else:
            yield name.lower(), value, path


def _relative_to(path: str, name: str) -> str:
    return posixpath.join(posixpath.dirname(path), name)


def identify(executable: Executable) -> Identified | None:
    """Recognises a constant that is its name and version."""
    strings = executable.constants()
    for position in places(strings, _NAME):
        begins = position + len(_NAME)
        match = _VERSION.match(strings, begins, begins + AFTER)
        if match and strings[max(position - 1, 0) : position] == b"\0":
            return Identified("postgres", match[1].decode())
    return None


def is_postmaster(candidate: Candidate) -> bool:
    """Returns true for a postmaster. A child that outlived its postmaster serves no new clients."""
    return not candidate.command_line.startswith(_CHILD)


_READS_NEED = ("statement", "authenticates", "portal-start")


def _choose_attach_mode(case: Case) -> Choice:
    return attach_mode_by_connection(case, worker="process")


def _blind_spots(_server: Server) -> tuple[str, ...]:
    return (
        "user and database are not known of sessions opened before tracing, and on the symbol mode "
        "of all, if one of these names has a space",
    )


SUPPORT = ServerSupport(
    name="postgres",
    flavours={"postgres": "PostgreSQL"},
    system="postgresql",
    executables="(edb-)?postgres|postmaster",
    installed=("usr/lib/postgresql/*/bin/postgres", "usr/pgsql-*/bin/postgres", "usr/bin/postgres"),
    identify=identify,
    serves=is_postmaster,
    settings=settings,
    pool_when_installed=NO_POOL,
    resolve=resolve,
    resolved=tuple(dict.fromkeys((*FACTS, *_READS_NEED))),
    symbol_only=tuple(dict.fromkeys((*SYMBOL_FACTS, *_READS_NEED))),
    choose_attach_mode=_choose_attach_mode,
    replaced_by_reads=(Role.ACTIVITY, Role.PORTAL_RUN),
    beside_reads=(Role.EXECUTE, Role.REPLICATION, Role.REPORT),
    reads_need=_READS_NEED,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
    node_kinds=kinds_of_file,
    # $libdir of `make install`, and of packages of Fedora, Debian and PostgreSQL itself.
    libraries=("../lib/postgresql", "../lib64/pgsql", "../lib"),
)


_TESTED = ("15", "17", "18")

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "postgres",
        "PostgreSQL",
        # A process for each connection, always.
        (PLAIN, TLS, Mode(UNKNOWN.title, encryption=None)),
        _TESTED,
        (
            Functions(
                f"PostgreSQL {MAJORS[0]} to {MAJORS[-1]}",
                tuple(FUNCTIONS.values()),
                f"PostgreSQL {', '.join(_TESTED)}",
            ),
        ),
    ),
)
