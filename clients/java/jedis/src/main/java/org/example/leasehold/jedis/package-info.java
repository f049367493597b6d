/** Locks in Redis and Valkey for programs that have Jedis. */
@NullMarked
package org.example.leasehold.jedis;

import org.jspecify.annotations.NullMarked;
