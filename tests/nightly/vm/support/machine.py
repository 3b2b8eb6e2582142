# SPDX-License-Identifier: Apache-2.0
"""Virtual machines in software emulation: building them and what is installed in them, and running
one script in one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
TREE = HERE.parents[2]
BUILT = TREE / "build" / "vm"
BUILD_TIMEOUT_S = 900
RUN_TIMEOUT_S = 1200  # an emulated machine beside other load
MEMORY_MB = 768

#: Two packages of one core with two threads each; only Intel's emulated CPUs can report that.
#: Without AVX2: as QEMU 7.2 emulates it, numpy 2.4 leaves arrays that it sorts out of order.
AMD64 = (
    "qemu-system-x86_64",
    *("-machine", "q35", "-accel", "tcg", "-cpu", "max,vendor=GenuineIntel,-avx2"),
    *("-smp", "4,sockets=2,cores=1,threads=2"),
)
#: One package of two cores, of AMD. A CPU that reads another's counter waits for it, so there are
#: no more of them than this machine may have itself.
AMD = (
    "qemu-system-x86_64",
    *("-machine", "q35", "-accel", "tcg", "-cpu", "max,vendor=AuthenticAMD"),
    *("-smp", "2,sockets=1,cores=2,threads=1"),
)
#: AMD64 with its CPUs in turn on one thread. On four, each spins until the others have seen a
#: change of code, and beside other load 5.10 stood still for 20 minutes.
AMD64_IN_TURN = tuple(f"{word},thread=single" if word == "tcg" else word for word in AMD64)
#: One instruction takes one nanosecond, and idle time passes at once ("icount" of qemu(1)). That
#: gives the machine counters of cycles and instructions.
ARM64 = (
    "qemu-system-aarch64",
    *("-machine", "virt", "-accel", "tcg", "-cpu", "max"),
    *("-smp", "1", "-icount", "shift=0,sleep=off"),
)
#: With a clock that runs by itself. In the one above, time outs pass at once while a file is read.
ARM64_TIMED = (
    "qemu-system-aarch64",
    *("-machine", "virt", "-accel", "tcg", "-cpu", "cortex-a72", "-smp", "2"),
)
#: Suites of Debian with the kernels to run on: guests.mk has the same list.
SUITES = ("bullseye", "bookworm", "trixie", "sid")
#: Their kernels show no reads of sockets, and so are without the socket mode: there are neither
#: tracepoints (Linux 6.3) nor the programs where functions return (5.19, bpf/core/socket.bpf.h).
WITHOUT_READS = ("bullseye",)
#: Get the programs for early kernels: Linux before 5.19.
EARLY = ("bullseye",)
EMULATORS = {
    "amd64": (AMD64, "ttyS0"),
    "amd": (AMD, "ttyS0"),
    "arm64": (ARM64, "ttyAMA0"),
    "arm64-trixie": (ARM64_TIMED, "ttyAMA0"),
    **dict.fromkeys(SUITES, (AMD64_IN_TURN, "ttyS0")),
}
#: Machines that boot what was built for another one.
BUILT_FOR = {"amd": "amd64"}


@dataclass(frozen=True)
class Run:
    """The result of a machine: the files that its script wrote into /share/out."""

    out: Path
    console: Path

    def text(self, name: str) -> str:
        return (self.out / name).read_text()


def build(machine: str) -> None:
    """Brings a machine of `EMULATORS` up to date: its kernel and initramfs. Skips the test if apt
    lacks the packages.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "-f", "tests/nightly/vm/guests.mk", machine],
        cwd=TREE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    unavailable = BUILT / machine / "unavailable"
    if done.returncode and unavailable.exists():
        pytest.skip(unavailable.read_text().strip())
    assert done.returncode == 0, done.stdout


def run(
    machine: str,
    script: Path,
    directory: Path,
    variables: Mapping[str, str],
    timeout_s: float = RUN_TIMEOUT_S,
) -> Run:
    """Boots a machine, runs the functions of `guest/` and `script` in it as root, and waits for its
    end.

    `directory` is /share in the machine. The script stops at its first failing command, which
    fails the test, as does a machine that does not end by itself.
    """
    (directory / "out").mkdir()
    assignments = "".join(f"{name}='{value}'\n" for name, value in variables.items())
    text = (HERE / "guest" / "lib.sh").read_text() + script.read_text()
    (directory / "run").write_text(assignments + text)
    # The tracing processes there are not root, so the modes of these files matter to them.
    subprocess.run(["chmod", "-R", "go+rX", str(directory)], check=True)
    finished = Run(directory / "out", directory / "console")
    _emulate(machine, directory, finished.console, timeout_s)
    status = finished.out / "status"
    assert status.exists(), f"the machine died:\n{finished.console.read_text(errors='replace')}"
    complaints = "".join(f"{path.name}: {path.read_text()}" for path in finished.out.glob("*.err"))
    assert status.read_text() == "0\n", finished.text("log") + complaints
    return finished


def _emulate(machine: str, share: Path, console: Path, timeout_s: float) -> None:
    emulator, terminal = EMULATORS[machine]
    built = BUILT / BUILT_FOR.get(machine, machine)
    (kernel,) = (built / "root" / "boot").glob("vmlinuz-*")
    command = [
        # Whatever happens to us, the emulator must not outlive us.
        *("setpriv", "--pdeathsig", "KILL", "--", *emulator),
        *("-m", str(MEMORY_MB), "-kernel", str(kernel), "-initrd", str(built / "initramfs")),
        *("-append", f"console={terminal} loglevel=5 panic=-1 softlockup_panic=1"),
        *("-no-reboot", "-nodefaults", "-display", "none", "-serial", f"file:{console}"),
        *("-fsdev", f"local,id=share,path={share},security_model=none"),
        *("-device", "virtio-9p-pci,fsdev=share,mount_tag=share"),
    ]
    if (tree := share / "tree").is_dir():  # its own file system, which the machine may cache
        command += ["-fsdev", f"local,id=tree,path={tree},security_model=none"]
        command += ["-device", "virtio-9p-pci,fsdev=tree,mount_tag=tree"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr


def built_package(target: str, pattern: str) -> Path:
    """A file that a target of packaging/packages.mk makes.

    With QJOULE_DIST, as in tests/nightly/packages, it was made before, in that directory.
    """
    dist = TREE / os.environ.get("QJOULE_DIST", "build/dist")
    if "QJOULE_DIST" not in os.environ:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        subprocess.run(["make", target], cwd=TREE, env=environment, check=True)
    (built,) = dist.glob(pattern)
    return built
