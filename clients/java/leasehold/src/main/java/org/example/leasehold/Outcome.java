package org.example.leasehold;

/** What came of a release. */
public enum Outcome {
    /** The lock was held until then, and is free. */
    RELEASED,
    /** The lock had been lost before. */
    LATE,
    /** It stays held until the time that {@link Options#holdAtLeast} named. */
    LATER
}
