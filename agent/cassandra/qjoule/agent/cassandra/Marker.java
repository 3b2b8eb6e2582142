// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

/** Native functions that do nothing: their entries are where qjoule's probes are (jni/marker.c). */
final class Marker {
    /** As {@code enum qj_command} of bpf/qjoule.h. */
    static final int OTHER = 0;
    static final int QUERY = 1;
    static final int PREPARE = 2;
    static final int EXECUTE = 3;

    private Marker() {}

    /**
     * This thread takes up a request.
     *
     * @param text of the statement, or null where there is none.
     * @param statement a number that no other text ever has, 0 for a text that may come only once.
     * @param session a number of the connection.
     * @param executions how many statements the server executes for it.
     * @param stream which of the connection's requests it is, from 1; 0 not known.
     */
    static native void requestBegins(
            String text, long statement, long session, int command, int executions, int stream);

    /** What the client says of this thread's request, as {@link Payload#tags} has it. */
    static native void requestSays(byte[] tags);

    /**
     * A connection that no request came by before.
     *
     * @param ends 16 bytes of the client's address, 16 of the server's, both ports in native order.
     */
    static native void connectionMet(long session, byte[] ends);

    static native void requestEnds();

    /** A task of this thread's request goes to another thread, under a number of the request's. */
    static native void taskQueued(long request);

    static native void taskBegins(long request);

    static native void taskEnds(long request);
}
