# SPDX-License-Identifier: Apache-2.0
"""The directory that a trace is written to. Private to its owner."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.client import root_part, us, why
from qjoule.root_part.protocol import Refused

_FLAGS = os.O_RDONLY | os.O_DIRECTORY


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """Makes a new directory, or an empty one, the working directory.

    The root part makes it, for who called us, unless it is in a directory of ours, or root named
    our user. Afterwards the
    working directory is /. If the block fails before it has written anything, a directory made here
    is removed.

    Raises:
        QjouleError: it cannot be made, or is not empty.
    """
    is_new = not os.path.lexists(directory)
    where = directory.absolute()
    descriptor = _open(directory)
    try:
        os.fchdir(descriptor)
        try:
            yield
        except BaseException:
            if is_new:
                with suppress(OSError):  # not empty, or only the root part may remove it
                    where.rmdir()
            raise
        finally:
            os.chdir("/")  # nothing needs the directory in which root started
    except OSError as error:
        raise QjouleError(f"cannot write to {directory}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)


def _open(directory: Path) -> int:
    """Makes the directory; a descriptor of it."""
    is_named = "QJOULE_UID" in os.environ  # by root: such a user makes its directories itself
    if root_part().connection is not None and not is_named and not _is_ours(directory):
        return _by_root_part(directory)
    try:
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return _empty(directory)
    except OSError as error:
        raise QjouleError(f"cannot write to {directory}: {error.strerror}; {_ELSE}") from None
    return os.open(directory, _FLAGS | os.O_NOFOLLOW)


def _is_ours(directory: Path) -> bool:
    """Whether the directory, or what it would be made in, is our user's."""
    existing = directory if os.path.lexists(directory) else directory.parent
    try:
        return existing.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _empty(directory: Path) -> int:
    """Opens a directory that exists already."""
    try:
        descriptor = os.open(directory, _FLAGS)
    except NotADirectoryError:
        raise QjouleError(f"{directory} is no directory: give another") from None
    except OSError as error:
        raise QjouleError(f"cannot write to {directory}: {error.strerror}; {_ELSE}") from None
    try:
        with os.scandir(descriptor) as names:
            is_empty = next(names, None) is None
        if not is_empty:
            raise QjouleError(f"{directory} is not empty: give another directory")
        if os.fstat(descriptor).st_uid != os.getuid():
            raise QjouleError(f"{directory} is there and not {us()}'s: {_ELSE}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _by_root_part(directory: Path) -> int:
    try:
        descriptor = root_part().directory(directory)
    except Refused as error:
        if error.errno == errno.EEXIST:
            raise QjouleError(
                f"{directory} is there, and not empty or not yours: {_ELSE}"
            ) from None
        raise QjouleError(f"cannot write to {directory}: {why(error)}; {_ELSE}") from None
    if os.fstat(descriptor).st_uid != os.getuid():
        os.umask(0o022)  # for the caller, whose directory it is: nobody else can enter it
    return descriptor


_ELSE = "give another directory"
