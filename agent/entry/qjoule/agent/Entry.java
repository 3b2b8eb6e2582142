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
 * The part of the agent that the server's class loader sees, and keeps. Its calls do nothing unless
 * {@link Hooks} are in place. No exception thrown here reaches the server.
 *
 * <p>A JVM loads this class only once, even if another version of qjoule attaches later, so it must
 * not change.
 */
public final class Entry {
    private static volatile Hooks hooks;

    private Entry() {}

    /**
     * Called by the JVM when qjoule attaches.
     *
     * @param argument a directory with {@code hooks.jar} and {@code lease}, a pipe. The hooks stay
     *     until the pipe's other end is closed, whatever ended the process that holds it. The result
     *     is written to {@code status} there: {@code ok}, or the error in one line.
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

    /** Disables the hooks in all calls at once. */
    public static void release() {
        hooks = null;
    }

    public static void requestBegins(Object channel, Object request) {
        Hooks present = hooks;
        if (present != null) {
            try {
                present.requestBegins(channel, request);
            } catch (Throwable ignored) {
                // the server continues as if there were no agent
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
