package org.example.leasehold;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Who holds a lock.
 *
 * @param owner the owner of the lease
 * @param fence of the grant; 0 for a lock that neither Leasehold nor its packages wrote
 * @param ttl what is left of the lease; null if it has no end
 * @param share how many holders at a time it tolerates: 1 for an exclusive hold, 0 for no limit
 */
public record HolderInfo(String owner, long fence, @Nullable Duration ttl, int share) {}
