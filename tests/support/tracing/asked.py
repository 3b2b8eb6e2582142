# SPDX-License-Identifier: Apache-2.0
"""Runs the code on standard input, for `asking.asked`."""

import sys

exec(sys.stdin.read())
