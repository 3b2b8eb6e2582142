// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* The part of Netty 4.1 that the agent is compiled against; it is not in the agent's jars. */
package io.netty.channel;

import java.net.SocketAddress;

public interface Channel {
    SocketAddress localAddress();

    SocketAddress remoteAddress();
}
