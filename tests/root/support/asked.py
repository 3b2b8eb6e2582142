# SPDX-License-Identifier: Apache-2.0
"""What `asking.asked` has run: the code on standard input."""

import sys

exec(sys.stdin.read())
