"""Giving up root, for good, once the tracer is attached.

We become the user of sudo; without sudo `nobody`. Where `nobody` cannot read the very code that
runs (an installation below /root), we stay root in name but without a single capability.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import sys
from pathlib import Path

import qjoule
from qjoule.errors import QjouleError

#: prctl(2), include/uapi/linux/prctl.h and securebits.h
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_NOROOT_AND_LOCKED = 0b11
_CAPABILITY_VERSION_3 = 0x20080522  #: capset(2)


def unprivileged_user() -> pwd.struct_passwd:
    """Who reads the stream, and owns the trace, once root is given up."""
    uid = os.environ.get("SUDO_UID", "")
    if uid.isdigit() and int(uid) != 0:
        try:
            return pwd.getpwuid(int(uid))
        except KeyError:
            pass
    readable = all(map(_open_to_all, (Path(sys.prefix), Path(qjoule.__file__))))
    return pwd.getpwnam("nobody" if readable else "root")


def drop_root() -> None:
    """Becomes `unprivileged_user()`, with no way back.

    Raises:
        QjouleError: the kernel refused.
    """
    if os.geteuid() != 0:
        return
    user = unprivileged_user()
    try:
        _drop_bounding_set()
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        _drop_capabilities()
    except OSError as error:
        raise QjouleError(f"cannot give up root: {error.strerror}") from error
    os.environ["HOME"] = user.pw_dir


def _open_to_all(path: Path) -> bool:
    """Whether everybody may read a file or directory, and enter what it lies in."""
    resolved = path.resolve()
    return bool(resolved.stat().st_mode & stat.S_IROTH) and all(
        parent.stat().st_mode & stat.S_IXOTH for parent in resolved.parents
    )


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _drop_bounding_set() -> None:
    """No program that we might start gets a capability, whatever its file says."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_SET_SECUREBITS, _NOROOT_AND_LOCKED)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, none):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
