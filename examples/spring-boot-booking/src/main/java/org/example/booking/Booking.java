package org.example.booking;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** A service that books the seats of a theatre: POST /seats/12A books a seat, and no seat is booked twice. */
@SpringBootApplication
public class Booking {
    public static void main(String[] words) {
        SpringApplication.run(Booking.class, words);
    }
}
