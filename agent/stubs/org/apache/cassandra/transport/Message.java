// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* As much of Cassandra 5.0 as the agent is compiled against; not part of what is loaded. */
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
