# SPDX-License-Identifier: Apache-2.0
"""Functions of executables: where they are, which are a server's, and where a probe is cheap."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.function_code import CannotResolve
from qjoule.servers.mysql.support import Role, boundary_functions
from qjoule.servers.postgres import find as postgres
from qjoule.servers.probe_site import (
    EMULATED_JUMP,
    EMULATED_PUSH,
    NOP5,
    SINGLE_STEPPED,
    CannotProbe,
    SiteCost,
    inspect_site,
)
from servers.toy_elf import (
    MARIADB_10_5,
    MARIADB_10_11,
    MYSQL_5_6,
    MYSQL_8,
    POSTGRES,
    pack_symbols,
    strip,
    toy_server,
)

# ---- symbols -------------------------------------------------------------------------------------


def address_by_nm(path: Path, name: str) -> int:
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in listing.splitlines() if line.endswith(f" {name}")]
    return int(line.split()[0], 16)


def test_address_and_offset_are_those_of_the_toolchain(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "toy", [MARIADB_10_11, "other"])
    executable = open_executable(path)
    (symbol,) = executable.functions(MARIADB_10_11)
    assert symbol.vaddr == address_by_nm(path, MARIADB_10_11)
    offset = executable.file_offset(symbol.vaddr)
    assert offset is not None
    raw = tmp_path / "text"
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", path, raw], check=True)
    assert executable.read(offset, symbol.size) in raw.read_bytes()


@pytest.mark.parametrize("table", [".symtab", ".dynsym", ".gnu_debugdata", "none"])
def test_every_symbol_table_is_used(tmp_path: Path, table: str) -> None:
    path = toy_server(tmp_path / "toy", [MARIADB_10_11], exported=table == ".dynsym")
    address = address_by_nm(path, MARIADB_10_11)
    if table == ".gnu_debugdata":
        pack_symbols(path)
    elif table != ".symtab":
        strip(path)
    symbols = open_executable(path).functions(MARIADB_10_11)
    assert [(symbol.table, symbol.vaddr) for symbol in symbols] == [(table, address)] * (
        table != "none"
    )


def test_a_name_that_ends_another_one_is_not_found(tmp_path: Path) -> None:
    """The string table shares tails."""
    names = ["LongPortalRun", "PortalRunFetch", "PortalRun.constprop.0", "MyPortalRun.part.1"]
    executable = open_executable(toy_server(tmp_path / "toy", names))
    assert executable.functions("PortalRun") == ()
    assert len(executable.functions("LongPortalRun")) == 1
    assert executable.names_with_prefix("PortalRun.") == ("PortalRun.constprop.0",)


# ---- the functions of a server -------------------------------------------------------------------

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
def test_each_signature_of_mysql_has_its_role(tmp_path: Path, name: str, role: Role) -> None:
    decoys = [f"{name}.cold", LAMBDA, XPL]
    functions = boundary_functions(open_executable(toy_server(tmp_path / "toy", [*decoys, name])))
    assert set(functions) == {role, Role.END}
    assert {symbol.name for symbol in functions.values()} == {name}


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], r"no dispatch_command in \.\w+ or \.\w+$"),
        ([f"{MYSQL_8}b"], "signature that is not known"),
        ([MYSQL_8, MARIADB_10_11], "two signatures"),
        ([MYSQL_8, f"{MYSQL_8}.constprop.0"], "also exists as"),
    ],
)
def test_a_function_that_is_not_certain_is_refused(
    tmp_path: Path, names: list[str], why: str
) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(CannotResolve, match=why):
        boundary_functions(executable)


IO_WORKERS = ("pgaio_io_prepare_submit", "pgaio_io_reopen")


def test_postgres_has_functions_for_queries_workers_and_io(tmp_path: Path) -> None:
    names = [*POSTGRES, *IO_WORKERS, "PortalRunFetch"]
    executable = open_executable(toy_server(tmp_path / "18", names))
    functions = postgres.boundary_functions(executable)
    functions |= postgres.parallel_functions(executable) | postgres.io_functions(executable)
    assert {role: symbol.name for role, symbol in functions.items()} == {
        postgres.Role.ACTIVITY: "pgstat_report_activity",
        postgres.Role.PORTAL_RUN: "PortalRun",
        postgres.Role.FAILED: "PortalErrorCleanup",
        postgres.Role.LAUNCH_WORKERS: "LaunchParallelWorkers",
        postgres.Role.JOIN_LEADER: "BecomeLockGroupMember",
        postgres.Role.IO_SUBMIT: "pgaio_io_prepare_submit",
        postgres.Role.IO_BEGIN: "pgaio_io_reopen",
    }
    before_18 = open_executable(toy_server(tmp_path / "17", POSTGRES))
    assert postgres.io_functions(before_18) == {}


@pytest.mark.parametrize("missing", [*POSTGRES, *IO_WORKERS])
def test_postgres_without_one_of_its_functions_is_refused(tmp_path: Path, missing: str) -> None:
    names = [name for name in (*POSTGRES, *IO_WORKERS) if name != missing]
    executable = open_executable(toy_server(tmp_path / "toy", names))
    with pytest.raises(CannotResolve, match=f"no {missing} in"):
        postgres.boundary_functions(executable)
        postgres.parallel_functions(executable)
        postgres.io_functions(executable)


@pytest.mark.parametrize(("major", "first"), [(13, 1), (17, 1), (18, 2)])
def test_the_backend_states_of_18_follow_starting(major: int, first: int) -> None:
    facts = postgres.backend_states(major).facts()
    names = ["idle", "running", "idle-in-transaction", "fastpath", "aborted"]
    assert facts == {name: number for number, name in enumerate(names, start=first)}


# ---- the site of a probe -------------------------------------------------------------------------

PUSH, RET = "55", "c3"
ENDBR64 = "f30f1efa"
MOV_RBX_RIPREL = "488b1d309c4000"  # mov rbx, [rip+...]: writes no argument
TEST_RDI = "4885ff"
MOV_RDI_RAX = "4889c7"  # writes the first argument
SUB_RSP = "4883ec18"
JE = "740a"
CALL = "e800000000"


@pytest.mark.parametrize(
    ("code", "moved", "cost"),
    [
        ("0f1f440000" + RET, 0, NOP5),
        (CALL, 0, EMULATED_JUMP),
        ("0f8410000000", 0, EMULATED_JUMP),
        (PUSH + RET, 0, EMULATED_PUSH),
        (ENDBR64 + PUSH, 4, EMULATED_PUSH),
        (SUB_RSP + PUSH, 0, SINGLE_STEPPED),  # the return address would have moved
        (MOV_RDI_RAX + PUSH, 0, SINGLE_STEPPED),  # an argument would be overwritten
        (MOV_RBX_RIPREL + PUSH, 7, EMULATED_PUSH),
        (ENDBR64 + TEST_RDI + "4889f8" + PUSH, 10, EMULATED_PUSH),
        (TEST_RDI + JE + PUSH, 0, SINGLE_STEPPED),  # not every call gets past the jump
        (TEST_RDI * 9 + PUSH, 0, SINGLE_STEPPED),  # too far into the function
    ],
)
def test_a_probe_moves_to_the_first_cheap_instruction(
    code: str, moved: int, cost: SiteCost
) -> None:
    site = inspect_site(bytes.fromhex(code), 0x1000)
    assert (site.offset - 0x1000, site.cost) == (moved, cost)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("", "no instruction"),
        ("f0480fb11f", "prefix 0xf0"),
        ("cc", "opcode 0xcc"),
        ("0f0b", "opcode 0xf0b"),
    ],
)
def test_instructions_that_the_kernel_refuses(code: str, why: str) -> None:
    with pytest.raises(CannotProbe, match=why):
        inspect_site(bytes.fromhex(code), 0)
