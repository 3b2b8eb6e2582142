# SPDX-License-Identifier: Apache-2.0
"""The rights of each process of a recording, as shown by `qjoule doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.root_part.client import user_name


@dataclass(frozen=True)
class Rights:
    """Rights of one process. `capabilities`: number in CapPrm, which the process has or may
    enable."""

    process: str
    user: str
    capabilities: int
    no_new_privs: bool
    seccomp: str
    does: str

    @property
    def description(self) -> str:
        bits = {0: "no capability", 1: "1 capability"}
        return ", ".join(
            [
                f"user {self.user}",
                bits.get(self.capabilities, f"{self.capabilities} capabilities"),
                "cannot gain any" if self.no_new_privs else "can gain more",
                self.seccomp,
            ]
        )


def rights_of_a_recording(root_part: int | None) -> list[Rights]:
    """Returns the rights of each process. `root_part`: its pid; None: only our own rights.

    Reads the root part and the command from /proc. Examiners and the tracer are the command's
    children, which cannot have more rights. They drop the capability that hides them
    (`process.hide`), as the command does once it records.
    """
    command = _read(
        Path("/proc/self/status"), "command", "unfiltered until it records", "plans and writes"
    )
    if root_part is None or command is None:
        return [] if command is None else [replace(command, seccomp="unfiltered")]
    privileged = _read(
        Path(f"/proc/{root_part}/status"), "root part", "unfiltered", "opens, checks and attaches"
    )
    none = replace(command, capabilities=0, seccomp="seccomp: what it needs")
    return [
        *([privileged] if privileged else []),
        command,
        replace(none, process="examiners", does="read what servers' users wrote"),
        replace(none, process="tracer", does="reads the kernel's records"),
    ]


def lines(rights: Sequence[Rights]) -> Iterator[str]:
    """Yields a line of text for each process."""
    for entry in rights:
        yield f"  {entry.process:<10} {entry.description}: {entry.does}"


def _read(status: Path, process: str, seccomp: str, does: str) -> Rights | None:
    try:
        text = status.read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    uid = int(fields["Uid"].split()[1])
    limited = fields["NoNewPrivs"].strip() == "1"
    capabilities = int(fields["CapPrm"], 16)
    return Rights(process, user_name(uid), capabilities.bit_count(), limited, seccomp, does)
