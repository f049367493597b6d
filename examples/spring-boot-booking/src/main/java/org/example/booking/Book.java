package org.example.booking;

import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Transactional;

/** The book of a theatre: a database that takes a write only with the newest fence of the seat. */
@Component
class Book {
    /** A newer fence has been stored: somebody else has had the lock since. */
    static class Overtaken extends RuntimeException {
        Overtaken() {
            super("the seat is being booked by somebody else");
        }
    }

    private static final String SEEN = """
            MERGE INTO seats AS seat USING (VALUES (:name, CAST(:fence AS BIGINT))) AS seen (name, fence) ON seat.name = seen.name
            WHEN MATCHED AND seat.fence <= seen.fence THEN UPDATE SET fence = seen.fence
            WHEN NOT MATCHED THEN INSERT (name, fence) VALUES (seen.name, seen.fence)""";
    private static final String ENTER = "UPDATE seats SET guest = :guest WHERE name = :name AND fence <= :fence";

    private final JdbcClient database;

    Book(JdbcClient database) {
        this.database = database;
    }

    /** Whether somebody has the seat. The fence is stored: from then on no write with an older one is taken. */
    @Transactional
    boolean isTaken(String seat, long fence) {
        write(database.sql(SEEN).param("name", seat).param("fence", fence));
        return database.sql("SELECT guest IS NOT NULL FROM seats WHERE name = :name").param("name", seat).query(Boolean.class).single();
    }

    void enter(String seat, String guest, long fence) {
        write(database.sql(ENTER).param("guest", guest).param("name", seat).param("fence", fence));
    }

    private static void write(JdbcClient.StatementSpec statement) {
        if (statement.update() == 0) {
            throw new Overtaken();
        }
    }
}
