"""Apache Cassandra: CQL, a JVM with stages of threads."""
