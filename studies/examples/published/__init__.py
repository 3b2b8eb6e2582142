# SPDX-License-Identifier: Apache-2.0
"""The printed results of the five studies, recomputed from their own numbers."""
