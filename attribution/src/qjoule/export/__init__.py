# SPDX-License-Identifier: Apache-2.0
"""A trace's joules as files of other tools: profilers, and viewers of traces."""
