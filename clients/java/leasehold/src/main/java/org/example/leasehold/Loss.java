package org.example.leasehold;

/** Why a lease holds nothing any more. */
public enum Loss {
    /** The lease has run out, or could have, before it was renewed. */
    EXPIRED("its lease could have ended"),
    /** The server says that it is not this lease's: it was deleted, or somebody else has it. */
    TAKEN("the server says that it is not held"),
    /** The program has released it. */
    RELEASED("it was released"),
    /** The {@link Leasehold} was closed, and gave the lock back. */
    CLOSED("the client was closed");

    final String why;

    Loss(String why) {
        this.why = why;
    }
}
