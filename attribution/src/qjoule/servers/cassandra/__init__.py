# SPDX-License-Identifier: Apache-2.0
"""Apache Cassandra: CQL, a JVM with stages of threads."""
