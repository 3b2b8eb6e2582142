// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import java.nio.BufferOverflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import org.apache.cassandra.transport.Message;

/** Tags that clients send in a request's custom payload: the entries whose keys are tag keys. */
final class Payload {
    private static final String PREFIX = "qjoule.";

    /** Longer payloads are ignored as a whole (TAGS_BYTES of bpf/core/server_state.h). */
    private static final int BYTES_MAX = 480;

    private Payload() {}

    /**
     * Entries as they were sent (native_protocol_v4.spec, 3): [string] and [bytes] each; null if
     * there are none.
     */
    static byte[] tags(Object request) {
        try {
            Map<String, ByteBuffer> payload = ((Message) request).getCustomPayload();
            if (payload == null) {
                return null;
            }
            ByteBuffer tags = ByteBuffer.allocate(BYTES_MAX);
            for (Map.Entry<String, ByteBuffer> entry : payload.entrySet()) {
                String key = entry.getKey();
                if (key.startsWith(PREFIX) && key.length() > PREFIX.length()) {
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
}
