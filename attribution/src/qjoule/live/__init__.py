# SPDX-License-Identifier: Apache-2.0
"""The session behind the live view: makes snapshots for the view to show."""
