# SPDX-License-Identifier: Apache-2.0
"""Which functions are matched to which server, and when none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.mysql.signatures import Role, boundary_functions
from qjoule.servers.postgres import signatures as postgres
from qjoule.servers.postgres.signatures import backend_states, io_functions, parallel_functions
from qjoule.servers.signatures import CannotResolve
from servers.toy_elf import (
    MARIADB_10_5,
    MARIADB_10_11,
    MYSQL_5_6,
    MYSQL_8,
    POSTGRES,
    strip,
    toy_server,
)

LAMBDA = "_ZZ16dispatch_commandP3THDPK8COM_DATA19enum_server_commandENKUlvE_clEv"
XPL = "_ZN3xpl10dispatcher16dispatch_commandEP3THDPK8COM_DATA19enum_server_command"


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (MYSQL_5_6, Role.BEGIN_COMMAND_FIRST),
        (MARIADB_10_5, Role.BEGIN_COMMAND_FIRST),
        (MARIADB_10_11, Role.BEGIN_COMMAND_FIRST),
        (MYSQL_8, Role.BEGIN_THD_FIRST),
    ],
)
def test_each_signature_has_its_role(tmp_path: Path, name: str, role: Role) -> None:
    decoys = [f"{name}.cold", LAMBDA, XPL]
    executable = open_executable(toy_server(tmp_path / "toy", [*decoys, name]))
    found = boundary_functions(executable)
    assert set(found) == {role, Role.END}
    assert {symbol.name for symbol in found.values()} == {name}


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "no dispatch_command in"),
        ([LAMBDA, XPL], "no dispatch_command in"),
        ([f"{MYSQL_8}.cold"], "signature that is not known"),
        ([f"{MYSQL_8}b"], "signature that is not known"),
        ([MYSQL_8, MARIADB_10_11], "two signatures"),
        ([MYSQL_8, f"{MYSQL_8}.constprop.0"], "also exists as"),
        ([MYSQL_8, f"{MYSQL_8}.isra.0"], "also exists as"),
        ([MYSQL_8, f"{MYSQL_8}.part.0"], "also exists as"),
    ],
)
def test_what_is_not_certain_is_refused(tmp_path: Path, names: list[str], why: str) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(CannotResolve, match=why):
        boundary_functions(executable)


def test_a_file_without_symbols_says_so(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "toy", [MYSQL_8], exported=False, flags=("-static",))
    with pytest.raises(CannotResolve, match="a file without symbols"):
        boundary_functions(open_executable(strip(path)))


def test_what_would_help_is_said_where_it_would(tmp_path: Path) -> None:
    """A stripped file may still contain the function; a file with its symbols does not."""
    whole = open_executable(toy_server(tmp_path / "whole", [LAMBDA], exported=False))
    with pytest.raises(CannotResolve, match=r"in \.dynsym or \.symtab$|in \.symtab or \.dynsym$"):
        boundary_functions(whole)
    stripped = open_executable(strip(toy_server(tmp_path / "toy", [MYSQL_8], exported=False)))
    with pytest.raises(CannotResolve, match="it is stripped: use a build that is not"):
        boundary_functions(stripped)


def test_postgres(tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", [*POSTGRES, "PortalRunFetch"]))
    boundary = postgres.boundary_functions(executable)
    parallel = parallel_functions(executable)
    assert {role: symbol.name for role, symbol in (boundary | parallel).items()} == {
        postgres.Role.ACTIVITY: "pgstat_report_activity",
        postgres.Role.PORTAL_RUN: "PortalRun",
        postgres.Role.FAILED: "PortalErrorCleanup",
        postgres.Role.LAUNCH_WORKERS: "LaunchParallelWorkers",
        postgres.Role.JOIN_LEADER: "BecomeLockGroupMember",
    }


IO_WORKERS = ("pgaio_io_prepare_submit", "pgaio_io_reopen")


def test_postgres_joins_io_workers_where_it_has_any(tmp_path: Path) -> None:
    before_18 = open_executable(toy_server(tmp_path / "17", POSTGRES))
    assert io_functions(before_18) == {}
    with_workers = open_executable(toy_server(tmp_path / "18", [*POSTGRES, *IO_WORKERS]))
    assert {role: symbol.name for role, symbol in io_functions(with_workers).items()} == {
        postgres.Role.IO_SUBMIT: "pgaio_io_prepare_submit",
        postgres.Role.IO_BEGIN: "pgaio_io_reopen",
    }


@pytest.mark.parametrize("missing", IO_WORKERS)
def test_postgres_does_not_join_io_workers_by_half(tmp_path: Path, missing: str) -> None:
    names = [name for name in (*POSTGRES, *IO_WORKERS) if name != missing]
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(CannotResolve, match=f"no {missing} in"):
        io_functions(executable)


@pytest.mark.parametrize("missing", POSTGRES)
def test_postgres_without_one_of_its_functions(tmp_path: Path, missing: str) -> None:
    names = [name for name in POSTGRES if name != missing]
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(CannotResolve, match=f"no {missing} in"):
        postgres.boundary_functions(executable)
        parallel_functions(executable)


@pytest.mark.parametrize("major", range(13, 18))
def test_backend_states_to_17(major: int) -> None:
    assert list(backend_states(major).facts().values()) == [1, 2, 3, 4, 5]


def test_backend_states_of_18_follow_starting() -> None:
    assert backend_states(18).facts() == {
        "idle": 2,
        "running": 3,
        "idle-in-transaction": 4,
        "fastpath": 5,
        "aborted": 6,
    }


@pytest.mark.parametrize("major", [None, 9, 12, 19])
def test_unknown_versions_are_refused(major: int | None) -> None:
    with pytest.raises(CannotResolve):
        backend_states(major)
