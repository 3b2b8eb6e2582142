# SPDX-License-Identifier: Apache-2.0
"""Shapes: statements without their literals. This package is independent of the language.

The languages are in their servers' folders (``servers/<server>/wire.py``). To compute the shape of
a statement in any of them, call :func:`qjoule.servers.decoding.fingerprint`.
"""
