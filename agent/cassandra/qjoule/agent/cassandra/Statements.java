// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
package qjoule.agent.cassandra;

import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.cassandra.cql3.QueryHandler.Prepared;
import org.apache.cassandra.service.ClientState;
import org.apache.cassandra.transport.messages.BatchMessage;
import org.apache.cassandra.utils.MD5Digest;

/** Texts of statements, and numbers for texts that repeat. */
final class Statements {
    /** Characters of a text that are read (QJ_TEXT_BYTES of bpf/qjoule.h). */
    private static final int TEXT_CHARACTERS = 4096;

    private static final int NUMBERED_MAX = 16384;

    /** Numbers are never reused, not even after the table was emptied. */
    private final AtomicLong numbers = new AtomicLong();

    private final ConcurrentHashMap<MD5Digest, Statement> numbered = new ConcurrentHashMap<>();

    static final class Statement {
        final String text;
        final long number;

        Statement(String text, long number) {
            this.text = text;
            this.number = number;
        }
    }

    /**
     * The statement that was prepared under this id, or null if the server has none. Asks the
     * server each time: an id may refer to another text later (clients choose the texts, and MD5 is
     * broken).
     */
    Statement prepared(MD5Digest id) {
        String text = textOf(id);
        if (text == null) {
            return null;
        }
        Statement known = numbered.get(id);
        if (known != null && (known.text == text || known.text.equals(text))) {
            return known;
        }
        if (numbered.size() >= NUMBERED_MAX) {
            numbered.clear();
        }
        Statement found = new Statement(text, numbers.incrementAndGet());
        numbered.put(id, found);
        return found;
    }

    /** The text of a batch: its statements, with repeats in a row once, as in shapes/cql.py. */
    String batch(BatchMessage message) {
        StringBuilder text = new StringBuilder(512);
        List<Object> statements = message.queryOrIdList;
        Object last = null;
        text.append("BEGIN BATCH; ");
        for (int i = 0; i < statements.size() && text.length() < TEXT_CHARACTERS; i++) {
            Object next = statements.get(i);
            if (next.equals(last)) {
                continue;
            }
            last = next;
            append(text, next instanceof MD5Digest ? textOf((MD5Digest) next) : (String) next);
        }
        return text.append("APPLY BATCH").toString();
    }

    private static void append(StringBuilder text, String statement) {
        if (statement == null) {
            text.append("?; ");
            return;
        }
        int end = Math.min(statement.length(), TEXT_CHARACTERS);
        text.append(statement, 0, end);
        while (text.length() > 0 && isEnd(text.charAt(text.length() - 1))) {
            text.setLength(text.length() - 1);
        }
        text.append("; ");
    }

    private static boolean isEnd(char last) {
        return last == ';' || Character.isWhitespace(last);
    }

    private static String textOf(MD5Digest id) {
        Prepared prepared = ClientState.getCQLQueryHandler().getPrepared(id);
        return prepared == null ? null : prepared.rawCQLStatement;
    }
}
