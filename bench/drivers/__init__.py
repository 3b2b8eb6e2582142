# SPDX-License-Identifier: Apache-2.0
"""What the driver shims cost an application, call by call."""
