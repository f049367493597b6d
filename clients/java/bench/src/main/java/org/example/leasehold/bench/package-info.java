/** Leasehold beside other libraries for locks. */
@NullMarked
package org.example.leasehold.bench;

import org.jspecify.annotations.NullMarked;
