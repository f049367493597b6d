package org.example.leasehold;

import java.util.function.BooleanSupplier;

/** Waits for what can be seen, with a deadline. */
final class Until {
    private Until() {}

    static void holds(BooleanSupplier condition) {
        long end = System.nanoTime() + 20_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("it did not come to that within 20 s");
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }
}
