# SPDX-License-Identifier: Apache-2.0
"""Keeps other processes of our user out of this one: they could take a socket to the root part
from it (pidfd_getfd(2)), or make it send what they like (ptrace(2)).

A new program can be looked into until it calls `hide`. Until then a capability keeps them out: the
root part leaves CAP_SETPCAP to the programs that it starts (tracer/root/rights.c), which permits
nothing because the bounding set is empty, and which the others lack.
"""

import ctypes
import os

_PR_SET_DUMPABLE, _PR_CAP_AMBIENT = 4, 47  #: prctl(2)
_IS_SET, _CLEAR_ALL = 1, 4  #: PR_CAP_AMBIENT_...
_SETPCAP = 8  #: linux/capability.h
_VERSION_3 = 0x20080522  #: capset(2), linux/capability.h: two words for each of three sets
_libc = ctypes.CDLL(None, use_errno=True)


def hide() -> None:
    """From here on no process without CAP_SYS_PTRACE looks into this one. Raises OSError."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def drop_capability() -> None:
    """This thread and what it starts have no capability from here on, if the root part started us.
    Raises OSError.
    """
    if _libc.prctl(_PR_CAP_AMBIENT, _IS_SET, _SETPCAP, 0, 0) != 1:
        return
    _check(_libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0))
    _check(_libc.capset((ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
