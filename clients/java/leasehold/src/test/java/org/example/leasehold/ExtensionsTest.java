package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class ExtensionsTest {
    private final Extensions extensions = new Extensions();

    @Test
    void anExtensionCountsForItsTtl() {
        assertEquals(60, extensions.counted(extensions.begin(60), false, 60));
    }

    @Test
    void aShorterOneThatWasGivenUpMayStillBeCarriedOut() {
        extensions.begin(1);
        assertEquals(1, extensions.counted(extensions.begin(60), false, 60));
    }

    @Test
    void anEarlierTryOfTheSameMayStillBeCarriedOut() {
        assertEquals(5, extensions.counted(extensions.begin(5), true, 5));
        assertEquals(5, extensions.counted(extensions.begin(60), false, 60));
    }

    @Test
    void oneThatWasAskedForEarlierCountsForNothingAfterALaterOne() {
        int first = extensions.begin(60);
        extensions.counted(extensions.begin(30), false, 30);
        assertEquals(-1, extensions.counted(first, false, 60));
    }
}
