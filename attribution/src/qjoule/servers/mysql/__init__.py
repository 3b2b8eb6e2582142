"""MySQL and MariaDB: one protocol, one thread a connection."""
