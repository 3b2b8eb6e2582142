# SPDX-License-Identifier: Apache-2.0
"""Blocks of the tracer, decoded once: what a recording and the live view keep of them."""
