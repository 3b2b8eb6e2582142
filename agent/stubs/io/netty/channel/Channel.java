// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/* As much of Netty 4.1 as the agent is compiled against; not part of what is loaded. */
package io.netty.channel;

import java.net.SocketAddress;

public interface Channel {
    SocketAddress localAddress();

    SocketAddress remoteAddress();
}
