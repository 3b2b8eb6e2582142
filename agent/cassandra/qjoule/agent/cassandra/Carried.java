// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import org.apache.cassandra.concurrent.DebuggableTask.RunnableDebuggableTask;

/** A queued task that keeps the request it belongs to. */
class Carried implements Runnable {
    final Runnable task;
    private final long request;

    private Carried(Runnable task, long request) {
        this.task = task;
        this.request = request;
    }

    static Runnable of(Runnable task, long request) {
        return task instanceof RunnableDebuggableTask
                ? new Debuggable((RunnableDebuggableTask) task, request)
                : new Carried(task, request);
    }

    @Override
    public void run() {
        Marker.taskBegins(request);
        try {
            task.run();
        } finally {
            Marker.taskEnds(request);
        }
    }

    @Override
    public String toString() {
        return task.toString();
    }

    /** Cassandra lists such tasks in system_views.queries while they run. */
    static final class Debuggable extends Carried implements RunnableDebuggableTask {
        private final RunnableDebuggableTask described;

        Debuggable(RunnableDebuggableTask task, long request) {
            super(task, request);
            this.described = task;
        }

        @Override
        public long creationTimeNanos() {
            return described.creationTimeNanos();
        }

        @Override
        public long startTimeNanos() {
            return described.startTimeNanos();
        }

        @Override
        public String description() {
            return described.description();
        }
    }
}
