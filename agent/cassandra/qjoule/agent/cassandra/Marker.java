// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

/** Native functions that do nothing; qjoule's probes are on their entries (jni/marker.c). */
final class Marker {
    /** Like {@code enum qj_command} of bpf/qjoule.h. */
    static final int OTHER = 0;
    static final int QUERY = 1;
    static final int PREPARE = 2;
    static final int EXECUTE = 3;

    private Marker() {}

    /**
     * This thread starts to work for a request.
     *
     * @param text of the statement, or null if there is none.
     * @param statement a number that no other text ever has; 0 for a text that may come only once.
     * @param session a number of the connection.
     * @param executions how many statements the server executes for it.
     * @param stream the request's number on its connection, from 1; 0 if unknown.
     */
    static native void requestBegins(
            String text, long statement, long session, int command, int executions, int stream);

    /** The tags that the client sent with this thread's request, as {@link Requests} reads them. */
    static native void requestSays(byte[] tags);

    /**
     * A connection whose first request has arrived.
     *
     * @param ends 16 bytes of the client's address, 16 of the server's, both ports in native order.
     */
    static native void connectionMet(long session, byte[] ends);

    static native void requestEnds();

    /** A task of this thread's request goes to another thread; {@code request} is its number. */
    static native void taskQueued(long request);

    static native void taskBegins(long request);

    static native void taskEnds(long request);
}
