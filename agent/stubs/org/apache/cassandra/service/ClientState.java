// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of Cassandra 5.0 that the agent is compiled against; it is not in the agent's jars. */
package org.apache.cassandra.service;

import org.apache.cassandra.cql3.QueryHandler;

public abstract class ClientState {
    public static QueryHandler getCQLQueryHandler() {
        throw new UnsupportedOperationException();
    }
}
