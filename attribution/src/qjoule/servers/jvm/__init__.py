# SPDX-License-Identifier: Apache-2.0
"""Reads a JVM from outside, and loads an agent into one."""
