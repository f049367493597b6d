package org.example.leasehold;

import java.time.Duration;
import java.time.Instant;

/**
 * What went wrong with a lock.
 *
 * @param id the number of the entry
 * @param time when
 * @param event what, as {@code late-release} or {@code deleted}: the page of {@code LOCK.LOG} has all of them
 * @param db the database
 * @param name the whole name of the lock on the server
 * @param owner whose lease it was
 * @param lasted what it means depends on the event
 */
public record LogEntry(long id, Instant time, String event, int db, String name, String owner, Duration lasted) {}
