//! The server saves its data and rewrites its append-only file all the time.

use super::book::Book;
use super::busy;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Seed, Server, Snapshot, figure, short_or_long};

const WORKERS: usize = 10;
const EVERY: Duration = Duration::from_millis(200);

#[test]
fn a_server_that_saves_all_the_time_loses_no_grant_and_all_its_files_agree() {
    let mut seed = Seed::announced();
    let mut server = Server::builder().config("appendonly", "yes").start();
    let over = AtomicBool::new(false);
    let lasts = short_or_long(Duration::from_millis(2_500), Duration::from_secs(60));
    let mut saves = 0;
    let grants = thread::scope(|scope| {
        let work = busy::start(scope, &server, WORKERS, &mut seed, &over);
        let (begin, mut client) = (Instant::now(), server.client());
        while begin.elapsed() < lasts && !work.has_failed() {
            let next = Instant::now() + EVERY;
            client.save_by(["BGSAVE", "BGREWRITEAOF"][saves % 2]);
            saves += 1;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        work.finish()
    });
    let mut book = Book::default();
    let wrong = book.take_down(&grants);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert!(book.answered > 500 && saves > 3, "{} grants, {saves} saves", book.answered);
    figure(&format!(
        "saved or rewritten {saves} times under load, one every 200 ms: {} grants answered, none lost",
        book.answered
    ));

    let mut client = server.client();
    assert_eq!(client.counter("waiters"), 0, "everybody was answered");
    // What could run out meanwhile does so first.
    let latest = client.now() + 1_000;
    client.wait_until_past(latest);
    client.save_by("BGSAVE");
    let live = Snapshot::of(&server);
    assert_ne!(live.size(), 0, "nothing to compare");
    let mut agrees = |server: &Server, what: &str| {
        assert_eq!(Snapshot::of(server), live, "{what}");
        book.compare(&grants, &mut server.client()).assert_nothing_lost();
    };
    agrees(&server, "the server");
    server.kill();
    {
        let setup = Server::builder().config("appendonly", "yes").in_the_directory_of(&server);
        let mut again = setup.start();
        agrees(&again, "the append-only file as it was");
        again.client().save_by("BGREWRITEAOF");
        again.kill();
        again.start_again();
        agrees(&again, "the append-only file, rewritten");
    }
    agrees(&Server::builder().in_the_directory_of(&server).start(), "the RDB file");
}
