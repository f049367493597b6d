//! The class of docs/clients.md on which the recipes for Java rest, compiled and run as printed, with a socket where they have a
//! client library.

use super::page;
use super::program::{available, find, run};
use super::server;
use std::fs;
use std::process::Command;
use std::thread;
use testkit::eventually;

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
    let file = |name: &str| folder.path().join(name);
    fs::write(file("Locks.java"), page::blocks("docs/clients.md", "A lock in Java", "java"))
        .unwrap();
    fs::write(file("Program.java"), PROGRAM).unwrap();
    let mut compile = Command::new(javac);
    let told = run(compile.current_dir(folder.path()).args(["Locks.java", "Program.java"]));
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
        eventually("it is renewed", || match client.counter("extends") {
            extends if extends >= 5 => Ok(()),
            extends => Err(extends),
        });
        server.cmd("DEL waited");
        works.join().unwrap()
    });
    assert_eq!(told.output(), "true\nnull null\ntrue\n0 false\n");
    assert_eq!(client.counter("held"), 0);
}
