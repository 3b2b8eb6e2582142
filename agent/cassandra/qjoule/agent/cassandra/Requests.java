// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import java.nio.BufferOverflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.cassandra.concurrent.DebuggableTask.RunnableDebuggableTask;
import org.apache.cassandra.transport.Message;
import org.apache.cassandra.transport.messages.BatchMessage;
import org.apache.cassandra.transport.messages.ExecuteMessage;
import org.apache.cassandra.transport.messages.PrepareMessage;
import org.apache.cassandra.transport.messages.QueryMessage;
import qjoule.agent.cassandra.Statements.Statement;

/** Tracks which request each thread works for, and calls the markers. */
final class Requests {
    /** Values in a thread's array: no request; one without a number yet; otherwise its number. */
    private static final long NONE = 0;
    private static final long UNNUMBERED = -1;

    private static final String PREPARE = "PREPARE ";

    private static final String TAG_PREFIX = "qjoule.";

    /** Longer payloads are ignored as a whole (TAGS_BYTES of bpf/core/server_state.h). */
    private static final int TAGS_BYTES = 480;

    private final Statements statements = new Statements();
    private final Connections connections = new Connections();
    private final AtomicLong numbers = new AtomicLong();
    private final boolean readsTags;

    /**
     * Its type is loaded by the JDK: the server's threads keep the array longer than the agent
     * lives.
     */
    private final ThreadLocal<long[]> current = new ThreadLocal<>();

    /** @param readsTags whether to read the tags that clients send with their requests. */
    Requests(boolean readsTags) {
        this.readsTags = readsTags;
    }

    /**
     * Loads all classes while the jar is there: once its class loader is closed it loads no more.
     */
    void loadClasses() throws ClassNotFoundException {
        ClassLoader own = Requests.class.getClassLoader();
        for (String name : new String[] {"Marker", "Connections", "Statements$Statement", "Requests$Carried$Debuggable"}) {
            Class.forName("qjoule.agent.cassandra." + name, true, own);
        }
        // Fails now instead of in the first request if this version of Cassandra lacks the class.
        Class.forName("org.apache.cassandra.utils.MD5Digest", false, own);
    }

    void begins(Object channel, Object request) {
        long[] mine = current.get();
        if (mine == null) {
            mine = new long[1];
            current.set(mine);
        }
        mine[0] = UNNUMBERED;
        long session = (long) System.identityHashCode(channel) << 32
                | channel.hashCode() & 0xffffffffL;
        connections.met(channel, session);
        int stream = connections.stream(request);
        if (request instanceof ExecuteMessage) {
            Statement statement = statements.prepared(((ExecuteMessage) request).statementId);
            if (statement == null) { // the server will ask the client to prepare it again
                Marker.requestBegins(null, 0, session, Marker.EXECUTE, 0, stream);
            } else {
                Marker.requestBegins(
                        statement.text, statement.number, session, Marker.EXECUTE, 1, stream);
            }
        } else if (request instanceof QueryMessage) {
            Marker.requestBegins(((QueryMessage) request).query, 0, session, Marker.QUERY, 1, stream);
        } else if (request instanceof BatchMessage) {
            String text = statements.batch((BatchMessage) request);
            Marker.requestBegins(text, 0, session, Marker.QUERY, 1, stream);
        } else if (request instanceof PrepareMessage) {
            Marker.requestBegins(textOf(request), 0, session, Marker.PREPARE, 0, stream);
        } else {
            Marker.requestBegins(null, 0, session, Marker.OTHER, 0, stream);
        }
        byte[] tags = readsTags ? tagsOf(request) : null;
        if (tags != null) {
            Marker.requestSays(tags);
        }
    }

    void ends() {
        long[] mine = current.get();
        if (mine != null && mine[0] != NONE) {
            mine[0] = NONE;
            Marker.requestEnds();
        }
    }

    Object queued(Object task) {
        long[] mine = current.get();
        if (mine == null || mine[0] == NONE || !(task instanceof Runnable)) {
            return task;
        }
        if (mine[0] == UNNUMBERED) {
            mine[0] = numbers.incrementAndGet();
        }
        Marker.taskQueued(mine[0]);
        return Carried.of((Runnable) task, mine[0]);
    }

    /** The text is private, but toString() contains it. */
    private static String textOf(Object prepare) {
        String described = prepare.toString();
        return described.startsWith(PREPARE) ? described.substring(PREPARE.length()) : null;
    }

    /**
     * Tags that the client sent in the request's custom payload: the entries whose keys are tag
     * keys, as they were sent (native_protocol_v4.spec, 3): [string] and [bytes] each; null if
     * there are none.
     */
    private static byte[] tagsOf(Object request) {
        try {
            Map<String, ByteBuffer> payload = ((Message) request).getCustomPayload();
            if (payload == null) {
                return null;
            }
            ByteBuffer tags = ByteBuffer.allocate(TAGS_BYTES);
            for (Map.Entry<String, ByteBuffer> entry : payload.entrySet()) {
                String key = entry.getKey();
                if (key.startsWith(TAG_PREFIX) && key.length() > TAG_PREFIX.length()) {
                    put(tags, key.getBytes(StandardCharsets.UTF_8), entry.getValue());
                }
            }
            return tags.position() == 0 ? null : Arrays.copyOf(tags.array(), tags.position());
        } catch (BufferOverflowException tooMany) {
            return null;
        } catch (Throwable unknown) {
            return null; // a version of Cassandra that keeps them elsewhere
        }
    }

    private static void put(ByteBuffer tags, byte[] key, ByteBuffer value) {
        tags.putShort((short) key.length).put(key);
        if (value == null) {
            tags.putInt(-1);
        } else {
            tags.putInt(value.remaining()).put(value.duplicate());
        }
    }

    /** A queued task that keeps the request it belongs to. */
    private static class Carried implements Runnable {
        final Runnable task;
        private final long request;

        private Carried(Runnable task, long request) {
            this.task = task;
            this.request = request;
        }

        static Runnable of(Runnable task, long request) {
            return task instanceof RunnableDebuggableTask
                    ? new Debuggable((RunnableDebuggableTask) task, request)
                    : new Carried(task, request);
        }

        @Override
        public void run() {
            Marker.taskBegins(request);
            try {
                task.run();
            } finally {
                Marker.taskEnds(request);
            }
        }

        @Override
        public String toString() {
            return task.toString();
        }

        /** Cassandra lists such tasks in system_views.queries while they run. */
        private static final class Debuggable extends Carried implements RunnableDebuggableTask {
            private final RunnableDebuggableTask described;

            Debuggable(RunnableDebuggableTask task, long request) {
                super(task, request);
                this.described = task;
            }

            @Override
            public long creationTimeNanos() {
                return described.creationTimeNanos();
            }

            @Override
            public long startTimeNanos() {
                return described.startTimeNanos();
            }

            @Override
            public String description() {
                return described.description();
            }
        }
    }
}
