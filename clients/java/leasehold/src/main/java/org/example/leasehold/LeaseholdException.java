package org.example.leasehold;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** What can go wrong with a lock. Each subclass is one thing that a program may want to tell from the others. */
public abstract sealed class LeaseholdException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private LeaseholdException(String message, @Nullable Throwable cause) {
        super(message, cause);
    }

    /** Others have the lock, and had it for as long as one was ready to wait. */
    public static final class Busy extends LeaseholdException {
        private static final long serialVersionUID = 1;

        Busy(String name, long nanos) {
            super("the lock " + name + " was held by others for " + Duration.ofNanos(nanos).toMillis() + " ms", null);
        }
    }

    /** The lock is not held any more. */
    public static final class Lost extends LeaseholdException {
        private static final long serialVersionUID = 1;

        /** Why it is not held. */
        private final Loss loss;

        Lost(String name, Loss loss, @Nullable Throwable failure) {
            super("the lock " + name + " is lost: " + loss.why + (failure == null ? "" : ": " + failure.getMessage()), failure);
            this.loss = loss;
        }

        /**
         * Returns why it is not held.
         *
         * @return the reason
         */
        public Loss loss() {
            return loss;
        }
    }

    /** Nobody answered in time, or nobody who may grant locks. */
    public static final class Unreachable extends LeaseholdException {
        private static final long serialVersionUID = 1;

        Unreachable(Throwable cause) {
            super("no server that grants locks: " + chain(cause), cause);
        }

        /** Lettuce says why it cannot connect in the cause of what it throws. */
        private static String chain(Throwable cause) {
            Throwable root = cause;
            while (root.getCause() != null) {
                root = root.getCause();
            }
            return cause.getMessage() + (root == cause ? "" : ": " + root.getMessage());
        }
    }

    /** The lock was granted, and its lease was over when the answer came. */
    public static final class TooLate extends LeaseholdException {
        private static final long serialVersionUID = 1;

        TooLate() {
            super("the lease was over when the answer came", null);
        }
    }

    /** The grant was to be acknowledged by more replicas than have done so in time. The lock is given back. */
    public static final class TooFewReplicas extends LeaseholdException {
        private static final long serialVersionUID = 1;

        TooFewReplicas(String name, int count, int wanted) {
            super("the grant of the lock " + name + " was acknowledged by " + count + " replicas of " + wanted, null);
        }
    }

    /** Nobody has answered a guarded command: it may have been run, or be run while the lock is held. */
    public static final class Unanswered extends LeaseholdException {
        private static final long serialVersionUID = 1;

        Unanswered(Throwable cause) {
            super("nobody has answered, and the command may have been run: " + cause.getMessage(), cause);
        }
    }

    /** The {@link Leasehold} was closed. */
    public static final class Closed extends LeaseholdException {
        private static final long serialVersionUID = 1;

        Closed() {
            super("closed", null);
        }
    }

    /** The server has answered with an error that another try would not mend, or that all tries came to. */
    public static final class Refused extends LeaseholdException {
        private static final long serialVersionUID = 1;

        /** The first word of the server's error, such as {@code NOPERM}. */
        private final String code;

        Refused(String code, String message) {
            super(message, null);
            this.code = code;
        }

        static Refused needsModule(String feature) {
            return new Refused("MODULE", feature + " needs the module, which this server does not have");
        }

        /**
         * Returns the first word of the server's error, such as {@code NOPERM}, {@code OOM} or {@code QUEUEFULL}; {@code MODULE}
         * where the server lacks the module.
         *
         * @return the code
         */
        public String code() {
            return code;
        }
    }
}
