//! The maintainer scripts of Debian's package, run by dpkg in a root folder of its own. `scripts/check-dist` installs and
//! removes it in whole systems.

use crate::ROOT;
use crate::program::{available, find};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use testkit::{Server, module};

const MODULE: &str = "usr/lib/redis/modules/libleasehold.so";
const LOAD: &str = "loadmodule /usr/lib/redis/modules/libleasehold.so\n";

/// A system in which nothing is installed yet.
struct System {
    root: TempDir,
}

/// Whether it worked, and what was said.
type Told = (bool, String);

impl System {
    /// `None`, and it says so, where there is no dpkg.
    fn new() -> Option<Self> {
        available(find("dpkg-deb"))?;
        let root = tempfile::Builder::new().prefix("leasehold-dpkg-").tempdir().unwrap();
        let system = Self { root };
        for folder in ["info", "updates", "triggers"] {
            fs::create_dir_all(system.path("var/lib/dpkg").join(folder)).unwrap();
        }
        fs::create_dir(system.path("var/log")).unwrap();
        system.write("var/lib/dpkg/status", "");
        // debconf keeps its answers within too.
        system.write(
            "etc/debconf.conf",
            "Config: answers\nTemplates: templates\n\n\
             Name: answers\nDriver: File\nFilename: /answers.dat\n\n\
             Name: templates\nDriver: File\nFilename: /templates.dat\n",
        );
        Some(system)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn run(&self, program: &str, words: &[&str], variables: &[(&str, &str)]) -> Told {
        let output = Command::new("timeout")
            .args(["60", program])
            .args(words)
            .env_remove("LEASEHOLD_REMOVE")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("DPKG_ROOT", self.root.path())
            .env("LC_ALL", "C")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&told).into_owned())
    }

    fn dpkg(&self, words: &[&str], variables: &[(&str, &str)]) -> Told {
        let root = format!("--root={}", self.root.path().display());
        let forced = "--force-script-chrootless,depends,not-root,bad-path";
        self.run("dpkg", &[&[&*root, forced], words].concat(), variables)
    }

    /// One of the scripts, by itself.
    fn script(&self, name: &str, words: &[&str]) -> Told {
        let script = Path::new(ROOT).join("packaging/debian").join(name);
        self.run(script.to_str().unwrap(), words, &[])
    }

    /// Installs this version, whose file is the module that is tested.
    fn install(&self, version: &str) -> String {
        let tree = tempfile::tempdir().unwrap();
        let there = |name: &str| tree.path().join(name);
        for folder in ["DEBIAN", "usr/lib/redis/modules", "usr/lib/valkey/modules"] {
            fs::create_dir_all(there(folder)).unwrap();
        }
        fs::copy(module::path(), there(MODULE)).unwrap();
        let link = there("usr/lib/valkey/modules/libleasehold.so");
        symlink("../../redis/modules/libleasehold.so", link).unwrap();
        let from = Path::new(ROOT).join("packaging/debian");
        for script in ["config", "postinst", "postrm", "prerm", "templates"] {
            fs::copy(from.join(script), there("DEBIAN").join(script)).unwrap();
        }
        let control = fs::read_to_string(from.join("control.in")).unwrap();
        let control = control.replace("@VERSION@", version).replace("@ARCHITECTURE@", "all");
        let control = control.replace("@SIZE@", "1").replace("@DEPENDS@", "libc6");
        fs::write(there("DEBIAN/control"), control).unwrap();
        let file = self.path(&format!("leasehold_{version}.deb"));
        let words = ["--root-owner-group", "--build"].map(str::to_owned);
        let built =
            Command::new("dpkg-deb").args(words).args([tree.path(), &file]).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let (worked, told) = self.dpkg(&["-i", file.to_str().unwrap()], &[]);
        assert!(worked && self.has_module(), "{told}");
        told
    }

    fn remove(&self, how: &str, variables: &[(&str, &str)]) -> Told {
        self.dpkg(&[how, "leasehold"], variables)
    }

    /// Removes it; what is said.
    #[track_caller]
    fn is_removed(&self, how: &str, variables: &[(&str, &str)]) -> String {
        let (worked, told) = self.remove(how, variables);
        assert!(worked && !self.has_module(), "{told}");
        told
    }

    /// Tries to remove it; what is said of why it stays.
    #[track_caller]
    fn stays(&self, how: &str, variables: &[(&str, &str)]) -> String {
        let (worked, told) = self.remove(how, variables);
        assert!(!worked && self.has_module(), "{told}");
        told
    }

    fn has_module(&self) -> bool {
        self.path(MODULE).exists()
    }
}

