// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* As much of Cassandra 5.0 as the agent is compiled against; not part of what is loaded. */
package org.apache.cassandra.service;

import org.apache.cassandra.cql3.QueryHandler;

public abstract class ClientState {
    public static QueryHandler getCQLQueryHandler() {
        throw new UnsupportedOperationException();
    }
}
