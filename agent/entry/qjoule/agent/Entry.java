// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.instrument.Instrumentation;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * What the server's class loader gets to see of the agent, and keeps: calls that do nothing unless
 * {@link Hooks} are in place. Nothing that is thrown here reaches the server.
 *
 * <p>A JVM loads this class once, whichever qjoule attaches later: it stays as it is.
 */
public final class Entry {
    private static volatile Hooks hooks;

    private Entry() {}

    /**
     * Called by the JVM when qjoule attaches.
     *
     * @param argument a directory with {@code hooks.jar} and {@code lease}, a pipe: the hooks stay
     *     until its other end is closed, by whatever ended the process that holds it. What came of
     *     it is written to {@code status} there: {@code ok}, or what went wrong in one line.
     */
    public static void agentmain(String argument, Instrumentation jvm) throws IOException {
        Path directory = Path.of(argument);
        String status = "ok";
        try {
            install(directory, jvm);
        } catch (Throwable reason) {
            status = reason.getMessage() == null ? reason.toString() : reason.getMessage();
            if (reason.getCause() != null) {
                status += ": " + reason.getCause();
            }
        }
        Files.write(directory.resolve("status"), status.getBytes(StandardCharsets.UTF_8));
    }

    private static synchronized void install(Path directory, Instrumentation jvm)
            throws Exception {
        if (hooks != null) {
            throw new IllegalStateException("another qjoule uses the agent in this server");
        }
        InputStream lease = new FileInputStream(directory.resolve("lease").toFile());
        URL[] code = {directory.resolve("hooks.jar").toUri().toURL()};
        URLClassLoader loader = new URLClassLoader("qjoule", code, Entry.class.getClassLoader());
        try {
            Hooks found = (Hooks) loader.loadClass("qjoule.agent.cassandra.Cassandra")
                    .getConstructor(Path.class, Instrumentation.class, InputStream.class)
                    .newInstance(directory, jvm, lease);
            found.install();
            hooks = found;
        } catch (Throwable reason) {
            lease.close();
            loader.close();
            throw reason;
        }
    }

    /** Takes the hooks out of all calls, at once. */
    public static void release() {
        hooks = null;
    }

    public static void requestBegins(Object channel, Object request) {
        Hooks present = hooks;
        if (present != null) {
            try {
                present.requestBegins(channel, request);
            } catch (Throwable ignored) {
                // the server goes on as if there were no agent
            }
        }
    }

    public static void requestEnds() {
        Hooks present = hooks;
        if (present != null) {
            try {
                present.requestEnds();
            } catch (Throwable ignored) {
                // as above
            }
        }
    }

    public static Object queued(Object task) {
        Hooks present = hooks;
        if (present != null) {
            try {
                return present.queued(task);
            } catch (Throwable ignored) {
                // as above
            }
        }
        return task;
    }
}
