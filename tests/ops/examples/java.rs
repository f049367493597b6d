//! The recipes for Java: the class on which they rest is run, with a socket where they have a client library. They
//! themselves, and the blocks that docs/clients.md has for clusters, are compiled as far as that goes without these libraries.

use super::server;
use crate::page::shown;
use crate::program::{Told, available, find, run};
use crate::text;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use testkit::until;

const PROGRAM: &str = r#"
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Scanner;

class Program extends Locks {
    final int port;

    Program(int port) {
        this.port = port;
    }

    Long send(String... request) throws Exception {
        return ask(LATE, request);
    }

    void await(long end, String... request) throws Exception {
        long left = Math.max(1, end - now());
        String[] waits = Arrays.copyOf(request, request.length + 2);
        waits[request.length] = "BLOCK";
        waits[request.length + 1] = "" + left;
        ask(left + LATE, waits);
    }

    Long ask(long limit, String... words) throws Exception {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout((int) limit);
            StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
            for (String word : words) request.append("$" + word.length() + "\r\n" + word + "\r\n");
            socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.UTF_8));
            String reply = new Scanner(socket.getInputStream()).nextLine();
            if (reply.startsWith("-")) throw new IllegalStateException(reply.substring(1));
            return reply.startsWith(":") ? Long.valueOf(reply.substring(1)) : null;
        }
    }

    public static void main(String[] words) throws Exception {
        Program locks = new Program(Integer.parseInt(words[0]));
        try (var lease = locks.acquire("k", 60_000, 0)) {
            System.out.println(lease.fence > 0 && lease.validFor() > 50_000 && lease.extend(30_000));
            System.out.println(locks.acquire("k", 1_000, 0) + " " + locks.acquire("k", 1_000, 50));
        }
        try (var one = locks.acquire("k", 60_000, 0, 2); var other = locks.acquire("k", 60_000, 0, 2)) {
            System.out.println(other.fence > one.fence);
        }
        var lease = locks.acquire("waited", 1_500, 30_000);
        lease.lost.get();
        System.out.println(lease.validFor() + " " + lease.release());
    }
}
"#;

#[test]
fn the_class_for_java_keeps_its_locks_and_is_told_when_they_are_lost() {
    let (Some(javac), Some(java)) = (available(find("javac")), available(find("java"))) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let sources = [("Locks", recipe("Locks")), ("Program", PROGRAM.to_owned())];
    let told = compile(&javac, folder.path(), &sources);
    assert!(told.success, "{}{}", told.out, told.err);

    let server = server();
    let mut client = server.client();
    client.grant("waited", "alice", 60_000);
    let mut program = Command::new(java);
    program.arg("-cp").arg(folder.path()).arg("Program").arg(server.port().to_string());
    let told = thread::scope(|scope| {
        let works = scope.spawn(|| run(&mut program));
        client.wait_until_waiters(1);
        assert!(client.release("waited", "alice"));
        // More than one lease is long.
        until("it is renewed", || client.counter("extends"), |extends| *extends >= 5);
        server.cmd("DEL waited");
        works.join().unwrap()
    });
    assert_eq!(told.output(), "true\nnull null\ntrue\n0 false\n");
    assert_eq!(client.counter("held"), 0);
}

fn recipe(class: &str) -> String {
    text(&format!("clients/recipes/java/{class}.java"))
}

fn compile(javac: &Path, folder: &Path, sources: &[(&str, String)]) -> Told {
    let mut command = Command::new(javac);
    // With the keys of what it says, and not only to the first phase in which something is wrong.
    command.args(["-proc:none", "-d", ".", "-XDrawDiagnostics", "-XDshould-stop.ifError=FLOW"]);
    for (name, text) in sources {
        fs::write(folder.join(format!("{name}.java")), text).unwrap();
        command.arg(format!("{name}.java"));
    }
    run(command.current_dir(folder))
}

/// The block for a cluster, as a class that has the other members from the recipe.
fn in_a_cluster() -> String {
    let block = shown("docs/clients.md", "Jedis, JedisCluster", "java");
    let (imports, members): (Vec<_>, Vec<_>) =
        block.lines().partition(|line| line.starts_with("import "));
    format!(
        "{}\nclass Cluster extends JedisLocks {{\n{}\n}}\n",
        imports.join("\n"),
        members.join("\n")
    )
}

/// That a package or a class is not there, or what such a class would have had.
fn is_of_a_missing_library(error: &str) -> bool {
    let name = error.split_once("cant.resolve").and_then(|(_, rest)| rest.split(", ").nth(1));
    name.is_some_and(|name| name.starts_with(char::is_uppercase))
        || ["doesnt.exist: ", "does.not.override.superclass", "method, setMaxTotal"]
            .iter()
            .any(|of_library| error.contains(of_library))
}

#[test]
fn nothing_is_wrong_with_the_recipes_for_java_but_that_libraries_are_missing() {
    let Some(javac) = available(find("javac")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let sources = [
        ("Locks", recipe("Locks")),
        ("JedisLocks", recipe("JedisLocks")),
        ("Cluster", in_a_cluster()),
    ];
    let told = compile(&javac, folder.path(), &sources);
    let (missing, others): (Vec<_>, Vec<_>) = told
        .err
        .lines()
        .filter(|line| line.contains(": compiler.err."))
        .partition(|error| is_of_a_missing_library(error));
    assert!(!missing.is_empty() && others.is_empty(), "{others:#?}");
}
