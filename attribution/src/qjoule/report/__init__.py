# SPDX-License-Identifier: Apache-2.0
"""The page: figures of traces and studies in one HTML file that opens offline."""
