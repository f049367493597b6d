//! The entrypoint: the server loads the module whatever else it is told, and comes back after it wrote its
//! configuration.

use super::container::{Container, server_name};
use std::fs;
use testkit::{CALLER, lacks, module};

/// What CONFIG REWRITE leaves behind, which Sentinel sends at every failover.
const SINCE: ((u32, u32), &str) = ((7, 0), "modules that CONFIG REWRITE writes down");

fn setting(container: &Container, name: &str) -> String {
    let told = container.tell(&["CONFIG", "GET", name]);
    told.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn the_entrypoint_loads_the_module_whatever_else_it_is_told() {
    let mut container = Container::new();
    let file = container.write("own.conf", "maxmemory 104857600\n");
    let server = container.path_of(server_name());
    for (words, maxmemory) in [
        (&[][..], "0"),
        (&["--maxmemory", "104857600"], "104857600"),
        (&[&*file], "104857600"),
        (&[server_name(), &file], "104857600"),
        (&[&server, &file], "104857600"),
    ] {
        // It serves when it has granted a lock.
        container.serve(words);
        assert_eq!(setting(&container, "maxmemory"), maxmemory, "{words:?}");
        container.kill();
    }
    if !lacks((7, 0), "settings of a module") {
        container.serve(&["--leasehold.max-ttl", "60000"]);
        assert_eq!(setting(&container, "leasehold.max-ttl"), "60000");
    }
}

#[test]
fn the_entrypoint_runs_other_programs_as_they_are() {
    let container = Container::new();
    assert_eq!(container.run(&["sh", "-c", "echo $#:$1", "sh", "a b"]), "1:a b");
    assert!(container.run(&["--version"]).contains(" server v="));
    assert!(container.run(&["cli", "--version"]).contains("-cli "));
}

/// Starts the container, has the server write its configuration, and starts it again; what the file has then.
fn start_twice(container: &mut Container, words: &[&str]) -> String {
    container.serve(words);
    assert_eq!(container.tell(&["CONFIG", "REWRITE"]), "OK", "{words:?}");
    container.kill();
    container.serve(words);
    let written = container.read("own.conf");
    assert_eq!(loads_in(&written), 1, "{words:?}: {written}");
    written
}

fn loads_in(file: &str) -> usize {
    file.lines().filter(|line| line.trim().to_lowercase().starts_with("loadmodule ")).count()
}

#[test]
fn a_container_comes_back_after_the_server_wrote_its_configuration() {
    if lacks(SINCE.0, SINCE.1) {
        return;
    }
    let module = module::path().to_str().unwrap();
    let in_one_word = format!("--loadmodule {module} max-ttl 60000");
    let quoted = format!("--LoadModule\t\"{module}\"");
    for (own, words) in [
        ("", &[][..]),
        ("loadmodule MODULE\n", &[]),
        ("\tLoadModule \"MODULE\" max-ttl 60000\r\n", &[]),
        // By another path, and under another name.
        ("loadmodule ./locks.so\n", &[]),
        // What is included may change where a relative path leads, and a pattern may name no file.
        ("dir DIR/elsewhere\nloadmodule ../locks.so\ninclude none/*.conf\n", &[]),
        ("dir DIR/elsewhere\ninclude m?mory.conf\n# loadmodule x/libleasehold.so\n", &[]),
        ("", &["--LoadModule", module]),
        ("", &[&in_one_word]),
        ("", &[&quoted, "max-ttl", "60000"]),
    ] {
        let mut container = Container::new();
        let data = container.folder().join("data");
        fs::create_dir_all(data.join("elsewhere")).unwrap();
        fs::write(data.join("elsewhere/memory.conf"), "maxmemory 100mb\n").unwrap();
        std::os::unix::fs::symlink(module, data.join("locks.so")).unwrap();
        let own = own.replace("MODULE", module).replace("DIR", data.to_str().unwrap());
        let file = container.write("own.conf", &own);
        start_twice(&mut container, &[&[&*file], words].concat());
        // A path relative to where the container starts.
        container.kill();
        container.serve(&[&["../own.conf"], words].concat());
    }
}

#[test]
fn settings_survive_in_the_file_and_the_command_line_wins_but_for_arguments_of_the_module() {
    if lacks(SINCE.0, SINCE.1) {
        return;
    }
    let mut container = Container::new();
    let file = container.write("own.conf", "");
    container.serve(&[&file]);
    // MODULE LOADEX … CONFIG leaves the same line.
    container.tell(&["CONFIG", "SET", "leasehold.max-ttl", "50000"]);
    container.tell(&["CONFIG", "REWRITE"]);
    for (words, max_ttl) in
        [(&[&*file][..], "50000"), (&[&file, "--leasehold.max-ttl", "40000"], "40000")]
    {
        container.kill();
        container.serve(words);
        assert_eq!(setting(&container, "leasehold.max-ttl"), max_ttl);
    }

    let path = module::path().to_str().unwrap();
    let mut container = Container::new();
    let file = container.write("own.conf", "");
    let words = [&*file, "--loadmodule", path, "max-ttl", "60000", "--maxmemory", "104857600"];
    let written = start_twice(&mut container, &words);
    assert!(written.contains(&format!("loadmodule {path} max-ttl 60000\n")), "{written}");
    container.kill();
    container.serve(&words.map(|word| if word == "60000" { "70000" } else { word }));
    assert_eq!(setting(&container, "maxmemory"), "104857600", "what follows is kept");
    assert_eq!(setting(&container, "leasehold.max-ttl"), "60000");
    assert!(container.log().contains("loads"), "{}", container.log());
}

#[test]
fn a_file_that_cannot_be_written_is_no_obstacle() {
    for line in ["", "loadmodule MODULE\n"] {
        let mut container = Container::new();
        let line = line.replace("MODULE", module::path().to_str().unwrap());
        // The server writes a new file beside it, whose name would be too long.
        let file = container.write(&format!("{}.conf", "x".repeat(250)), &line);
        for _ in 0..2 {
            container.serve(&[&file]);
            let told = container.tell(&["CONFIG", "REWRITE"]);
            assert!(told.starts_with("ERR Rewriting config file"), "{told}");
            container.kill();
        }
    }
}

#[test]
fn configuration_on_standard_input_may_load_the_module_or_leave_it() {
    if lacks((7, 0), "a dash as the last word") {
        return;
    }
    let loads = format!("loadmodule {}\nmaxmemory 104857600", module::path().display());
    let mut container = Container::new();
    let file = container.write("own.conf", "appendonly no\n");
    for input in ["maxmemory 104857600", &loads] {
        for words in [&["-"][..], &["--maxclients", "100", "-"], &[&file, "--save", "", "-"]] {
            container.serve_from(words, input);
            assert_eq!(setting(&container, "maxmemory"), "104857600", "{words:?}");
            container.kill();
        }
    }
}

#[test]
fn where_the_server_would_abort_sooner_or_later_the_entrypoint_says_what_to_mend() {
    let container = Container::new();
    let line = format!("loadmodule {}\n", module::path().display());
    let included = container.write("included.conf", &line);
    let deeper = container.write("deeper.conf", "include \"../included.conf\"\n");
    for name in [&included, &deeper] {
        let by_file = (format!("include {name}\n"), vec!["../own.conf"]);
        let by_line = (String::new(), vec!["../own.conf", "--include", &included]);
        for (own, words) in [by_file, by_line] {
            container.write("own.conf", &own);
            let told = container.refuse(&words);
            assert!(told.contains("move the loadmodule line into ../own.conf"), "{told}");
            assert!(told.contains("included.conf loads the module"), "{told}");
        }
    }
    container.write("own.conf", &line.repeat(2));
    let told = container.refuse(&["../own.conf"]);
    assert!(told.contains("remove one of them from ../own.conf"), "{told}");
    let path = module::path().to_str().unwrap();
    let told = container.refuse(&["--loadmodule", path, "--LOADMODULE", path]);
    assert!(told.contains("the command line loads the module twice"), "{told}");
}

/// As the entrypoint of Valkey's image adds them.
#[test]
fn the_flags_in_the_environment_of_valkeys_image_may_load_the_module() {
    if server_name() != "valkey-server" {
        return;
    }
    for own_entrypoint in [true, false] {
        let flags = format!("--loadmodule {} max-ttl 5000", module::path().display());
        let mut container = Container::new().with("VALKEY_EXTRA_FLAGS", &flags);
        if own_entrypoint {
            let script = "#!/bin/sh\nexec \"$@\" $VALKEY_EXTRA_FLAGS\n";
            container.write_program("docker-entrypoint.sh", script);
        }
        let file = container.write("own.conf", "");
        start_twice(&mut container, &[&file]);
        assert_eq!(setting(&container, "leasehold.max-ttl"), "5000");
    }
}

/// As the image of Redis 8 has them, and its entrypoint.
#[test]
fn modules_that_the_image_brings_do_not_keep_the_server_from_coming_back_either() {
    if lacks(SINCE.0, SINCE.1) {
        return;
    }
    let mut container = Container::new();
    fs::create_dir(container.bundled()).unwrap();
    let bundled = container.bundled().join("caller.so");
    fs::copy(&*CALLER, &bundled).unwrap();
    let path = bundled.display();
    container.write_program(
        "docker-entrypoint.sh",
        &format!("#!/bin/sh\necho its own entrypoint\nexec \"$@\" --loadmodule {path}\n"),
    );
    // Nobody has to become another user.
    container.write_program("id", "#!/bin/sh\necho 999\n");
    let file = container.write("own.conf", "");
    container.serve(&[&file]);
    assert!(container.log().contains("its own entrypoint"), "{}", container.log());
    for _ in 0..2 {
        assert_eq!(container.tell(&["CALLER.CALL", "PING"]), "PONG");
        assert_eq!(container.tell(&["CONFIG", "REWRITE"]), "OK");
        container.kill();
        container.serve(&[&file]);
    }
    let written = container.read("own.conf");
    assert_eq!(loads_in(&written), 2, "{written}");
}