#[test]
fn a_package_that_configuration_loads_is_not_removed_unless_told_otherwise() {
    let Some(system) = System::new() else { return };
    system.install("1.0");
    for (name, text) in [
        ("etc/redis/redis.conf", LOAD),
        ("etc/redis/redis.conf", "dir /usr/lib/redis\nloadmodule modules/libleasehold.so\n"),
        (
            "etc/redis/second.conf",
            "\tLoadModule \"/usr/lib/redis/modules/libleasehold.so\" max-ttl 1\r\n",
        ),
        ("etc/valkey/valkey.conf", "loadmodule /usr/lib/valkey/modules/libleasehold.so max-ttl 1"),
        (
            "etc/redis/parts/a.conf",
            "loadmodule '/usr/lib/redis/modules/../modules/libleasehold.so'",
        ),
        ("srv/locks.conf", LOAD),
        ("etc/redis/my conf/x.inc", LOAD),
    ] {
        system.write(name, &format!("port 1\n{text}\n"));
        let includes =
            "include parts/*.conf\ninclude /srv/locks.conf\ninclude \"/etc/redis/my conf/x.inc\"\n";
        system.write("etc/redis/main.conf", includes);
        let (worked, told) = system.script("prerm", &["remove"]);
        assert!(!worked && told.contains(&format!("     /{name}\n")), "{name}: {told}");
        fs::remove_file(system.path(name)).unwrap();
    }
    system.write("etc/redis/redis.conf", LOAD);
    for how in ["--remove", "--purge"] {
        let told = system.stays(how, &[]);
        assert!(told.contains(" /etc/redis/redis.conf\n"), "{told}");
        assert!(told.contains("LEASEHOLD_REMOVE=yes"), "{told}");
        // dpkg has it installed as ever.
        let status = fs::read_to_string(system.path("var/lib/dpkg/status")).unwrap();
        assert!(status.contains(" ok installed"), "{status}");
    }
    // A frontend that cannot show itself asks nobody.
    system.stays("--remove", &[("DEBIAN_FRONTEND", "dialog")]);
    let told = system.is_removed("--remove", &[("LEASEHOLD_REMOVE", "yes")]);
    assert!(told.contains(" /etc/redis/redis.conf"), "it says so all the same: {told}");
    let (worked, told) = system.remove("--purge", &[]);
    assert!(worked, "what is removed already is purged: {told}");
}

#[test]
fn files_that_may_load_it_elsewhere_are_named_and_do_not_keep_it() {
    let Some(system) = System::new() else { return };
    system.install("1.0");
    let drop_in = "[Service]\nExecStart=/usr/bin/redis-server --loadmodule \
                   /usr/lib/redis/modules/libleasehold.so\n";
    let named = [
        ("etc/redis.conf", LOAD),
        ("etc/redis-7000/redis.conf", LOAD),
        ("etc/redis/cluster/7000.conf", LOAD),
        ("etc/systemd/system/redis-server.service.d/locks.conf", drop_in),
        ("etc/redis/settings.conf", "leasehold.max-ttl 60000\n"),
        ("etc/redis/users.acl", "user worker on nopass ~* +lock.acquire\n"),
        ("etc/valkey/users.acl", "user worker on nopass ~* +@lock -@dangerous\n"),
    ];
    named.iter().for_each(|(name, text)| system.write(name, text));
    let others = "lock-file /run/x\nloadmodule /opt/libleasehold.so\n# loadmodule /usr/lib/redis/modules/libleasehold.so\n";
    system.write("etc/redis/other.conf", others);
    let told = system.is_removed("--remove", &[]);
    for (name, _) in named {
        assert!(told.contains(&format!("leasehold:   ? /{name}\n")), "{name}: {told}");
    }
    assert!(!told.contains("other.conf"), "{told}");
}

#[test]
fn an_answer_given_to_debconf_beforehand_holds_once() {
    let Some(system) = System::new() else { return };
    if available(find("debconf-set-selections")).is_none() {
        return;
    }
    system.write("etc/redis/redis.conf", LOAD);
    system.install("1.0");
    system.write("answer", "leasehold leasehold/remove-in-use boolean true\n");
    let answer = system.path("answer");
    let (worked, told) = system.run("debconf-set-selections", &[answer.to_str().unwrap()], &[]);
    assert!(worked, "{told}");
    system.is_removed("--remove", &[]);
    system.install("1.0");
    system.stays("--remove", &[]);
}

#[test]
fn only_a_removal_is_refused() {
    let Some(system) = System::new() else { return };
    system.write("etc/redis/redis.conf", LOAD);
    let told = system.install("1.0");
    assert!(!told.contains("restart needed"), "{told}");
    let told = system.install("1.1");
    assert!(!told.contains("in use") && !told.contains("restart needed"), "{told}");
    for words in [
        &["upgrade", "1.2"][..],
        &["deconfigure", "in-favour", "other", "1.0"],
        &["failed-upgrade", "1.0"],
        &["remove", "in-favour", "other", "1.0"],
    ] {
        let (worked, told) = system.script("prerm", words);
        assert!(worked, "{words:?}: {told}");
    }
    // What dpkg does when the removal is refused.
    for words in [&["abort-remove"][..], &["abort-upgrade", "1.2"], &["abort-deconfigure"]] {
        assert_eq!(system.script("postinst", words), (true, String::new()), "{words:?}");
    }
}

#[test]
fn an_upgrade_says_which_server_has_to_be_restarted_and_restarts_none() {
    let Some(system) = System::new() else { return };
    system.install("1.0");
    symlink("/proc", system.path("proc")).unwrap();
    let file = system.path(MODULE);
    let server = Server::builder().without_module();
    let server = server.config("loadmodule", file.to_str().unwrap()).start();
    let pid = server.client().info_field("server", "process_id").unwrap();
    let (worked, told) = system.remove("--remove", &[]);
    assert!(!worked && told.contains(&format!("     process {pid}\n")), "{told}");

    let told = system.install("1.1");
    let line = format!("leasehold: restart needed: process {pid} has the former version loaded: ");
    let line = told.lines().find(|said| said.starts_with(&line));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains("-server"), "{line}");
    server.client().grant("k", "alice", 60_000);
    assert_eq!(server.client().info_field("server", "process_id").unwrap(), pid);
}
