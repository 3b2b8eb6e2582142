// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* As much of Cassandra 5.0 as the agent is compiled against; not part of what is loaded. */
package org.apache.cassandra.transport;

public abstract class Message {
    public Envelope getSource() {
        return null;
    }
}
