# SPDX-License-Identifier: Apache-2.0
"""Joules per endpoint of a web shop, on a MariaDB that this program starts itself.

Needs root, as `qjoule record` does; leaves nothing behind except the trace, if requested.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule_studies.servers import start
from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.servers.process import server_directory

SHOP = Path(__file__).resolve().parent / "shop.py"
NAME = "shop"
QJOULE = (sys.executable, "-m", "qjoule")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of visits [default: 8]")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the trace here")
    options = parser.parse_args()
    try:
        with server_directory() as directory:
            walk(options.keep or directory / "trace", options.seconds)
    except (QjouleError, subprocess.CalledProcessError, OSError) as error:
        print(f"endpoints: {error}", file=sys.stderr)
        return 1
    return 0


def walk(trace: Path, seconds: float) -> None:
    """Runs the example. Raises QjouleError without a server, CalledProcessError if a
    command fails.
    """
    with start("mariadb", {}) as server:
        connect_target(server, NAME).close()
        shop = (sys.executable, str(SHOP), "--port", str(server.port), "--seconds", str(seconds))
        account = ("--user", server.user, "--database", NAME)
        record = (*QJOULE, "record", "-o", str(trace), "--pid", str(server.pid))
        subprocess.run(
            [*record, "--", *QJOULE, "run", "--tag", "release=1.0", "--", *shop, *account],
            env={**os.environ, "MARIADB_PASSWORD": server.password},
            check=True,
        )
    subprocess.run([*QJOULE, "attribute", str(trace), "--by", "tag:http.route"], check=True)


if __name__ == "__main__":
    sys.exit(main())
