// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent;

/**
 * What instrumented code calls, through {@link Entry}. The implementation has its own class loader,
 * so that nothing of it remains after removal.
 */
public abstract class Hooks {
    /**
     * Instruments the server.
     *
     * @throws Exception nothing was instrumented; the message is one line for the user.
     */
    public abstract void install() throws Exception;

    /** The calling thread starts to work for a request. */
    public abstract void requestBegins(Object channel, Object request);

    /** The calling thread is done with its request. */
    public abstract void requestEnds();

    /** The calling thread queues a task for another thread; returns the object to queue instead. */
    public abstract Object queued(Object task);
}
