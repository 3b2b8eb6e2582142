# SPDX-License-Identifier: Apache-2.0
"""The session behind the live view: where snapshots come from, and what the view does with them."""
