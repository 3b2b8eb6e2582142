# SPDX-License-Identifier: Apache-2.0
"""Loads the agent into one JVM, in a process that has only the rights of the JVM's user.

    python -I -m qjoule.servers.jvm.agent_loader OPTIONS

OPTIONS is one word, written by the process that requests the agent. It holds options separated by
blanks: `PID OWN_PID [--client-tags] [--no-signal] [--seconds N]`. PID is the JVM's number, for
messages, OWN_PID that in its own pid namespace. The root part passes three descriptors, from 3 on:
a socket (SOCK_SEQPACKET) to that process, the JVM's directory in /proc, which accepts signals as a
pidfd does, and its root directory (O_PATH). The agent's files are copied into a new directory below
the JVM's root, and are deleted once the JVM has loaded them.

The result is one message on the socket: `ok DEVICE INODE` of the library's copy, with one end of
the lease (a FIFO; the agent has the other) as SCM_RIGHTS, or `error` and a line of text. The
receiver must not trust it: other processes of that user might have tampered with this one. This
process ends by itself, within `TOTAL_SECONDS` and soon after the other end of the socket is closed.

It imports only the standard library and modules that need nothing else, to start fast.
"""

from __future__ import annotations

import argparse
import os
import resource
import secrets
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from qjoule.installed import installed_files
from qjoule.process import drop_capability, hide
from qjoule.servers.access import Unreadable
from qjoule.servers.jvm.attach import CannotAttach, Jvm, load_agent
from qjoule.servers.rootfs_reader import open_directory_below

ATTACH_SECONDS = 30.0  #: a JVM answers only after a garbage collection
TOTAL_SECONDS = 45.0
MESSAGE_BYTES_MAX = 1024
ENTRY, HOOKS, LIBRARY = "qjoule-agent.jar", "hooks.jar", "libqjoule_agent.so"

_CONNECTION, _HANDLE, _ROOT = 3, 4, 5  #: descriptors
_END_SECONDS = 5.0  #: part of the total that is kept for deleting the files
_LEASE, _STATUS = "lease", "status"
_TAGS = "tags"  #: a file that makes the agent look for clients' tags
_STATUS_BYTES_MAX = 1024
_LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_FSIZE: 32 << 20,  # the agent's files are much smaller
    resource.RLIMIT_NOFILE: 64,
}
_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  #: below the JVM's root


def main() -> None:
    os.setsid()
    os.chdir("/")
    # Other processes of this user must not trace this one: its descriptors exceed their rights.
    hide()
    drop_capability()
    for limit, most in _LIMITS.items():
        resource.setrlimit(limit, (most, most))
    os.umask(0o077)
    options = _parser().parse_args(sys.argv[1].split())
    jvm = Jvm(
        options.pid,
        options.own_pid,
        _ROOT,
        _HANDLE,
        not options.no_signal,
        min(options.seconds, ATTACH_SECONDS),
    )
    signal.signal(signal.SIGALRM, _give_up)
    watched = threading.main_thread().ident
    threading.Thread(target=_watch, args=(watched,), daemon=True).start()
    message, lease = _message(jvm, client_tags=options.client_tags)
    with socket.socket(fileno=_CONNECTION) as parent, suppress(OSError):
        socket.send_fds(parent, [message.encode("utf-8", "replace")[:MESSAGE_BYTES_MAX]], lease)
    os._exit(0)  # does not wait for the watching thread


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("pid", type=int)
    parser.add_argument("own_pid", type=int)
    parser.add_argument("--client-tags", action="store_true")
    parser.add_argument("--no-signal", action="store_true", help="it would end the JVM")
    parser.add_argument("--seconds", type=float, default=ATTACH_SECONDS)
    return parser


def _message(jvm: Jvm, *, client_tags: bool) -> tuple[str, list[int]]:
    """Returns the message to answer, and the descriptors to send with it."""
    try:
        (device, inode), lease = _copy_and_load(jvm, client_tags=client_tags)
        return f"ok {device} {inode}", [lease]
    except CannotAttach as reason:
        problem = str(reason)
    except OSError as error:
        problem = f"cannot put the agent into process {jvm.pid}: {error.strerror}"
    except Exception as error:
        problem = f"the agent's loader failed: {error!r}"
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return f"error {' '.join(problem.split())}", []


