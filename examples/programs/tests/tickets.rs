//! The web service that sells tickets.

use crate::program::{Program, assert_no_lock_is_left, locks, url};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{Client, Server, Setup, bulk_text, eventually, int, short_or_long};

const SEATS: usize = 40;
const VISITORS: usize = 60;

/// A process of the service.
struct Service {
    program: Program,
    address: String,
}

/// The status, and what it says beside.
type Answer = (u16, String);

impl Service {
    fn start(server: &Server, folder: &Path) -> Self {
        let program = Program::start(
            Command::new(env!("CARGO_BIN_EXE_tickets"))
                .env("REDIS_URL", url(server))
                .env("DATABASE", folder.join("tickets.db"))
                .env("ADDRESS", "127.0.0.1:0"),
        );
        let address = program.says("listening on").rsplit(' ').next().unwrap().to_owned();
        Self { program, address }
    }

    fn sell(&self, concert: &str) -> Answer {
        sell(&self.address, concert)
    }

    /// Asks in the background.
    fn visitor(&self, concert: &str) -> thread::JoinHandle<io::Result<Answer>> {
        let (address, concert) = (self.address.clone(), concert.to_owned());
        thread::spawn(move || try_to_sell(&address, &concert))
    }

    /// All visitors at once, to one concert after the other. Whose patience has ended asks again.
    fn rush(&self, concerts: &[&str]) -> Vec<(String, Answer)> {
        let visitors: Vec<_> = concerts
            .iter()
            .cycle()
            .take(VISITORS)
            .map(|concert| {
                let (address, concert) = (self.address.clone(), (*concert).to_owned());
                thread::spawn(move || {
                    let answered = || Some(sell(&address, &concert)).filter(|it| it.0 != 503);
                    let answer = eventually("an answer", || answered().ok_or(()));
                    (concert, answer)
                })
            })
            .collect();
        visitors.into_iter().map(|visitor| visitor.join().unwrap()).collect()
    }
}

fn sell(address: &str, concert: &str) -> Answer {
    try_to_sell(address, concert).unwrap()
}

fn try_to_sell(address: &str, concert: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    let head = format!("POST /concerts/{concert}/tickets HTTP/1.1\r\nHost: tickets");
    write!(stream, "{head}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.trim().to_owned()))
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// No ticket was sold twice, and none was lost: they are numbered from 1 on, as many as the
/// database knows of.
#[track_caller]
fn assert_each_ticket_was_sold_once(answers: &[(String, Answer)], folder: &Path) {
    let mut tickets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (concert, (status, said)) in answers {
        if *status == 200 {
            let number = said.strip_prefix("ticket ").unwrap().parse().unwrap();
            tickets.entry(concert).or_default().push(number);
        }
    }
    let database = Connection::open(folder.join("tickets.db")).unwrap();
    let sold = |concert: &str| -> usize {
        let asked = "SELECT sold FROM concerts WHERE name = ?1";
        database.query_row(asked, [concert], |row| row.get(0)).unwrap()
    };
    for (concert, mut numbers) in tickets {
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(1..=sold(concert)), "{concert}");
    }
}

fn count(answers: &[(String, Answer)], status: u16) -> usize {
    answers.iter().filter(|(_, answer)| answer.0 == status).count()
}

fn rushes_on(setup: Setup) {
    let server = setup.tcp().start();
    for _ in 0..short_or_long(3, 30) {
        let folder = folder();
        let service = Service::start(&server, folder.path());
        // Those who come to one lock, and those who come to more locks than connections may wait.
        let one = service.rush(&["opera"]);
        assert_eq!((count(&one, 200), count(&one, 410)), (SEATS, VISITORS - SEATS), "{one:?}");
        let many = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"];
        let many = service.rush(&many);
        assert_eq!(count(&many, 200), VISITORS, "{many:?}");
        assert_each_ticket_was_sold_once(&one, folder.path());
        assert_each_ticket_was_sold_once(&many, folder.path());
        service.program.terminate();
        assert_no_lock_is_left(&server, "concert:");
    }
}

#[test]
fn sixty_visitors_at_once_get_forty_seats_and_each_once() {
    rushes_on(Server::builder());
}

#[test]
fn sixty_visitors_at_once_get_forty_seats_without_the_module_too() {
    rushes_on(Server::builder().without_module());
}

#[test]
fn one_connection_is_enough_however_many_wait_and_patience_is_a_503() {
    let server = Server::builder().tcp().start();
    let folder = folder();
    let service = Service::start(&server, folder.path());
    let halls: Vec<_> = (0..12).map(|hall| format!("hall-{hall}")).collect();
    let mut other = server.client();
    for hall in &halls {
        other.acquire(format!("concert:{hall}"), "somebody else", 60_000).unwrap();
    }
    let connections = |client: &mut Client| bulk_text(&client.cmd("CLIENT LIST")).lines().count();
    let of_others = connections(&mut other);
    let begun = Instant::now();
    let visitors: Vec<_> =
        halls.iter().cycle().take(VISITORS).map(|hall| service.visitor(hall)).collect();
    let (mut most, mut waiting) = (0, 0);
    while !visitors.iter().all(|visitor| visitor.is_finished()) {
        most = most.max(connections(&mut other) - of_others);
        waiting = waiting.max(other.counter("tickets"));
    }
    for visitor in visitors {
        let (status, said) = visitor.join().unwrap().unwrap();
        assert_eq!(status, 503, "{said}");
        assert!(said.contains("was held by others"), "{said}");
    }
    // The patience is 2 s.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(
        (most, waiting),
        (1, VISITORS as u64),
        "connections of the service, and places in queues"
    );
    service.program.terminate();
}

