# SPDX-License-Identifier: Apache-2.0
"""For tests of applications: holding a test's queries to a budget of joules.

Nothing in here imports numpy or pyarrow, nor anything else that a test run without the marker
would pay for: what is heavy runs as the commands `qjoule record` and `qjoule attribute`.
"""
