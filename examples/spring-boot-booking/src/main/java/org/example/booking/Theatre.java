package org.example.booking;

import java.util.Map;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.LeaseholdException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.http.HttpStatus;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** A theatre may have several of these services, which share one server of locks and one book. */
@RestController
class Theatre {
    private static final Logger LOGGER = LoggerFactory.getLogger(Theatre.class);

    record Guest(String guest) {}

    record Seat(String seat, String guest) {}

    private final Leasehold locks;
    private final Book book;
    private final Bank bank;

    Theatre(Leasehold locks, Book book, Bank bank) {
        this.locks = locks;
        this.book = book;
        this.bank = bank;
    }

    @PostMapping("/seats/{seat}")
    ResponseEntity<?> book(@PathVariable String seat, @RequestBody Guest asked) throws InterruptedException {
        String guest = asked.guest();
        if (guest == null || guest.isBlank()) {
            return error(HttpStatus.UNPROCESSABLE_CONTENT, "who is the guest?");
        }
        try (Lease lease = locks.acquire(seat)) {
            if (book.isTaken(seat, lease.fence())) {
                return error(HttpStatus.CONFLICT, seat + " is taken");
            }
            bank.authorize(guest);
            // If the lock was lost meanwhile and somebody else has had it, the book refuses this.
            book.enter(seat, guest, lease.fence());
        }
        return ResponseEntity.status(HttpStatus.CREATED).body(new Seat(seat, guest));
    }

    @ExceptionHandler
    ResponseEntity<?> overtaken(Book.Overtaken error) {
        return error(HttpStatus.CONFLICT, error.getMessage());
    }

    /** Others had the lock for too long, no server answered, or this process ends. */
    @ExceptionHandler
    ResponseEntity<?> unavailable(LeaseholdException error) {
        LOGGER.warn(error.getMessage());
        return ResponseEntity.status(HttpStatus.SERVICE_UNAVAILABLE).header("Retry-After", "1").body(Map.of("error", error.getMessage()));
    }

    private static ResponseEntity<?> error(HttpStatus status, String what) {
        return ResponseEntity.status(status).body(Map.of("error", what));
    }
}
