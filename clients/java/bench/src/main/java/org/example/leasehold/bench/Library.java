package org.example.leasehold.bench;

import java.util.concurrent.locks.Lock;

/** A library takes the lock, does the work and releases the lock. It may be asked by many threads at a time. */
record Library(String name, Turn turn, AutoCloseable end) {
    interface Turn {
        void take(String name, Runnable work) throws Exception;
    }

    interface Locks {
        Lock lock(String name);
    }

    static Library of(String name, Locks locks, AutoCloseable end) {
        return new Library(name, (lock, work) -> under(locks.lock(lock), work), end);
    }

    static void under(Lock lock, Runnable work) {
        lock.lock();
        try {
            work.run();
        } finally {
            lock.unlock();
        }
    }
}
