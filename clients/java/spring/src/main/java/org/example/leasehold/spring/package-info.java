/**
 * Leasehold for Spring: {@link org.example.leasehold.spring.LeaseholdLockRegistry} is for Spring Integration,
 * {@link org.example.leasehold.spring.LeaseholdAutoConfiguration} for Spring Boot. Neither needs the other.
 */
@NullMarked
package org.example.leasehold.spring;

import org.jspecify.annotations.NullMarked;
