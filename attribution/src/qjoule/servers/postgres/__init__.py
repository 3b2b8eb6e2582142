# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: one process per connection."""
