"""What the command may still ask of the kernel while it reads what the tracer says (seccomp(2)).

By then all is opened and started. It reads and writes files of its user, and talks over sockets
that it has; it starts no program, traces no process, and changes no right. The list is of
recordings and live views under strace(1), and of what their libraries do elsewhere instead.
"""

from __future__ import annotations

import ctypes
import errno
import os

from qjoule.errors import QjouleError

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
#: Of sockets that there are; of new ones only pairs.
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

_CLONE_THREAD = 0x00010000  #: linux/sched.h
#: seccomp.h of libseccomp
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
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
    """From here on every thread of this process may do what is allowed above, for good.

    What is not fails with EPERM.

    Raises:
        QjouleError: there are no such filters here.
    """
    try:
        library = ctypes.CDLL("libseccomp.so.2")
        library.seccomp_init.restype = ctypes.c_void_p
        context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERROR | errno.EPERM)))
        _check(0 if context else -errno.ENOMEM)
        try:
            _check(library.seccomp_attr_set(context, _CONTROL_TSYNC, ctypes.c_uint32(1)))
            for name in _ALLOWED:
                _allow(library, context, name)
            # Its flags lie in memory, where no filter sees them: libraries then use clone.
            _allow(library, context, "clone3", _ERROR | errno.ENOSYS)
            _check(library.seccomp_load(context))
        finally:
            library.seccomp_release(context)
    except OSError as error:
        raise QjouleError(f"cannot confine this process: {error.strerror or error}") from None


def _allow(library: ctypes.CDLL, context: ctypes.c_void_p, name: str, action: int = _ALLOW) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number < 0:  # this architecture has none of that name
        return
    threads_only = _Compare(0, _MASKED_EQUAL, _CLONE_THREAD, _CLONE_THREAD)
    count = int(name == "clone")
    rule = ctypes.c_uint(count), ctypes.byref(threads_only)
    _check(library.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, *rule))


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
