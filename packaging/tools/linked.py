#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds to an SBOM (CycloneDX JSON, standard input) what no Python tool knows: libraries that are
linked statically, and scripts of the report's page.

usage: linked.py [VERSIONS]     a file with lines of PACKAGE VERSION; else those of this machine
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
#: Debian's package to link from, and the licence of what is linked.
LINKED = {
    "libbpf-dev": "LGPL-2.1-only OR BSD-2-Clause",
    "libelf-dev": "GPL-2.0-or-later OR LGPL-3.0-or-later",
    "libseccomp-dev": "LGPL-2.1-only",
    "libxxhash-dev": "BSD-2-Clause",
    "libzstd-dev": "BSD-3-Clause OR GPL-2.0-only",
    "zlib1g-dev": "Zlib",
}
SCRIPTS = {"d3-hierarchy": "ISC", "tanstack-table-core": "MIT", "uPlot": "MIT"}


def components(versions: dict[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Name, version, package URL and licence."""
    for name, licence in LINKED.items():
        yield name, versions[name], f"pkg:deb/debian/{name}@{versions[name]}", licence
    for path in sorted((TREE / "attribution/src/qjoule/report/vendor").glob("*.min.js")):
        name, version = path.name.removesuffix(".min.js").rsplit("-", 1)
        yield name, version, f"pkg:generic/{name}@{version}", SCRIPTS[name]


def main() -> None:
    show = ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n", *LINKED]
    if len(sys.argv) > 1:
        lines = Path(sys.argv[1]).read_text()
    else:
        lines = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    bill = json.load(sys.stdin)
    bill["components"] += [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": purl,
            "licenses": [{"expression": licence}],
        }
        for name, version, purl, licence in components(dict(map(str.split, lines.splitlines())))
    ]
    init = (TREE / "attribution/src/qjoule/__init__.py").read_text()
    (bill["metadata"]["component"]["version"],) = re.findall(r'__version__ = "(.+)"', init)
    json.dump(bill, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
