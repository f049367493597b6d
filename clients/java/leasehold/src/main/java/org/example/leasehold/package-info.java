/**
 * Locks in Redis and Valkey: with leases that renew themselves, fences, and waits in the server's queue.
 *
 * <p>Begin with {@link org.example.leasehold.Leasehold}.
 */
@NullMarked
package org.example.leasehold;

import org.jspecify.annotations.NullMarked;
