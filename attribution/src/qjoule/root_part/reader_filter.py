# SPDX-License-Identifier: Apache-2.0
"""Limits which system calls the command may make while it reads the tracer's stream (seccomp(2)).

By then everything is opened and started. The command reads and writes files of its user and uses
its open sockets. It starts no program, traces no process, and changes no rights. The list comes
from strace(1) of recordings and live views, plus the alternatives their libraries use elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from qjoule.errors import QjouleError
from qjoule.installed import installed_files

_MEMORY = "brk madvise mincore mmap mprotect mremap munmap membarrier"
_THREADS = (
    "clone exit exit_group futex get_robust_list gettid rseq sched_getaffinity sched_getparam "
    "sched_getscheduler sched_yield set_robust_list set_tid_address getcpu arch_prctl"
)
_TIME = (
    "clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time "
    "timer_create timer_delete timer_settime timerfd_create timerfd_settime"
)
_SIGNALS = (
    "pause restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend "
    "rt_sigtimedwait sigaltstack tgkill"
)
_FILES = (
    "access chdir close close_range dup dup2 dup3 faccessat faccessat2 fadvise64 fallocate fchdir "
    "fcntl fdatasync flock fstat fstatfs fsync ftruncate getcwd getdents64 ioctl lseek lstat mkdir "
    "mkdirat newfstatat open openat pread64 preadv pwrite64 pwritev read readlink readlinkat readv "
    "rename renameat renameat2 rmdir stat statfs statx sync_file_range umask unlink unlinkat "
    "utimensat write writev copy_file_range sendfile"
)
_WAITING = (
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd2 pipe pipe2 "
    "poll ppoll pselect6 select wait4 waitid"
)
#: Calls on existing sockets. New ones can only be pairs.
_SOCKETS = (
    "accept accept4 getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg "
    "sendmsg sendto setsockopt shutdown socketpair"
)
_ABOUT = (
    "getegid geteuid getgid getgroups getpgrp getpid getppid getpriority getrandom getresgid "
    "getresuid getrlimit getrusage getsid getuid prlimit64 sysinfo times uname"
)
_ALLOWED = " ".join(
    (_MEMORY, _THREADS, _TIME, _SIGNALS, _FILES, _WAITING, _SOCKETS, _ABOUT)
).split()

#: Calls that processes beside a recording never need.
_STARTING = (
    "execve execveat bind ptrace process_vm_readv process_vm_writev bpf perf_event_open mount "
    "unshare setns keyctl init_module finit_module"
)
_CONNECTING = "socket connect"

#: Calls of the process that answers scrapers: it uses connections that it accepts.
_LISTENING = (
    "accept accept4 close epoll_ctl epoll_wait fcntl fstat getpeername getsockname getsockopt "
    "getpid gettid ioctl lseek poll ppoll pread64 read recvfrom recvmsg sendto setsockopt shutdown "
    "write writev"
)

_TYPING = (0x5412, 0x541C)  #: TIOCSTI, TIOCLINUX: asm-generic/ioctls.h
_CLONE_THREAD = 0x00010000  #: linux/sched.h
_LIBRARY = "libseccomp.so.2"
#: seccomp.h of libseccomp
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_REFUSE = _ERROR | errno.EPERM
_CONTROL_TSYNC = 4
_MASKED_EQUAL = 7


class _Compare(ctypes.Structure):
    """struct scmp_arg_cmp"""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


def confine_reader() -> None:
    """Restricts every thread of this process, for good, to the calls allowed above.

    Other calls fail with EPERM.

    Raises:
        QjouleError: the kernel has no such filters.
    """
    with _filter(_REFUSE) as rules:
        for name in _ALLOWED:
            flags = (_masked(0, _CLONE_THREAD, _CLONE_THREAD),) if name == "clone" else ()
            rules.add(_ALLOW, name, *flags)
        # clone3 has its flags in memory, which no filter can see. With ENOSYS libraries use clone.
        rules.add(_ERROR | errno.ENOSYS, "clone3")


def confine_listener() -> None:
    """Restricts this single-threaded process to memory, clocks and its connections. It can open no
    files or sockets and start nothing. Raises as `confine_reader` does."""
    allowed = f"{_MEMORY} {_THREADS} {_TIME} {_SIGNALS} {_LISTENING} getrandom"
    with _filter(_REFUSE) as rules:
        for name in allowed.split():
            if name != "clone":
                rules.add(_ALLOW, name)


def keep_from_typing() -> None:
    """Keeps this process's threads and children from typing into the user's terminal (TIOCSTI).

    The waiting shell may be root's and would run what was typed. Raises as `confine_reader` does.
    """
    with _filter(_ALLOW) as rules:
        for command in _TYPING:
            rules.add(_REFUSE, "ioctl", _masked(1, 0xFFFFFFFF, command))


def keep_from_starting(*, connecting: bool = False) -> None:
    """Keeps this process from running programs, reaching other processes and, unless `connecting`,
    opening sockets.

    For the reattach helper (which starts examiner processes), the credential helper, and the sender
    of metrics. Raises as `confine_reader` does.
    """
    with _filter(_ALLOW) as rules:
        for name in (_STARTING if connecting else f"{_STARTING} {_CONNECTING}").split():
            rules.add(_REFUSE, name)


class _Rules:
    def __init__(self, library: ctypes.CDLL, default: int) -> None:
        self._library = library
        library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(default)))
        _check(0 if self.context else -errno.ENOMEM)

    def add(self, action: int, name: str, *compare: _Compare) -> None:
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:  # this architecture has no call of that name
            return
        array = (_Compare * len(compare))(*compare)
        add = self._library.seccomp_rule_add_array
        _check(add(self.context, ctypes.c_uint32(action), number, len(compare), array))


@contextmanager
def _filter(default: int) -> Iterator[_Rules]:
    """Yields rules for a filter, which is loaded beside existing filters when the block ends."""
    try:
        ours = installed_files(_LIBRARY)  # a wheel brings its own
        library = ctypes.CDLL(str(ours[0]) if ours else _LIBRARY)
        rules = _Rules(library, default)
        try:
            yield rules
            _check(library.seccomp_attr_set(rules.context, _CONTROL_TSYNC, ctypes.c_uint32(1)))
            _check(library.seccomp_load(rules.context))
        finally:
            library.seccomp_release(rules.context)
    except OSError as error:
        raise QjouleError(f"cannot confine this process: {error.strerror or error}") from None


def _masked(argument: int, mask: int, value: int) -> _Compare:
    return _Compare(argument, _MASKED_EQUAL, mask, value)


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
