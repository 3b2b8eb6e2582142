"""The program that a recording is made of: the user's, run as the user."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.live.privileges import unprivileged_user


def start_program(
    program: tuple[str, ...], directory: Path, ended: Callable[[], None]
) -> subprocess.Popen[bytes]:
    """Runs a command as the user of sudo, if there is one.

    Args:
        directory: where it runs.
        ended: called once when it has ended, on a thread of its own.

    Raises:
        QjouleError: there is no such program, or it cannot be run.
    """
    environment = dict(os.environ)
    user: dict[str, object] = {}
    if environment.get("SUDO_UID"):
        account = unprivileged_user()
        environment["HOME"] = account.pw_dir
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    try:
        child: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            program, env=environment, cwd=directory, **user
        )
    except OSError as error:
        raise QjouleError(f"cannot start {program[0]}: {error.strerror}") from None

    def watch() -> None:
        child.wait()
        ended()

    threading.Thread(target=watch, name="qjoule-child", daemon=True).start()
    return child


def exit_code(child: subprocess.Popen[bytes]) -> int:
    """Waits for a program; its code, or as of shells 128 and the signal that ended it."""
    code = child.wait()
    return code if code >= 0 else 128 - code
