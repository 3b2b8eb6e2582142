package org.apache.cassandra.transport;

public abstract class Message {
    public abstract static class Request extends Message {}
}
