// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent;

/**
 * What instrumented code calls, through {@link Entry}. Its implementation lives in a class loader
 * of its own, so that nothing of it stays when it is taken out again.
 */
public abstract class Hooks {
    /**
     * Instruments the server.
     *
     * @throws Exception nothing was instrumented; the message is one line for the user.
     */
    public abstract void install() throws Exception;

    /** The thread that calls takes up a request. */
    public abstract void requestBegins(Object channel, Object request);

    /** The thread that calls is done with its request. */
    public abstract void requestEnds();

    /** The thread that calls queues a task for another; returns what to queue in its place. */
    public abstract Object queued(Object task);
}
