#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what a wheel consists of and requires, as CycloneDX 1.5 JSON.

usage: sbom.py --embedded          of this tree, for the inside of the wheel
       sbom.py WHEEL               of a finished wheel, with its checksum
       sbom.py --bundled DIRECTORY WHEEL
                                   with the exact distributions of a site-packages directory
With --versions FILE, libraries have its versions.

Static libraries have the versions of the Debian packages that they are linked from. The same tree
and packages give the same bytes: https://cyclonedx.org/docs/1.5/json/.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[2]
#: Debian's package to link from, and the licence of what is linked.
LINKED = {
    "libbpf-dev": ("libbpf", "LGPL-2.1-only OR BSD-2-Clause"),
    "libelf-dev": ("elfutils", "GPL-2.0-or-later OR LGPL-3.0-or-later"),
    "zlib1g-dev": ("zlib", "Zlib"),
    "libseccomp-dev": ("libseccomp", "LGPL-2.1-only"),
    "libzstd-dev": ("zstd", "BSD-3-Clause OR GPL-2.0-only"),
    "libxxhash-dev": ("xxhash", "BSD-2-Clause"),
}
_STATIC = "linked statically"
_USES = {"libseccomp": "linked statically, and a copy of the shared library"}
VENDOR = TREE / "attribution/src/qjoule/report/vendor"
#: name-1.2.3.min.js, with its licence.
_VENDORED = re.compile(r"(.+)-(\d[\d.]*)\.min\.js")
_VENDOR_LICENCES = {"d3-hierarchy": "ISC", "tanstack-table-core": "MIT", "uPlot": "MIT"}
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(;.*)?$")
Component = dict[str, Any]


def linked(versions: Path | None) -> Iterator[Component]:
    """The static libraries, with the versions of that file, or else of the installed packages."""
    known = dict(line.split() for line in versions.read_text().splitlines()) if versions else {}
    for package, (name, licence) in sorted(LINKED.items()):
        found = known.get(package) if versions else _installed(package)
        if not found:
            sys.exit(f"sbom: {package} is not installed: its version is not known")
        yield {
            "type": "library",
            "name": name,
            "version": found,
            "purl": f"pkg:deb/debian/{package}@{found}",
            "licenses": [{"expression": licence}],
            "properties": [{"name": "qjoule:use", "value": _USES.get(name, _STATIC)}],
        }


def _installed(package: str) -> str:
    """The version of a Debian package; empty: it is not installed."""
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if shown.returncode else shown.stdout


def vendored() -> Iterator[Component]:
    """Scripts of the report's page."""
    for path in sorted(VENDOR.glob("*.min.js")):
        found = _VENDORED.fullmatch(path.name)
        if found is None:
            sys.exit(f"sbom: {path.name} is not called NAME-VERSION.min.js")
        name, version = found.groups()
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{"license": {"id": _VENDOR_LICENCES[name]}}],
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
            "properties": [{"name": "qjoule:use", "value": "copied"}],
        }


def required(requirements: list[str]) -> Iterator[Component]:
    """Distributions that pip will install, with the ranges that are allowed."""
    for requirement in sorted(requirements):
        found = _REQUIREMENT.match(requirement)
        if found is None or "extra" in (found[3] or ""):
            continue
        name, allowed = found[1].lower(), found[2].strip()
        yield {
            "type": "library",
            "name": name,
            "purl": f"pkg:pypi/{name}",
            "properties": [
                {"name": "qjoule:use", "value": "required"},
                {"name": "qjoule:range", "value": allowed},
            ],
        }


def bundled(directory: Path) -> Iterator[Component]:
    """Distributions beside qjoule in a directory of site-packages."""
    found = {(one.name.lower(), one.version) for one in distributions(path=[str(directory)])}
    for name, version in sorted(found):
        if not name.startswith("qjoule"):
            yield {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version}",
                "properties": [{"name": "qjoule:use", "value": "bundled"}],
            }


def bill(components: list[Component], version: str, wheel: Path | None) -> dict[str, Any]:
    subject: Component = {
        "type": "application",
        "name": "qjoule",
        "version": version,
        "purl": f"pkg:pypi/qjoule@{version}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    if wheel is not None:
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        subject["hashes"] = [{"alg": "SHA-256", "content": digest}]
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    content = json.dumps([subject, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": subject},
        "components": components,
    }


def _of_tree() -> tuple[str, list[str]]:
    project = tomllib.loads((TREE / "attribution/pyproject.toml").read_text())["project"]
    init = (TREE / "attribution/src/qjoule/__init__.py").read_text()
    found = re.search(r'^__version__ = "(.+)"$', init, re.MULTILINE)
    assert found
    return found[1], project["dependencies"]


def _of_wheel(wheel: Path) -> tuple[str, list[str]]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    return metadata["Version"], metadata.get_all("Requires-Dist") or []


def main() -> None:
    parser = argparse.ArgumentParser(description="What a wheel consists of, as CycloneDX.")
    parser.add_argument("--embedded", action="store_true", help="of this tree")
    parser.add_argument("--bundled", metavar="DIRECTORY", type=Path, help="with what is in it")
    parser.add_argument("--versions", metavar="FILE", type=Path, help="lines of PACKAGE VERSION")
    parser.add_argument("wheel", type=Path, nargs="?")
    chosen = parser.parse_args()
    if chosen.embedded == (chosen.wheel is not None):
        parser.error("name a wheel, or say --embedded")
    version, requirements = _of_tree() if chosen.embedded else _of_wheel(chosen.wheel)
    others = bundled(chosen.bundled) if chosen.bundled else required(requirements)
    found = bill([*linked(chosen.versions), *vendored(), *others], version, chosen.wheel)
    json.dump(found, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
