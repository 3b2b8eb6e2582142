# SPDX-License-Identifier: Apache-2.0
"""memcached: worker threads, each with many connections; text, meta and binary protocol."""
