# SPDX-License-Identifier: Apache-2.0
"""Tests in virtual machines: `make test-vm`, or `pytest tests/nightly/vm`.

They need the packages of packaging/debian-packages-vm.txt. Every machine runs once; the tests
examine the files it left behind.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nightly.vm.support import machine
from nightly.vm.support.plans import (
    GETS,
    OVER_TCP,
    REDIS,
    copy_programs,
    copy_server,
    plan_arguments,
    plans,
    statements_text,
)
from nightly.vm.support.streams import (
    BURSTS_MS,
    BUSY_MW,
    CORES_MW,
    POWER_MW,
    QUIET_MW,
    REST_S,
    WRONG_CORES_MW,
    parameter,
)
from qjoule.contract import MORE_COUNTERS, AttachMode

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:  # noqa: ARG001
    """Machines are emulated only on request."""
    paths = (config.invocation_params.dir / arg.partition("::")[0] for arg in config.args)
    if any(path.resolve().is_relative_to(HERE) for path in paths):
        return None
    return True


@pytest.fixture(scope="session")
def amd64(tmp_path_factory: pytest.TempPathFactory) -> machine.Run:
    """Two packages with SMT and energy counters of constant power, after `guest/amd64.sh`."""
    machine.build("amd64")
    directory = tmp_path_factory.mktemp("amd64")
    variables = {"RAPL": parameter("power_mw", POWER_MW.values()), "REST_S": str(REST_S)}
    return machine.run("amd64", HERE / "guest" / "amd64.sh", directory, variables)


@pytest.fixture(scope="session")
def amd(tmp_path_factory: pytest.TempPathFactory) -> machine.Run:
    """Two cores with energy counters of their own, after `guest/cores.sh`."""
    machine.build("amd64")
    variables = {
        "RAPL": f"{parameter('power_mw', QUIET_MW)} {parameter('busy_mw', BUSY_MW)}",
        "CORES": parameter("power_mw", CORES_MW),
        "WRONG_CORES": parameter("power_mw", WRONG_CORES_MW),
        "BURSTS_MS": " ".join(map(str, BURSTS_MS)),
    }
    directory = tmp_path_factory.mktemp("amd")
    return machine.run("amd", HERE / "guest" / "cores.sh", directory, variables)


@pytest.fixture(scope="session", params=machine.SUITES)
def kernel_vm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> machine.Run:
    """A machine with another release's kernel, and the MariaDB in it after `guest/kernels.sh`."""
    machine.build(request.param)
    directory = tmp_path_factory.mktemp(request.param)
    executable = copy_server(directory / "server")
    (directory / "statements").write_text(statements_text())
    reads = request.param not in machine.WITHOUT_READS
    copy_programs(directory / "server", *REDIS)
    variables = {
        "SYMBOL": plan_arguments(executable, AttachMode.SYMBOL),
        "SOCKET": plan_arguments(executable, AttachMode.SOCKET, reads=True) if reads else "",
        "ENDED": plan_arguments(executable, AttachMode.SYMBOL, reads=True) if reads else "",
        "OVER_TCP": "\n".join(" ".join(map(str, option)) for option in OVER_TCP),
        "REDIS": "--server 1:redis:socket:DEVICE:INODE",
        "GETS": str(GETS),
    }
    return machine.run(request.param, HERE / "guest" / "kernels.sh", directory, variables)


@pytest.fixture(scope="session", params=machine.SUITES)
def loads_vm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> machine.Run:
    """The same machines after `guest/loads.sh`."""
    machine.build(request.param)
    directory = tmp_path_factory.mktemp(request.param)
    program = machine.BUILT / request.param / "root" / "bin" / "busybox"
    reads = request.param not in machine.WITHOUT_READS
    listed = plans(reads=reads, early=request.param in machine.EARLY)
    lines = (f"{plan.name} {plan.arguments(program)}\n" for plan in listed)
    (directory / "plans").write_text("".join(lines))
    return machine.run(request.param, HERE / "guest" / "loads.sh", directory, {})


@pytest.fixture(scope="session")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> machine.Run:
    """A machine with hardware counters, after `guest/arm64.sh`."""
    machine.build("arm64")
    directory = tmp_path_factory.mktemp("arm64")
    many = " ".join(["--counter more=4:8"] * MORE_COUNTERS)
    variables = {"MANY": many}
    return machine.run("arm64", HERE / "guest" / "arm64.sh", directory, variables)
