// SPDX-License-Identifier: Apache-2.0
package org.apache.cassandra.service;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;

/** Processes each line of its input as a request, with Cassandra's classes if they are there. */
public class CassandraDaemon {
    public static void main(String[] arguments) throws Exception {
        BufferedReader words = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String word = words.readLine(); word != null; word = words.readLine()) {
            try {
                process(word);
            } catch (Throwable thrown) {
                System.out.println(thrown.getMessage());
            }
        }
    }

    private static void process(String word) throws Exception {
        Class<?> dispatcher = Class.forName("org.apache.cassandra.transport.Dispatcher");
        Constructor<?> processor =
                Class.forName("org.apache.cassandra.transport.Dispatcher$RequestProcessor")
                        .getConstructor(dispatcher, String.class);
        Object made = processor.newInstance(dispatcher.getConstructor().newInstance(), word);
        ((Runnable) made).run();
    }
}
