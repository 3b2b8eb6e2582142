# SPDX-License-Identifier: Apache-2.0
"""How a generic server is recognised after a restart.

The executable alone would be enough for a program that is only this server. But it may be a runtime
(java, python3) that runs other programs too, and no list of runtimes is ever complete. So the
command line must be the same as well: the kernel side hashes it when a process starts, and
compares.

A server that replaced its command line by a title (nginx, sshd) is recognised by its executable if
the title names that, and otherwise not at all. Missing a restart, and reporting so, is better than
taking a stranger for the server.
"""

from __future__ import annotations

from qjoule.servers.candidate import COMMAND_LINE_BYTES_MAX, Candidate
from qjoule.servers.types import Restart

#: FNV-1a (RFC 9923), over 64-bit words; the same in bpf/core/task.bpf.h.
_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3
_HASHED_BYTES = 65536
_PATH_MAX = 4096
_U64 = (1 << 64) - 1


def arguments_hash(command_line: bytes) -> int:
    """Hash of a command line as the kernel keeps it: each word ends with a zero byte."""
    value = (_OFFSET ^ len(command_line)) * _PRIME & _U64
    hashed = command_line[:_HASHED_BYTES]
    for start in range(0, len(hashed), 8):
        word = int.from_bytes(hashed[start : start + 8], "little")
        value = (value ^ word) * _PRIME & _U64
    return value


def restart_of(candidate: Candidate) -> Restart:
    """How a restart of this process is recognised."""
    command_line = candidate.command_line
    words = command_line.removesuffix(b"\0").split(b"\0", 1)
    # The kernel side hashes the whole command line, so a partly read one has no hash here.
    whole = len(command_line) <= COMMAND_LINE_BYTES_MAX and command_line.endswith(b"\0")
    last = command_line.removesuffix(b"\0").rpartition(b"\0")[2]
    if whole and words[0] and last and not _is_title(words):
        why = "a restart is known by its executable and arguments"
        return Restart("arguments", why, arguments_hash(command_line))
    first = words[0].split(b" ", 1)[0].rstrip(b":").decode(errors="replace")
    if _names_executable(first, candidate):
        return Restart("executable", "a restart is known by its executable")
    return Restart("never", "a restart is not seen: its command line is not what it started with")


def _is_title(words: list[bytes]) -> bool:
    """One word that contains several, as setproctitle() leaves it."""
    return len(words) == 1 and b" " in words[0]


def _names_executable(word: str, candidate: Candidate) -> bool:
    """`/usr/sbin/nginx` or `sshd`; the executable may be a link's target."""
    if not word or len(word) > _PATH_MAX:
        return False
    beside = candidate.exe_name.rpartition("/")[0] + "/" + word.rpartition("/")[2]
    paths = (word if word.startswith("/") else beside, beside)
    itself = candidate.exe_id
    return itself is not None and any(candidate.access.file_id(path) == itself for path in paths)
