# SPDX-License-Identifier: Apache-2.0
"""The entry point: hands what needs root to the root part, before any other import.

`sudo qjoule record` replaces itself by `qjoule-root`. That runs this file's command again without
any rights, and answers its requests. `sudo qjoule convert` needs nothing of root and gives it up.
"""

import _signal
import os
import sys

_NEED_IT = ("record", "top", "calibrate", "doctor", "agent")
#: These read or print files, or start recordings that each have a root part.
_WITHOUT = ("--replay", "--physical", "--check", "--example", "--files", "--via")
_HERE = os.path.dirname(os.path.abspath(__file__))
#: In the package (a wheel), or beside Python (`make build`): see `qjoule.installed`.
_PLACES = (f"{_HERE}/programs", os.path.dirname(sys.executable), "/usr/lib/qjoule", "/usr/bin")


def main() -> None:
    """Runs the command of our command line; does not return."""
    # Until `interrupts.end_at_once`: Python prints a traceback where one comes before.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
    args = sys.argv[1:]
    command = next((word for word in args if not word.startswith("-")), "")
    options = args[: args.index("--")] if "--" in args else args
    without = any(word.split("=")[0] in _WITHOUT for word in options)
    # `import` reads files with the caller's rights, but inspects servers as all others do.
    if os.geteuid() == 0 and (command in _NEED_IT or "--print-commands" in options) and not without:
        for program in (f"{place}/qjoule-root" for place in _PLACES):
            if os.path.exists(program):
                os.execv(program, [program, sys.executable, "-I", f"{_HERE}/__main__.py", *args])
        sys.exit(f"qjoule: qjoule-root is not installed beside {sys.executable}: run 'make'")
    # A command that stays root starts again with -I, which pip's script lacks: the environment may
    # be the caller's. But workloads of `bench` are modules on PYTHONPATH.
    if os.geteuid() == 0 and not sys.flags.isolated and command != "bench":
        os.execv(sys.executable, [sys.executable, "-I", f"{_HERE}/__main__.py", *args])
    from qjoule.command_line import main as run  # noqa: PLC0415 (not to run as root)

    run()
