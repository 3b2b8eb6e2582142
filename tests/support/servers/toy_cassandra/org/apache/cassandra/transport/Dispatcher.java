// SPDX-License-Identifier: Apache-2.0
package org.apache.cassandra.transport;

import io.netty.channel.Channel;
import org.apache.cassandra.concurrent.SEPExecutor;

/** As much of Cassandra's class as the agent examines. */
public class Dispatcher {
    private final SEPExecutor stage = new SEPExecutor();

    public final class RequestProcessor implements Runnable {
        private final Channel channel = new Channel() {};
        private final Message.Request request = new Message.Request() {};
        private final String word;

        public RequestProcessor(String word) {
            this.word = word;
        }

        @Override
        public void run() {
            if (word.equals("throw")) {
                throw new IllegalArgumentException("thrown by the server");
            }
            if (word.equals("queue")) {
                stage.execute(() -> System.out.println("queued, done"));
                return;
            }
            System.out.println(word);
        }
    }
}
