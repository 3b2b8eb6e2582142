# SPDX-License-Identifier: Apache-2.0
"""Starts the tracer and gives up root's rights, in the same order for every command that traces."""
