# SPDX-License-Identifier: Apache-2.0
"""The directory that a trace is written to. Private to its owner, unless a group shares it."""

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
def inside(directory: Path, group: int | None = None) -> Iterator[None]:
    """Makes a new directory, or an empty one of ours, the working directory.

    It is made with our own rights if they suffice, else by the root part, for our user. Afterwards
    the working directory is /. If the block fails before it has written anything, a directory made
    here is removed.

    Args:
        group: whose members may read it; None: only its owner may.

    Raises:
        QjouleError: it cannot be made, or is not empty.
    """
    made = not os.path.lexists(directory)
    where = directory.absolute()
    descriptor = _open(directory, group)
    try:
        os.fchdir(descriptor)
        try:
            yield
        except BaseException:
            if made:
                with suppress(OSError):  # not empty, or only the root part may remove it
                    where.rmdir()
            raise
        finally:
            os.chdir("/")  # nothing needs the directory in which root started
    except OSError as error:
        raise QjouleError(f"cannot write to {directory}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)


def _open(directory: Path, group: int | None) -> int:
    """Makes the directory; a descriptor of it."""
    try:
        if group is not None:
            return _by_root_part(directory, group)
        directory.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return _empty(directory)
    except OSError as error:
        if root_part().connection is None:
            raise QjouleError(
                f"cannot write to {directory}: {error.strerror}; give another directory"
            ) from None
        return _by_root_part(directory, None)
    return os.open(directory, _FLAGS | os.O_NOFOLLOW)


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


def _by_root_part(directory: Path, group: int | None) -> int:
    try:
        return root_part().directory(directory, group)
    except Refused as error:
        if error.errno == errno.EEXIST:
            raise QjouleError(f"{directory} is there and not {us()}'s: {_ELSE}") from None
        raise QjouleError(f"cannot write to {directory}: {why(error)}; {_ELSE}") from None


_ELSE = "give another directory"
