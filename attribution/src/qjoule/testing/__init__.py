# SPDX-License-Identifier: Apache-2.0
"""For tests of applications: checks a test's queries against a budget of joules.

To keep test runs without the marker fast, nothing here imports numpy, pyarrow or other heavy
modules. The heavy work runs as the commands `qjoule record` and `qjoule attribute`.
"""
