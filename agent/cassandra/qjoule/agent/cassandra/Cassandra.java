// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import java.io.IOException;
import java.io.InputStream;
import java.lang.instrument.Instrumentation;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import qjoule.agent.Entry;
import qjoule.agent.Hooks;

/** Marks requests of a running Cassandra 5.0, and removes the instrumentation again. */
public final class Cassandra extends Hooks {
    private static final String ASM = "jdk.internal.org.objectweb.asm";

    private final Path directory;
    private final Instrumentation jvm;
    private final InputStream lease;
    private final ClassLoader own = Cassandra.class.getClassLoader();
    private Requests requests;

    public Cassandra(Path directory, Instrumentation jvm, InputStream lease) {
        this.directory = directory;
        this.jvm = jvm;
        this.lease = lease;
    }

    @Override
    public void install() throws Exception {
        Class<?>[] targets = targets();
        openAsm();
        System.load(directory.resolve("libqjoule_agent.so").toString());
        requests = new Requests(Files.exists(directory.resolve("tags")));
        requests.loadClasses();
        Instrumenter instrumenter = new Instrumenter(targets[0].getClassLoader());
        jvm.addTransformer(instrumenter, true);
        try {
            jvm.retransformClasses(targets);
            if (instrumenter.changed().size() != targets.length) {
                throw new IllegalStateException(
                        "this Cassandra handles requests in a way that is not known (5.0 is)",
                        instrumenter.problem());
            }
        } catch (Throwable reason) {
            remove(instrumenter, targets);
            throw reason;
        }
        watch(instrumenter, targets);
    }

    @Override
    public void requestBegins(Object channel, Object request) {
        requests.begins(channel, request);
    }

    @Override
    public void requestEnds() {
        requests.ends();
    }

    @Override
    public Object queued(Object task) {
        return requests.queued(task);
    }

    private Class<?>[] targets() {
        List<Class<?>> found = new ArrayList<>();
        for (String name : List.of(Instrumenter.PROCESSOR, Instrumenter.EXECUTOR)) {
            try {
                Class<?> target =
                        Class.forName(name.replace('/', '.'), false, own.getParent());
                if (!jvm.isModifiableClass(target)) {
                    throw new IllegalStateException(name + " cannot be changed");
                }
                found.add(target);
            } catch (ClassNotFoundException absent) {
                throw new IllegalStateException("no Cassandra 5.0: it has no " + name);
            }
        }
        return found.toArray(new Class<?>[0]);
    }

    /** The JDK has its own copy of ASM, which reads its JVM's class files; Java 11's is too old. */
    private void openAsm() {
        Module base = Object.class.getModule();
        int java = Runtime.version().feature();
        if (java < 17 || !base.getPackages().contains(ASM)) {
            throw new IllegalStateException(
                    "it runs on Java " + java + ", the agent needs Java 17 to 23");
        }
        jvm.redefineModule(base, Set.of(), Map.of(ASM, Set.of(own.getUnnamedModule())),
                Map.of(), Set.of(), Map.of());
    }

    /** Removes the instrumentation when the pipe's other end closes, however its holder ended. */
    private void watch(Instrumenter instrumenter, Class<?>[] targets) {
        Thread watcher = new Thread(() -> {
            try {
                while (lease.read() >= 0) {
                    // nothing is ever written to it
                }
            } catch (IOException broken) {
                // treat it as closed
            }
            remove(instrumenter, targets);
        }, "qjoule-agent");
        watcher.setDaemon(true);
        watcher.setContextClassLoader(null);
        watcher.start();
    }

    private void remove(Instrumenter instrumenter, Class<?>[] targets) {
        Entry.release();
        jvm.removeTransformer(instrumenter);
        try {
            jvm.retransformClasses(targets);
        } catch (Throwable refused) {
            // the remaining calls do nothing
        }
        try {
            lease.close();
            ((URLClassLoader) own).close();
        } catch (IOException ignored) {
            // it is closed all the same
        }
    }
}
