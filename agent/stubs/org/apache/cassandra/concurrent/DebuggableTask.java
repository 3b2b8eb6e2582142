// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of Cassandra 5.0 that the agent is compiled against; it is not in the agent's jars. */
package org.apache.cassandra.concurrent;

public interface DebuggableTask {
    long creationTimeNanos();

    long startTimeNanos();

    String description();

    interface RunnableDebuggableTask extends Runnable, DebuggableTask {}
}
