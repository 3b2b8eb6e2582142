# SPDX-License-Identifier: Apache-2.0
"""MongoDB (mongod): one thread per connection."""
