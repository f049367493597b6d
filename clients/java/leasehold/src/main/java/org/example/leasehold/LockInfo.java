package org.example.leasehold;

/**
 * What is known of a lock that is held. It may be over when it arrives: whoever wants to hold the lock asks for it.
 *
 * @param oldest the oldest of its holders
 * @param holders how many hold it
 * @param waiters how many wait in the server's queue; -1 where the server keeps no queue
 */
public record LockInfo(HolderInfo oldest, int holders, int waiters) {}
