# SPDX-License-Identifier: Apache-2.0
"""Pure functions on arrays: segments, windows and energy to joules per owner."""
