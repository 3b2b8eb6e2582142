// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* As much of Cassandra 5.0 as the agent is compiled against; not part of what is loaded. */
package org.apache.cassandra.transport.messages;

import java.util.List;
import org.apache.cassandra.cql3.statements.BatchStatement;

public abstract class BatchMessage {
    public final BatchStatement.Type batchType = null;
    public final List<Object> queryOrIdList = null;
}
