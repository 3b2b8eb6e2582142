# SPDX-License-Identifier: Apache-2.0
"""The physical test of `qjoule physical`: records known loads on a server of its own."""