def _copy_and_load(jvm: Jvm, *, client_tags: bool) -> tuple[tuple[int, int], int]:
    """Loads the agent; returns (device, inode) of the library's copy, and the lease."""
    lease = -1
    with _directory(jvm) as (directory, path):
        try:
            _copy(ENTRY, directory)
            _copy(HOOKS, directory)
            library = _copy(LIBRARY, directory)
            if client_tags:
                os.close(_create(_TAGS, directory))
            os.mkfifo(_LEASE, 0o600, dir_fd=directory)
            # With both ends open, the agent's open() does not block, and ours is the last end.
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            lease = os.open(_LEASE, flags, dir_fd=directory)
            load_agent(jvm, f"{path}/{ENTRY}", path)
            if (status := _status(directory)) != "ok":
                raise CannotAttach(f"the agent cannot work in process {jvm.pid}: {status}")
            return library, lease
        except BaseException:
            if lease >= 0:
                os.close(lease)  # removes the agent, if it was loaded
            raise


@contextmanager
def _directory(jvm: Jvm) -> Iterator[tuple[int, str]]:
    """Makes a new directory that the JVM can execute from; yields its descriptor, and its path as
    the JVM sees it.

    The JVM's user may replace it or put anything into it, at any time. So no link in it is
    followed, and entries that cannot be removed stay.
    """
    name = f"qjoule-{secrets.token_hex(8)}"
    parent, path = _parent(jvm)
    descriptor = -1
    try:
        os.mkdir(name, 0o700, dir_fd=parent)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=parent)
        yield descriptor, f"{path}/{name}"
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)  # from here on only `_END_SECONDS` apply
        if descriptor >= 0:
            for file in (ENTRY, HOOKS, LIBRARY, _LEASE, _STATUS, _TAGS):
                with suppress(OSError):
                    os.unlink(file, dir_fd=descriptor)
            os.close(descriptor)
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)
        os.close(parent)


def _parent(jvm: Jvm) -> tuple[int, str]:
    for path in _DIRECTORIES:
        with suppress(Unreadable):
            descriptor = open_directory_below(jvm.root, path)
            writable = os.access(f"/proc/self/fd/{descriptor}", os.W_OK | os.X_OK)
            if writable and not os.fstatvfs(descriptor).f_flag & os.ST_NOEXEC:
                return descriptor, path
            os.close(descriptor)
    raise CannotAttach(
        f"process {jvm.pid} has no directory to load the agent from: one of "
        f"{', '.join(_DIRECTORIES)} must be writable for its user and not mounted noexec"
    )


def _create(name: str, directory: int) -> int:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=directory)


def _copy(name: str, directory: int) -> tuple[int, int]:
    """Copies one of the agent's files; returns the copy's (device, inode)."""
    files = installed_files(name)
    if files is None:
        raise FileNotFoundError(name)
    content = files[0].read_bytes()
    with os.fdopen(_create(name, directory), "wb") as copy:
        copy.write(content)
        status = os.fstat(copy.fileno())
    return status.st_dev, status.st_ino


def _status(directory: int) -> str:
    """Reads what the agent wrote at its start. The JVM's user may have replaced the file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(_STATUS, flags, dir_fd=directory)
    except OSError:  # no file, or a symbolic link
        return "it did not say why"
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "its status is no regular file"
        status = os.read(descriptor, _STATUS_BYTES_MAX)
    finally:
        os.close(descriptor)
    return " ".join(status.decode("utf-8", "replace").split())


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    raise CannotAttach(f"loading the agent took more than {TOTAL_SECONDS:.0f} s")


def _watch(main_thread: int) -> None:
    """Ends this process when its time is up, or when the receiver has gone.

    A file system of the JVM's user (FUSE) can block a system call forever. Then the process ends
    without deleting its files.
    """
    poll = select.poll()
    poll.register(_CONNECTION, 0)  # hanging up is always reported
    poll.poll((TOTAL_SECONDS - _END_SECONDS) * 1000)
    signal.pthread_kill(main_thread, signal.SIGALRM)
    time.sleep(_END_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
