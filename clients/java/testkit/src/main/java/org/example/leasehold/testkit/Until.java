package org.example.leasehold.testkit;

import java.util.function.BooleanSupplier;

/** Waits for what can be seen, with a deadline: shorter than a place is kept that nobody asks for, which is 15 s. */
public final class Until {
    private Until() {}

    public static void holds(BooleanSupplier condition) {
        long end = System.nanoTime() + 10_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("it did not come to that within 10 s");
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
        }
    }
}
