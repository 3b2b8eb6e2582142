# SPDX-License-Identifier: Apache-2.0
"""Show attributions; compute no energy."""
