// SPDX-License-Identifier: Apache-2.0
package org.apache.cassandra.transport;

public abstract class Message {
    public abstract static class Request extends Message {}
}
