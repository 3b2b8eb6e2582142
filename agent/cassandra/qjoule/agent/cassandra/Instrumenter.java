// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import java.lang.instrument.ClassFileTransformer;
import java.security.ProtectionDomain;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import jdk.internal.org.objectweb.asm.ClassReader;
import jdk.internal.org.objectweb.asm.ClassVisitor;
import jdk.internal.org.objectweb.asm.ClassWriter;
import jdk.internal.org.objectweb.asm.Label;
import jdk.internal.org.objectweb.asm.MethodVisitor;
import jdk.internal.org.objectweb.asm.Opcodes;

/**
 * Adds calls of {@code Entry} to two methods of Cassandra. Written for 5.0: classes that look
 * different are left alone and do not appear in {@link #changed}.
 */
final class Instrumenter implements ClassFileTransformer {
    static final String PROCESSOR =
            "org/apache/cassandra/transport/Dispatcher$RequestProcessor";
    static final String EXECUTOR = "org/apache/cassandra/concurrent/SEPExecutor";

    private static final String ENTRY = "qjoule/agent/Entry";
    private static final String CHANNEL = "Lio/netty/channel/Channel;";
    private static final String REQUEST = "Lorg/apache/cassandra/transport/Message$Request;";
    private static final int API = Opcodes.ASM7;

    private final ClassLoader server;
    private final Set<String> changed = ConcurrentHashMap.newKeySet();
    private volatile Throwable problem;

    /** @param server the class loader of Cassandra: classes of other loaders are not touched. */
    Instrumenter(ClassLoader server) {
        this.server = server;
    }

    /** Names of the classes that have been instrumented, with slashes. */
    Set<String> changed() {
        return changed;
    }

    /** The error that occurred, or null. */
    Throwable problem() {
        return problem;
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> redefined,
            ProtectionDomain domain, byte[] code) {
        if (loader != server || !(PROCESSOR.equals(name) || EXECUTOR.equals(name))) {
            return null;
        }
        try {
            return changed(name, code);
        } catch (Throwable reason) { // the JVM would swallow it
            problem = reason;
            return null;
        }
    }

    private byte[] changed(String name, byte[] code) {
        ClassReader reader = new ClassReader(code);
        ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
        Changes changes = new Changes(writer, name);
        reader.accept(changes, ClassReader.EXPAND_FRAMES);
        if (!changes.made()) {
            return null;
        }
        changed.add(name);
        return writer.toByteArray();
    }

    private static final class Changes extends ClassVisitor {
        private final String owner;
        private boolean hasChannel;
        private boolean hasRequest;
        private int calls;

        Changes(ClassVisitor next, String owner) {
            super(API, next);
            this.owner = owner;
        }

        boolean made() {
            return calls > 0 && (EXECUTOR.equals(owner) || hasChannel && hasRequest);
        }

        @Override
        public jdk.internal.org.objectweb.asm.FieldVisitor visitField(
                int access, String name, String descriptor, String signature, Object value) {
            hasChannel |= name.equals("channel") && descriptor.equals(CHANNEL);
            hasRequest |= name.equals("request") && descriptor.equals(REQUEST);
            return super.visitField(access, name, descriptor, signature, value);
        }

        @Override
        public MethodVisitor visitMethod(int access, String name, String descriptor,
                String signature, String[] exceptions) {
            MethodVisitor next = super.visitMethod(access, name, descriptor, signature, exceptions);
            if (PROCESSOR.equals(owner) && name.equals("run") && descriptor.equals("()V")) {
                return new Bracketed(next);
            }
            if (EXECUTOR.equals(owner) && name.equals("addTask")
                    && descriptor.equals("(Ljava/lang/Runnable;)Ljava/lang/Runnable;")) {
                return new Queueing(next);
            }
            return next;
        }

        /** {@code Entry.requestBegins(channel, request); try { ... } finally { requestEnds(); }} */
        private final class Bracketed extends MethodVisitor {
            private final Label start = new Label();
            private final Label end = new Label();

            Bracketed(MethodVisitor next) {
                super(API, next);
            }

            @Override
            public void visitCode() {
                super.visitCode();
                super.visitVarInsn(Opcodes.ALOAD, 0);
                super.visitFieldInsn(Opcodes.GETFIELD, owner, "channel", CHANNEL);
                super.visitVarInsn(Opcodes.ALOAD, 0);
                super.visitFieldInsn(Opcodes.GETFIELD, owner, "request", REQUEST);
                super.visitMethodInsn(Opcodes.INVOKESTATIC, ENTRY, "requestBegins",
                        "(Ljava/lang/Object;Ljava/lang/Object;)V", false);
                super.visitLabel(start);
                calls++;
            }

            @Override
            public void visitInsn(int opcode) {
                if (opcode == Opcodes.RETURN) {
                    callEnds();
                }
                super.visitInsn(opcode);
            }

            @Override
            public void visitMaxs(int stack, int locals) {
                // After all other handlers: the method's own come first.
                super.visitLabel(end);
                super.visitTryCatchBlock(start, end, end, null);
                super.visitFrame(Opcodes.F_NEW, 1, new Object[] {owner}, 1,
                        new Object[] {"java/lang/Throwable"});
                callEnds();
                super.visitInsn(Opcodes.ATHROW);
                super.visitMaxs(stack, locals);
            }

            private void callEnds() {
                super.visitMethodInsn(Opcodes.INVOKESTATIC, ENTRY, "requestEnds", "()V", false);
            }
        }

        /** {@code tasks.add(task)} becomes {@code tasks.add(Entry.queued(task))}. */
        private final class Queueing extends MethodVisitor {
            Queueing(MethodVisitor next) {
                super(API, next);
            }

            @Override
            public void visitMethodInsn(int opcode, String type, String name, String descriptor,
                    boolean isInterface) {
                if (name.equals("add") && type.equals("java/util/concurrent/ConcurrentLinkedQueue")
                        && descriptor.equals("(Ljava/lang/Object;)Z")) {
                    super.visitMethodInsn(Opcodes.INVOKESTATIC, ENTRY, "queued",
                            "(Ljava/lang/Object;)Ljava/lang/Object;", false);
                    calls++;
                }
                super.visitMethodInsn(opcode, type, name, descriptor, isInterface);
            }
        }
    }
}
