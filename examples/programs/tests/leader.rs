//! The leader, over faults of its process and of the server.

use crate::program::{Program, assert_no_lock_is_left, url};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use testkit::{Server, Setup, eventually, short_or_long};

struct Scene {
    server: Server,
    folder: TempDir,
    candidates: BTreeMap<String, Program>,
}

/// What the database took from a leader.
#[derive(Clone, Debug)]
struct Act {
    fence: i64,
    candidate: String,
}

impl Scene {
    fn on(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server: setup.tcp().start(), folder, candidates: BTreeMap::new() }
    }

    fn start(&mut self, name: &str) {
        let program = Program::start(
            Command::new(env!("CARGO_BIN_EXE_leader"))
                .arg(name)
                .env("REDIS_URL", url(&self.server))
                .env("DATABASE", self.database()),
        );
        program.says("is a candidate");
        self.candidates.insert(name.to_owned(), program);
    }

    fn start_all(&mut self) {
        ["anna", "ben", "carla"].into_iter().for_each(|name| self.start(name));
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("acts.db")
    }

    fn acts(&self) -> Vec<Act> {
        let database = Connection::open(self.database()).unwrap();
        let asked = "SELECT fence, candidate FROM acts ORDER BY number";
        let mut rows = database.prepare(asked).unwrap();
        let act = |row: &rusqlite::Row<'_>| Ok(Act { fence: row.get(0)?, candidate: row.get(1)? });
        rows.query_map([], act).unwrap().map(Result::unwrap).collect()
    }

    /// Waits until somebody acts with a larger fence than this.
    fn leader_after(&self, fence: i64) -> Act {
        eventually("a new leader acts", || match self.acts().last() {
            Some(act) if act.fence > fence => Ok(act.clone()),
            other => Err(format!("{other:?}")),
        })
    }

    fn acts_on(&self, leader: &Act) {
        let so_far = self.acts().len();
        eventually("the leader goes on", || match self.acts().get(so_far + 2) {
            Some(act) if act.fence == leader.fence => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Nobody has acted with the fence of another one, and nobody with a smaller one after a later
    /// leader.
    fn assert_one_led_at_a_time(&self) {
        let acts = self.acts();
        for two in acts.windows(2) {
            let (before, after) = (&two[0], &two[1]);
            assert!(before.fence <= after.fence, "{two:?}");
            assert!(before.fence < after.fence || before.candidate == after.candidate, "{two:?}");
        }
    }

    /// Each of them ends in the orderly way, the leader first.
    fn end(mut self) {
        while !self.candidates.is_empty() {
            let leader = self.acts().pop().map(|act| act.candidate).unwrap_or_default();
            let next = self.candidates.keys().find(|name| **name == leader);
            let next = next.or_else(|| self.candidates.keys().next()).unwrap().clone();
            self.candidates.remove(&next).unwrap().terminate();
        }
        assert_no_lock_is_left(&self.server, "scheduler");
        self.assert_one_led_at_a_time();
    }
}

fn terms_on(setup: Setup) {
    let mut scene = Scene::on(setup);
    let mut fence = 0;
    for _ in 0..short_or_long(3, 30) {
        scene.start_all();
        for _ in 0..3 {
            let leader = scene.leader_after(fence);
            scene.acts_on(&leader);
            scene.candidates.remove(&leader.candidate).unwrap().terminate();
            fence = leader.fence;
        }
        assert_no_lock_is_left(&scene.server, "scheduler");
        scene.assert_one_led_at_a_time();
    }
}

fn faults_on(setup: Setup) {
    for _ in 0..short_or_long(1, 30) {
        let mut scene = Scene::on(setup.clone());
        scene.start_all();

        // The process of the leader is paused for longer than its lease.
        let first = scene.leader_after(0);
        let paused = &scene.candidates[&first.candidate];
        paused.signal("STOP");
        let second = scene.leader_after(first.fence);
        assert_ne!(second.candidate, first.candidate);
        paused.signal("CONT");
        paused.says("leads no more");
        scene.acts_on(&second);

        // The server is paused until the leader has given up.
        scene.server.freeze();
        scene.candidates[&second.candidate].says("leads no more: its lease could have ended");
        scene.server.thaw();
        let third = scene.leader_after(second.fence);
        scene.acts_on(&third);

        // The server is killed, and forgets everything.
        scene.server.kill();
        scene.server.start_again();
        let fourth = scene.leader_after(third.fence);
        scene.acts_on(&fourth);

        // The process of the leader is killed.
        scene.candidates.remove(&fourth.candidate).unwrap().kill();
        let fifth = scene.leader_after(fourth.fence);
        assert_ne!(fifth.candidate, fourth.candidate);
        scene.acts_on(&fifth);

        // And started again, it leads when the others are gone.
        scene.start(&fourth.candidate);
        scene.end();
    }
}

#[test]
fn candidates_lead_one_after_the_other_and_leave_no_lock() {
    terms_on(Server::builder());
}

#[test]
fn candidates_lead_one_after_the_other_without_the_module_too() {
    terms_on(Server::builder().without_module());
}

#[test]
fn no_two_lead_with_one_fence_whatever_is_paused_and_killed() {
    faults_on(Server::builder());
}

#[test]
fn no_two_lead_with_one_fence_whatever_is_paused_and_killed_without_the_module_too() {
    faults_on(Server::builder().without_module());
}
