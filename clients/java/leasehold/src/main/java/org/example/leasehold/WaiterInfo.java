package org.example.leasehold;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Who waits for a lock.
 *
 * @param owner the owner that the lease would have
 * @param waited how long it has waited
 * @param patience how much longer it will; null: without limit
 * @param share how many holders at a time it would tolerate
 * @param kind whether a connection waits, or there is a ticket
 * @param locks how many locks it waits for at once
 */
public record WaiterInfo(String owner, Duration waited, @Nullable Duration patience, int share, String kind, int locks) {}
