// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import io.netty.channel.Channel;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.cassandra.transport.Message;

/**
 * The connection that a request came by, and the request's number on it, as the client knows both.
 * A request does not need this: what cannot be found out is left out.
 */
final class Connections {
    private static final int TOLD_MAX = 65536;
    private static final int ADDRESS_BYTES = 16;
    private static final int ENDS_BYTES = 2 * (ADDRESS_BYTES + Short.BYTES);

    private static final long AGAIN_NS = 500_000_000;

    /** Per connection: when it was first seen, and when it is reported again. */
    private final ConcurrentHashMap<Long, long[]> told = new ConcurrentHashMap<>();

    /** CQL's stream id + 1; 0 if unknown. */
    int stream(Object request) {
        try {
            return ((Message) request).getSource().header.streamId + 1;
        } catch (Throwable unknown) {
            return 0;
        }
    }

    /**
     * Reports both ends of a connection, and again after half a second, one, two, and so on: the
     * probes may not have been attached yet, and nothing shows when they are.
     */
    void met(Object channel, long session) {
        long now = System.nanoTime();
        long[] times = told.get(session);
        if (times == null) {
            if (told.size() >= TOLD_MAX) {
                told.clear();
            }
            told.put(session, new long[] {now, now + AGAIN_NS});
        } else if (now - times[1] < 0) {
            return;
        } else {
            times[1] = now + (now - times[0]);
        }
        try {
            ByteBuffer ends = ByteBuffer.allocate(ENDS_BYTES).order(ByteOrder.nativeOrder());
            InetSocketAddress client = inet(((Channel) channel).remoteAddress());
            InetSocketAddress server = inet(((Channel) channel).localAddress());
            put(ends, client.getAddress());
            put(ends, server.getAddress());
            ends.putShort((short) client.getPort());
            ends.putShort((short) server.getPort());
            Marker.connectionMet(session, ends.array());
        } catch (Throwable unknown) {
            return; // no internet address, or an unknown version of Netty
        }
    }

    private static InetSocketAddress inet(SocketAddress address) {
        return (InetSocketAddress) address;
    }

    /** IPv4 as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2). */
    private static void put(ByteBuffer ends, InetAddress address) {
        byte[] bytes = address.getAddress();
        if (bytes.length < ADDRESS_BYTES) {
            ends.putLong(0).putShort((short) 0).putShort((short) -1);
        }
        ends.put(bytes);
    }
}
