// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* As much of Cassandra 5.0 as the agent is compiled against; not part of what is loaded. */
package org.apache.cassandra.transport;

public abstract class Envelope {
    public final Header header = null; // no constant: it is no string and no number

    public abstract static class Header {
        public final int streamId;

        /** Not where it is declared: a constant would be compiled into its readers. */
        Header(int streamId) {
            this.streamId = streamId;
        }
    }
}
