# SPDX-License-Identifier: Apache-2.0
"""What one request costs over all servers that it used, on however many hosts."""
