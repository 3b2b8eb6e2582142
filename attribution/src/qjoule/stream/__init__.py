# SPDX-License-Identifier: Apache-2.0
"""Decodes the tracer's blocks once, for recordings and for the live view."""
