package org.example.booking;

import org.springframework.stereotype.Component;

/** Asks the bank for the price of the seat. */
@Component
class Bank {
    void authorize(String guest) throws InterruptedException {
        Thread.sleep(200);
    }
}
