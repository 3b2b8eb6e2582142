# SPDX-License-Identifier: Apache-2.0
"""Shapes: statements without their literals. This package has what holds for every language.

The languages are in their servers' folders (``servers/<server>/wire.py``). To get the shape of a
statement in any of them, call :func:`qjoule.servers.decoding.fingerprint`.
"""
