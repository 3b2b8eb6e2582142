# SPDX-License-Identifier: Apache-2.0
"""What a query costs its server on each rung."""
