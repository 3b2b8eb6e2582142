# SPDX-License-Identifier: Apache-2.0
"""Starts the tracer and gives up rights, in one order for every command that traces."""
