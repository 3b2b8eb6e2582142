// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of Cassandra 5.0 that the agent is compiled against; it is not in the agent's jars. */
package org.apache.cassandra.cql3;

import org.apache.cassandra.utils.MD5Digest;

public interface QueryHandler {
    Prepared getPrepared(MD5Digest id);

    abstract class Prepared {
        public final String rawCQLStatement = null;
    }
}
