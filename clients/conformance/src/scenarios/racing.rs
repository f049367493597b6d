//! Who gets a lock that several want.

use super::{Scenario, quick, slow};
use crate::program::lock;
use crate::scene::{LONG, Scene, millis, server, until_waiting};
use testkit::eventually;

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "two-racers",
        "of two programs that try at the same time, one has the lock and the other is told that it has not",
        two_racers,
    ),
    quick(
        "not-twice",
        "a second request of the same program is somebody else's: it does not get the lock",
        not_twice,
    ),
    slow(
        "workers",
        "sixteen workers of two programs work under one lock two hundred times, and never two at a time",
        workers,
    ),
    slow(
        "equal-terms",
        "workers of all languages that want one lock all the time get it as often as each other",
        equal_terms,
    ),
    quick("fifo", "waiters of all languages get the lock in the order of their coming", fifo),
    quick("fences", "each grant has a larger fence than all before, in whatever language", fences),
];

fn two_racers(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    for round in 0..20 {
        let name = format!("race-{round}");
        let asked = [one.begin_to_try(&lock(&name)), other.begin_to_try(&lock(&name))];
        let held: Vec<_> =
            asked.iter().filter_map(crate::program::Waiting::lease_if_held).collect();
        assert_eq!(held.len(), 1, "round {round}");
        let info = server.client().info(&name).unwrap();
        assert_eq!((info.owner.as_slice(), info.fence), (held[0].owner.as_bytes(), held[0].fence));
    }
}

fn not_twice(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x"));
    assert!(program.try_acquire(&lock("x")).is_none());
    assert_eq!(lease.release(), "released");
    assert!(program.try_acquire(&lock("x")).is_some());
}

fn workers(scene: &Scene<'_>) {
    const WORKERS: usize = 8;
    const ROUNDS: usize = 12;
    let server = server();
    let programs = [scene.program(&server), scene.program(&server)];
    let mut last = 0;
    for _ in 0..ROUNDS {
        let mut works: Vec<_> = programs
            .iter()
            .flat_map(|program| (0..WORKERS).map(|_| program.run(&lock("x").wait(LONG))))
            .collect();
        while !works.is_empty() {
            let at_it = eventually("one works", || {
                let at_it = works.iter().position(crate::program::Work::has_begun);
                at_it.ok_or(())
            });
            let others = works.iter().filter(|work| work.has_begun()).count();
            assert_eq!(others, 1, "several work at a time");
            let work = works.remove(at_it);
            let fence = work.begun();
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            work.ends_with("done");
            assert_eq!(work.result(), "done");
        }
    }
}

fn equal_terms(scene: &Scene<'_>) {
    // Few programs have more workers each, so that the turn of all takes long beside a request's way.
    const WORKERS: usize = 28;
    const ROUNDS: usize = 12;
    let server = server();
    let mut client = server.client();
    // No program gets ahead while another one starts.
    client.grant("x", "before", 60_000);
    let programs = scene.programs_of_all(&server);
    let begin = |which: usize| (which, programs[which].run(&lock("x").wait(LONG)));
    let each = WORKERS.div_ceil(programs.len());
    let mut works: Vec<_> = (0..programs.len() * each).map(|at| begin(at / each)).collect();
    let (workers, mut grants) = (works.len(), vec![0; programs.len()]);
    until_waiting(&server, "x", workers.try_into().unwrap());
    assert!(client.release("x", "before"));
    for left in (0..workers * ROUNDS).rev() {
        let at_it = eventually("one works", || {
            works.iter().position(|(_, work)| work.has_begun()).ok_or(())
        });
        let (which, work) = works.remove(at_it);
        work.ends_with("done");
        assert_eq!(work.result(), "done");
        grants[which] += 1;
        if left >= workers {
            works.push(begin(which));
        }
    }
    let (least, most) = (grants.iter().min().unwrap(), grants.iter().max().unwrap());
    assert!(least * 5 >= most * 4, "{grants:?}");
}

fn fifo(scene: &Scene<'_>) {
    let server = server();
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    // The one whose turn it is first, and then all languages, and it once more.
    let mut programs = vec![scene.program(&server)];
    programs.extend(scene.programs_of_all(&server));
    programs.push(scene.program(&server));
    let mut waiting = Vec::new();
    for (count, program) in (1..).zip(&programs) {
        waiting.push(program.begin(&lock("x").wait(LONG)));
        until_waiting(&server, "x", count);
    }
    assert!(client.release("x", "before"));
    let mut last = 0;
    for (place, request) in waiting.iter().enumerate() {
        let lease = request.lease();
        assert!(lease.fence > last);
        last = lease.fence;
        assert!(waiting[place + 1..].iter().all(|later| later.pending.is_open()), "place {place}");
        assert_eq!(lease.release(), "released");
    }
}

fn fences(scene: &Scene<'_>) {
    let server = server();
    let programs = scene.programs_of_all(&server);
    let mut last = 0;
    for program in programs.iter().chain(programs.iter()) {
        let lease = program.acquire(&lock("x").ttl(millis(5_000)));
        assert!(lease.fence > last, "{} after {last}", lease.fence);
        last = lease.fence;
        assert_eq!(server.client().info("x").unwrap().fence, last);
        assert_eq!(lease.release(), "released");
    }
}
