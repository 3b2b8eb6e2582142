"""MongoDB (mongod): one thread a connection."""
