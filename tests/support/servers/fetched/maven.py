# SPDX-License-Identifier: Apache-2.0
"""Artefacts of a Maven repository, fetched by `mvn` and compared with hashes of this tree."""

from __future__ import annotations

import shutil
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
        found = {file.name for file in directory.iterdir()}
        if odd := sorted(found.symmetric_difference(expected)):
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
