# SPDX-License-Identifier: Apache-2.0
"""The empty programs: built on the spot and attached to exactly the hooks of an attach plan."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.mysql.support import Role

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "bench"
LOADER, OBJECT = BUILD / "empty-loader", BUILD / "empty.bpf.o"

#: Attached on every machine and for every plan: bpf/core/segments.bpf.c and bpf/core/tasks.bpf.c.
ALWAYS = (
    "sched_process_fork",
    "sched_process_exec",
    "task_rename",
    "sched_process_exit",
    "hrtimer_expire_entry",
    "sched_switch",
)
SOCKET = "sock_recv_length"  #: bpf/core/socket.bpf.h, bpf/redis/sockets.bpf.c
REDIS_SEND = "sock_send_length"  #: bpf/redis/sockets.bpf.c


def hooks(plan: AttachPlan) -> list[str]:
    """Arguments of `empty-loader` for the hooks that the tracer would use for this plan.

    Each hook is listed once, although each kind of server has its own program on `SOCKET`.
    """
    arguments = [word for name in ALWAYS for word in ("--program", name)]
    if any(planned.choice.attach_mode is AttachMode.SOCKET for planned in plan.traced):
        arguments += ["--program", SOCKET]
    if any(planned.server.kind == registry.kind_of("redis") for planned in plan.traced):
        arguments += ["--program", REDIS_SEND]
    for planned in plan.traced:
        if not planned.lists_probes:
            continue
        for probe in planned.probes:
            kind = "--uretprobe" if probe.role == Role.END else "--uprobe"
            arguments += [kind, f"{planned.server.exe_path}:{probe.site.offset:#x}"]
    return arguments


def command(plan: AttachPlan) -> list[str]:
    return [str(LOADER), str(OBJECT), *hooks(plan)]


def build() -> None:
    """Compiles programs and loader unless they are newer than their sources.

    Raises:
        QjouleError: the compiler fails.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    arch = {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    clang = ["clang", "-g", "-O2", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{arch}"]
    warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    _compile(
        [*clang, *warnings, f"-I{ROOT / 'bpf'}", "-c"], HERE / "empty.bpf.c", OBJECT, libraries=()
    )
    gcc = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    _compile(gcc, HERE / "empty_loader.c", LOADER, libraries=("-lbpf", "-lelf", "-lz"))


def _compile(compiler: Sequence[str], source: Path, target: Path, libraries: Sequence[str]) -> None:
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return
    command = [*compiler, str(source), "-o", str(target), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise QjouleError(f"{compiler[0]} cannot compile {source.name}: {done.stderr[-500:]}")
