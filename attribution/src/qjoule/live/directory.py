"""The directory that a trace is written to, after root has been given up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.live.privileges import unprivileged_user


@contextmanager
def inside(directory: Path) -> Iterator[None]:
    """A new directory that belongs to who will write it, as the working directory.

    As the working directory it can be written once root is given up, even below /root.
    If the block fails before it has written anything, a directory that was made here goes again.
    Raises `QjouleError` if it cannot be made, or is not empty.
    """
    user = unprivileged_user()
    before = os.open(".", os.O_RDONLY)
    made = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise QjouleError(f"{directory} is not empty: give another directory")
        os.chown(directory, user.pw_uid, user.pw_gid)
        os.chdir(directory)
        try:
            yield
        except BaseException:
            if made:
                with suppress(OSError):  # not empty
                    Path.cwd().rmdir()
            raise
    except FileExistsError as error:
        raise QjouleError(f"{directory} is no directory: give another") from error
    except OSError as error:
        why = error.strerror or error
        raise QjouleError(f"cannot write to {directory}: {why}; give another directory") from error
    finally:
        os.fchdir(before)
        os.close(before)
