# SPDX-License-Identifier: Apache-2.0
"""What is read of a JVM from outside, and how an agent is loaded into one."""
