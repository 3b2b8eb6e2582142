"""memcached: worker threads, each with many connections; text, meta and binary protocol."""
