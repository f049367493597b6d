//! The recipes for Java: the class on which they rest is run, with a socket where they have a client library, and they
//! themselves are compiled, also with the blocks that docs/clients.md has for clusters.

mod stand_ins;

use super::page;
use super::program::{available, find, run};
use super::server;
use crate::ROOT;
use stand_ins::{Class, JEDIS, LETTUCE};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use testkit::eventually;

const PAGE: &str = "docs/clients.md";
const FOLDER: &str = "clients/recipes/java";

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
    compile(&javac, folder.path(), &sources);

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

fn recipe(class: &str) -> String {
    let file = Path::new(ROOT).join(FOLDER).join(class).with_extension("java");
    fs::read_to_string(file).unwrap()
}

fn compile(javac: &Path, folder: &Path, sources: &[(&str, String)]) {
    let mut command = Command::new(javac);
    command.current_dir(folder).args(["-proc:none", "-sourcepath", ".", "-d", "."]);
    for (name, text) in sources {
        fs::write(folder.join(format!("{name}.java")), text).unwrap();
        command.arg(format!("{name}.java"));
    }
    let told = run(&mut command);
    assert!(told.success, "{}{}", told.out, told.err);
}

/// So that the compiler finds them beside what it compiles.
fn put(folder: &Path, classes: &[Class]) {
    for (name, text) in classes {
        let (package, class) = name.rsplit_once('.').unwrap();
        let package_folder = folder.join(package.replace('.', "/"));
        fs::create_dir_all(&package_folder).unwrap();
        let text = format!("package {package}; public {text}");
        fs::write(package_folder.join(format!("{class}.java")), text).unwrap();
    }
}

/// What a line of a class begins: `final T name = …` or `T name(…) {`.
fn member(line: &str) -> Option<&str> {
    let line = line.strip_prefix("    ").filter(|line| !line.starts_with([' ', '}', '@', '/']))?;
    let before = match (line.split_once(" = "), line.split_once('(')) {
        (Some((before, _)), _) if line.starts_with("final ") => before,
        (_, Some((before, _))) => before,
        _ => return None,
    };
    before.rsplit(' ').next()
}

/// The recipe with what the block for a cluster has in the place of its own.
fn in_a_cluster(recipe: &str, block: &str) -> String {
    let (imports, members): (Vec<_>, Vec<_>) =
        block.lines().partition(|line| line.starts_with("import "));
    let replaced: Vec<_> = members.iter().filter_map(|line| member(line)).collect();
    let mut text = format!("{}\n", imports.join("\n"));
    let (mut members, mut is_left_out) = (Some(members), false);
    for line in recipe.lines() {
        let begins = member(line);
        let is_replaced = begins.is_some_and(|name| replaced.contains(&name));
        if is_replaced {
            for line in members.take().into_iter().flatten() {
                text.push_str(&format!("{line}\n"));
            }
        }
        if !is_replaced && !is_left_out {
            text.push_str(&format!("{line}\n"));
        }
        is_left_out = (is_left_out || is_replaced && line.ends_with('{')) && line != "    }";
    }
    assert!(members.is_none(), "nothing of {recipe} is replaced by {block}");
    text
}

#[test]
fn the_recipes_for_java_compile_for_one_server_by_tickets_and_for_a_cluster() {
    let Some(javac) = available(find("javac")) else { return };
    let below = |heading: &str| page::blocks(PAGE, heading, "java");
    let (jedis, lettuce) = (recipe("JedisLocks"), recipe("LettuceLocks"));
    let cluster = [
        ("JedisLocks", in_a_cluster(&jedis, &below("Jedis, JedisCluster"))),
        ("LettuceLocks", in_a_cluster(&lettuce, &below("Lettuce, RedisClusterClient"))),
    ];
    let one = [
        ("JedisLocks", jedis),
        ("LettuceLocks", lettuce),
        ("LettuceTickets", recipe("LettuceTickets")),
    ];
    for recipes in [&one[..], &cluster[..]] {
        let folder = tempfile::tempdir().unwrap();
        put(folder.path(), JEDIS);
        put(folder.path(), LETTUCE);
        let mut sources = vec![("Locks", recipe("Locks"))];
        sources.extend(recipes.iter().cloned());
        compile(&javac, folder.path(), &sources);
    }
}
