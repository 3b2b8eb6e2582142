# SPDX-License-Identifier: Apache-2.0
"""What the five studies printed, recomputed from their own numbers."""
