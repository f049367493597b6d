//! The book of bookings: a SQLite database that takes a write only from whoever has the newest grant.

use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;

const TABLES: &str = "
    CREATE TABLE tables (
        number INTEGER PRIMARY KEY,
        fence INTEGER NOT NULL -- the largest one that has written
    );
    CREATE TABLE bookings (
        number INTEGER NOT NULL REFERENCES tables,
        hour INTEGER NOT NULL,
        guest TEXT NOT NULL,
        PRIMARY KEY (number, hour)
    );
    INSERT INTO tables VALUES (4, 0), (7, 0), (9, 0), (12, 0);";

pub(crate) struct Book {
    database: Connection,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Booked,
    /// Somebody with this larger fence has written: the lock was lost meanwhile.
    Refused {
        newer: u64,
    },
}

impl Book {
    pub(crate) fn create(file: &Path) -> rusqlite::Result<Self> {
        let database = Connection::open(file)?;
        database.execute_batch(TABLES)?;
        Ok(Self { database })
    }

    pub(crate) fn open(file: &Path) -> rusqlite::Result<Self> {
        Ok(Self { database: Connection::open(file)? })
    }

    pub(crate) fn guest_at(&self, table: u32, hour: u32) -> rusqlite::Result<Option<String>> {
        let asked = "SELECT guest FROM bookings WHERE number = ?1 AND hour = ?2";
        self.database.query_row(asked, params![table, hour], |row| row.get(0)).optional()
    }

    /// Writes the booking, unless somebody with a larger fence has written of this table.
    ///
    /// It does not look whether the hour is free: that was done under the lock. So an old holder would write over the
    /// booking of a new one, if it were not for the fence.
    pub(crate) fn write(
        &mut self,
        table: u32,
        hour: u32,
        guest: &str,
        fence: u64,
    ) -> rusqlite::Result<Written> {
        // Fences have sixteen digits, and SQLite counts to nineteen.
        let fence = fence.cast_signed();
        let writing = self.database.transaction()?;
        let newest = writing.execute(
            "UPDATE tables SET fence = ?2 WHERE number = ?1 AND fence <= ?2",
            params![table, fence],
        )?;
        if newest == 0 {
            let asked = "SELECT fence FROM tables WHERE number = ?1";
            let newer: i64 = writing.query_row(asked, [table], |row| row.get(0))?;
            return Ok(Written::Refused { newer: newer.cast_unsigned() });
        }
        writing.execute(
            "INSERT OR REPLACE INTO bookings VALUES (?1, ?2, ?3)",
            params![table, hour, guest],
        )?;
        writing.commit()?;
        Ok(Written::Booked)
    }

    /// Every booking: table, hour and guest.
    pub(crate) fn all(&self) -> rusqlite::Result<Vec<(u32, u32, String)>> {
        let asked = "SELECT number, hour, guest FROM bookings ORDER BY number, hour";
        let mut rows = self.database.prepare(asked)?;
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect()
    }
}
