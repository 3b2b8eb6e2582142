// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of Cassandra 5.0 that the agent is compiled against; it is not in the agent's jars. */
package org.apache.cassandra.transport;

public abstract class Envelope {
    public final Header header = null; // not a compile-time constant: neither a string nor a number

    public abstract static class Header {
        public final int streamId;

        /** Assigned here, not at the declaration: javac would inline a constant into its users. */
        Header(int streamId) {
            this.streamId = streamId;
        }
    }
}
