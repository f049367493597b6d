/** Leasehold for ShedLock: see {@link org.example.leasehold.shedlock.LeaseholdLockProvider}. */
@NullMarked
package org.example.leasehold.shedlock;

import org.jspecify.annotations.NullMarked;
