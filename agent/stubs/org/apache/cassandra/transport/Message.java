// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of Cassandra 5.0 that the agent is compiled against; it is not in the agent's jars. */
package org.apache.cassandra.transport;

import java.nio.ByteBuffer;
import java.util.Map;

public abstract class Message {
    public Envelope getSource() {
        return null;
    }

    public Map<String, ByteBuffer> getCustomPayload() {
        return null;
    }
}
