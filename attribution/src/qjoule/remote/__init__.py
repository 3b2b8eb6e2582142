# SPDX-License-Identifier: Apache-2.0
"""`top` and `record` on another machine, through a command such as ssh (`--via`)."""
