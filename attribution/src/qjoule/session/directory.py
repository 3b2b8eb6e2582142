# SPDX-License-Identifier: Apache-2.0
"""Opens the directory that a trace is written to, which only its owner can enter."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.client import refusal_message, root_part, us
from qjoule.root_part.protocol import Refused

_FLAGS = os.O_RDONLY | os.O_DIRECTORY


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """Makes a new directory, or an existing empty one, the working directory.

    The root part creates it for the calling user, unless our own user can: its parent is ours, or
    root named our user. Afterwards the working directory is /. If the block fails before it has
    written anything, a directory that was created here is removed.

    Raises:
        QjouleError: it cannot be created, or is not empty.
    """
    is_new = not os.path.lexists(directory)
    where = directory.absolute()
    descriptor = _create(directory)
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


def _create(directory: Path) -> int:
    """Creates the directory and returns a descriptor of it."""
    is_named = "QJOULE_UID" in os.environ  # root named a user, who creates directories itself
    if root_part().connection is not None and not is_named and not _is_ours(directory):
        return _create_by_root_part(directory)
    try:
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return _open_empty(directory)
    except OSError as error:
        raise QjouleError(f"cannot write to {directory}: {error.strerror}; {_ELSE}") from None
    return os.open(directory, _FLAGS | os.O_NOFOLLOW)


def _is_ours(directory: Path) -> bool:
    """Returns true if the directory, or else its parent, belongs to our user."""
    existing = directory if os.path.lexists(directory) else directory.parent
    try:
        return existing.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _open_empty(directory: Path) -> int:
    """Opens an existing directory."""
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


def _create_by_root_part(directory: Path) -> int:
    try:
        descriptor = root_part().directory(directory)
    except Refused as error:
        if error.errno == errno.EEXIST:
            raise QjouleError(
                f"{directory} is there, and not empty or not yours: {_ELSE}"
            ) from None
        raise QjouleError(
            f"cannot write to {directory}: {refusal_message(error)}; {_ELSE}"
        ) from None
    if os.fstat(descriptor).st_uid != os.getuid():
        os.umask(0o022)  # lets the caller read the files; nobody else can enter
    return descriptor


_ELSE = "give another directory"
