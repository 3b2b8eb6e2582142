# SPDX-License-Identifier: Apache-2.0
"""What this machine is: CPU, kernel, privileges, energy sources."""
