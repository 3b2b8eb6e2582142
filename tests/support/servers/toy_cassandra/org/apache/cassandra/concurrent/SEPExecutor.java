// SPDX-License-Identifier: Apache-2.0
package org.apache.cassandra.concurrent;

import java.util.concurrent.ConcurrentLinkedQueue;

public class SEPExecutor {
    private final ConcurrentLinkedQueue<Runnable> tasks = new ConcurrentLinkedQueue<>();

    public void execute(Runnable task) {
        addTask(task);
        Thread worker = new Thread(() -> tasks.poll().run());
        worker.start();
        try {
            worker.join();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    protected <T extends Runnable> T addTask(T task) {
        tasks.add(task);
        return task;
    }
}
