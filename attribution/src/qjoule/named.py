# SPDX-License-Identifier: Apache-2.0
"""Directories that root named on the command line, for a command that has given up root."""

#: Descriptors (O_PATH) by the words. Our user may not be allowed to pass what is above them, and
#: needs rights of its own for all that is in them.
NAMED: dict[str, int] = {}
