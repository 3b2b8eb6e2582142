# SPDX-License-Identifier: Apache-2.0
"""MySQL and MariaDB: one protocol, one thread per connection."""
