# SPDX-License-Identifier: Apache-2.0
"""Show attributions; they compute no energy."""
