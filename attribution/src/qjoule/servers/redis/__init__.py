# SPDX-License-Identifier: Apache-2.0
"""Redis: one thread executes the commands of all connections."""
