package org.example.leasehold;

import java.time.Duration;

/**
 * A lock for which there was contention since the server has started.
 *
 * @param name its whole name on the server
 * @param db the database
 * @param waits how often it was waited for
 * @param refused how often it was refused to those who did not wait
 * @param waitTotal of the waits that are over
 * @param waitLongest of the waits that are over
 * @param missed how many waits and refused requests may be missing
 */
public record Contention(String name, int db, long waits, long refused, Duration waitTotal, Duration waitLongest, long missed) {}