/// Two processes. One is paused with the lock, which is deleted, so that the other gets it. The
/// first goes on before its lease ends: nothing but the fence tells that it is late.
fn overtaken_on(setup: Setup) {
    let server = setup.tcp().start();
    let folder = folder();
    let paused = Service::start(&server, folder.path());
    let other = Service::start(&server, folder.path());
    // A visitor who is paused before the service has read, or after it has written, does not show
    // it.
    let mut scenes = 1..=50;
    let seen = scenes.find(|scene| is_overtaken(&server, &paused, &other, folder.path(), *scene));
    assert!(seen.is_some(), "no late sale was refused");
    paused.program.terminate();
    other.program.terminate();
    assert_no_lock_is_left(&server, "concert:");
}

fn is_overtaken(
    server: &Server,
    paused: &Service,
    other: &Service,
    folder: &Path,
    scene: usize,
) -> bool {
    let concert = format!("opera-{scene}");
    let (address, name) = (paused.address.clone(), concert.clone());
    // One after the other, so that nobody waits who would get the lock that is deleted.
    let visitors = thread::spawn(move || Vec::from_iter((0..10).map(|_| sell(&address, &name))));
    let key = format!("concert:{concert}");
    eventually("the lock is held", || match locks(server, &key) {
        held if held.is_empty() && !visitors.is_finished() => Err(held),
        _ => Ok(()),
    });
    paused.program.signal("STOP");
    let held = server.cmd(["DEL", &key]) == int(1);
    let sold = held.then(|| other.sell(&concert));
    paused.program.signal("CONT");
    let mut answers = visitors.join().unwrap();
    let is_overtaken = answers.iter().any(|(status, _)| *status == 409);
    answers.extend(sold);
    let answers: Vec<_> = answers.into_iter().map(|answer| (concert.clone(), answer)).collect();
    assert_each_ticket_was_sold_once(&answers, folder);
    is_overtaken
}

#[test]
fn the_database_refuses_a_sale_with_a_stale_fence() {
    overtaken_on(Server::builder());
}

#[test]
fn the_database_refuses_a_sale_with_a_stale_fence_without_the_module_too() {
    overtaken_on(Server::builder().without_module());
}

#[test]
fn who_is_being_served_when_the_service_is_told_to_stop_is_answered() {
    let server = Server::builder().tcp().start();
    for _ in 0..short_or_long(3, 30) {
        let folder = folder();
        let service = Service::start(&server, folder.path());
        let visitors: Vec<_> = (0..VISITORS).map(|_| service.visitor("opera")).collect();
        eventually("some have been served", || {
            let served = visitors.iter().filter(|visitor| visitor.is_finished()).count();
            if served >= 5 { Ok(()) } else { Err(served) }
        });
        service.program.terminate();
        assert_no_lock_is_left(&server, "concert:");
        // The others came too late, and bought nothing.
        let answers: Vec<_> = visitors
            .into_iter()
            .filter_map(|visitor| visitor.join().unwrap().ok())
            .map(|answer| ("opera".to_owned(), answer))
            .collect();
        assert!(count(&answers, 200) >= 5, "{answers:?}");
        assert_each_ticket_was_sold_once(&answers, folder.path());
    }
}

#[test]
fn the_service_starts_before_its_server_and_sells_when_that_is_there() {
    let mut server = Server::builder().tcp().start();
    server.kill();
    let folder = folder();
    let service = Service::start(&server, folder.path());
    let begun = Instant::now();
    let (status, said) = service.sell("opera");
    assert!(status == 503 && said.contains("no server"), "{status} {said}");
    // It waits for an unreachable server for 2 s.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    server.start_again();
    assert_eq!(service.sell("opera"), (200, "ticket 1".to_owned()));
    service.program.terminate();
    assert_no_lock_is_left(&server, "concert:");
}
