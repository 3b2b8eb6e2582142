// SPDX-License-Identifier: Apache-2.0
/** Computes in methods that are compiled; with a word, others are compiled when its file is there. */
public final class Spinning {
    static volatile long result;

    static long innermost(long number) {
        for (int i = 0; i < 100_000; i++) {
            number = number * 31 + i;
        }
        return number;
    }

    static long later(long number) {
        for (int i = 0; i < 100_000; i++) {
            number = number * 33 + i;
        }
        return number;
    }

    static long middle(long number, boolean changed) {
        return changed ? later(number) : innermost(number) + 1;
    }

    static long outer(long number, boolean changed) {
        return middle(number, changed) * 7 + 1;
    }

    public static void main(String[] words) {
        java.io.File file = new java.io.File(words[0]);
        while (true) {
            result += outer(result, file.exists());
        }
    }
}
