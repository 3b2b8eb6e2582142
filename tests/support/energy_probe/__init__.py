# SPDX-License-Identifier: Apache-2.0
"""Drives ``qjoule-tracer``'s energy sources from Python, through a small C program."""
