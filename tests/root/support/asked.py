"""What `asking.asked` has run: the code on standard input."""

import sys

exec(sys.stdin.read())
