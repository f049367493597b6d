//! The first hour of a new user: a cron job on three machines, a look at its lock, and a server that dies.

use crate::scene::{eventually_held, run, server, start, url};

#[test]
fn one_of_three_machines_runs_the_job_and_the_death_of_the_server_is_explained() {
    let mut server = server();
    let job = ["run", "--at-least", "40s", "nightly", "--", "sh", "-c", "echo begun; read wait"];
    let machines = [(); 3].map(|()| start(&server, &job));
    let owner = eventually_held(&server, "nightly").split_once(':').unwrap().1.to_owned();
    let its_owner = |id: u32| owner.contains(&format!(":{id}:"));
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    for machine in machines {
        if its_owner(machine.id()) { runs.push(machine) } else { others.push(machine) }
    }
    for other in others {
        let ended = other.ends();
        assert_eq!((ended.code, ended.printed.as_str()), (75, ""));
        assert!(ended.said.contains(&format!("held by {owner}")), "{}", ended.said);
    }
    let mut machine = runs.pop().expect("one of them holds it");
    machine.prints("begun");

    let seen = start(&server, &["top", "--once"]).ends();
    let row =
        seen.printed.lines().find(|line| line.contains("nightly")).expect("it is in the view");
    assert!(row.contains(&owner), "{row}");

    server.kill();
    let (code, said) = run(&server, &["ls"]);
    let address = url(server.port());
    assert_eq!(code, 69, "{said}");
    for word in [&*format!("no answer from {address}"), "Connection refused", "Start the server"] {
        assert!(said.contains(word), "{said}");
    }
    machine.types("\n");
    let ended = machine.ends();
    assert_eq!(ended.code, 0, "the job itself has succeeded");
    let told = format!("nightly could not be released at {address}");
    assert!(
        ended.said.contains(&told) && ended.said.contains("when its lease ends"),
        "{}",
        ended.said
    );
}
