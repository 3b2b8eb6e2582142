# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL, for shared code."""

from __future__ import annotations

import re

from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, attach_mode_by_connection
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
from qjoule.servers.postgres.settings import NO_POOL, settings
from qjoule.servers.support import Identified, ServerSupport
from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Mode, Supported
from qjoule.servers.types import Server

_NAME = b"PostgreSQL "
_VERSION = re.compile(rb"(\d{2}(?:\.\d{1,3})?)[^\d.]")
_CHILD = b"postgres: "  #: how a child's title begins


def identify(executable: Executable) -> Identified | None:
    """By a constant that is its name and version."""
    strings = executable.constants()
    for position in places(strings, _NAME):
        begins = position + len(_NAME)
        match = _VERSION.match(strings, begins, begins + AFTER)
        if match and strings[max(position - 1, 0) : position] == b"\0":
            return Identified("postgres", match[1].decode())
    return None


def is_postmaster(candidate: Candidate) -> bool:
    """Whether it is a postmaster. A child that outlived its postmaster serves no new clients."""
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
)


_TESTED = ("15", "17", "18")

#: Of docs/servers.md.
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
