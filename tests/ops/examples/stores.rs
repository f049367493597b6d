//! The stores that docs/guide.md gives fences to, each started for one test in a folder of its own.
//!
//! They are programs of others, so a machine may lack them: then the test is skipped, and says so.

use super::python::MOTO;
use super::{ADDRESS, CLI_SINCE, address_of};
use crate::program::{Missing, Told, find, install, run};
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{Server, eventually, find_cli, signal};

/// Whom Linux calls `nobody`: Postgres refuses to run as root.
const NOBODY: u32 = 65_534;
const ROOT: u32 = 0;

/// Where distributions keep programs that are not for everybody's PATH.
const HIDDEN: [&str; 3] = ["/usr/lib/postgresql", "/usr/sbin", "/usr/libexec"];

/// What the guide calls the store of objects.
const ADDRESS_OF_OBJECTS: &str = "http://127.0.0.1:9000";

/// Longer than any of them takes to end when it is asked to.
const LONGEST_END: Duration = Duration::from_secs(10);

pub(super) struct Store {
    process: Option<Child>,
    folder: TempDir,
    /// What its client is told.
    settings: Vec<(&'static str, String)>,
    /// Where it is, and what the guide says instead.
    address: Option<(&'static str, String)>,
}

impl Store {
    /// One that needs no server: a folder.
    pub(super) fn of_files() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // What somebody has set for himself at home is not what the guide speaks of.
        let settings = vec![("HOME", folder.path().display().to_string())];
        Self { process: None, folder, settings, address: None }
    }

    /// Redis itself, another server than that of the locks or the same.
    pub(super) fn of_redis(server: &Server) -> Option<Self> {
        let client = find_cli(CLI_SINCE)?;
        let mut store = Self::of_files();
        // The guide calls it so.
        symlink(client, store.path().join("redis-cli")).unwrap();
        let path = env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", store.path().display());
        store.settings.push(("PATH", path));
        store.address = Some((ADDRESS, address_of(server)));
        Some(store)
    }

    /// Runs something of the guide's in `sh`, followed by this.
    pub(super) fn run(&self, snippet: &str, then: &str) -> Told {
        let mut snippet = snippet.to_owned();
        if let Some((said, address)) = &self.address {
            assert!(snippet.contains(said), "a snippet for no server: {snippet}");
            snippet = snippet.replace(said, address);
        }
        let mut command = Command::new("sh");
        command.arg("-euc").arg(format!("{snippet}\n{then}\n")).current_dir(self.path());
        run(command.envs(self.settings.iter().map(|(name, value)| (*name, value.as_str()))))
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// A program of the store, with the rights of nobody in particular: root's are refused by some.
    fn program(&self, file: &Path) -> Command {
        let mut command = Command::new(file);
        command.current_dir(self.path());
        match fs::metadata(self.path()).unwrap().uid() {
            ROOT => chown(self.path(), Some(NOBODY), Some(NOBODY)).unwrap(),
            NOBODY => {}
            _ => return command,
        }
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    fn start(&mut self, server: &mut Command) {
        let log = File::create(self.path().join("log")).unwrap();
        let server = server.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(server.spawn().unwrap());
    }

    /// Until this succeeds.
    fn wait_until(&self, ready: &str) {
        eventually(ready, || {
            let told = self.run("", ready);
            if told.success { Ok(()) } else { Err(told.err + &self.log()) }
        });
    }
}

impl Drop for Store {
    /// Asks it to end before it ends it: Postgres leaves shared memory behind otherwise.
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = signal(process.id(), "TERM");
        let begun = Instant::now();
        while matches!(process.try_wait(), Ok(None)) && begun.elapsed() < LONGEST_END {
            sleep(Duration::from_millis(5));
        }
        let _ = process.kill();
        let _ = process.wait();
    }
}

pub(super) fn postgres() -> Result<Store, Missing> {
    find("psql")?;
    let [initdb, postgres] = [find_hidden("initdb")?, find_hidden("postgres")?];
    let mut store = Store::of_files();
    let folder = store.path().display().to_string();
    let mut init = store.program(&initdb);
    let told = install(init.args(["-D", "data", "-U", "guide", "-A", "trust", "--no-sync"]));
    assert!(told.success, "{}{}", told.out, told.err);
    let mut server = store.program(&postgres);
    server.args(["-D", "data", "-F", "-c", "listen_addresses="]);
    server.args(["-c", &format!("unix_socket_directories={folder}")]);
    let names = [("PGHOST", folder.as_str()), ("PGUSER", "guide"), ("PGDATABASE", "postgres")];
    store.settings.extend(names.map(|(name, value)| (name, value.to_owned())));
    store.start(&mut server);
    store.wait_until("psql -c 'SELECT 1'");
    Ok(store)
}

pub(super) fn mariadb() -> Result<Store, Missing> {
    find("mariadb")?;
    let [init, mariadbd] = [find("mariadb-install-db")?, find_hidden("mariadbd")?];
    let mut store = Store::of_files();
    let folder = store.path().display().to_string();
    let data = format!("--datadir={folder}/data");
    let told = install(store.program(&init).args([
        "--no-defaults",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        &data,
    ]));
    assert!(told.success, "{}{}", told.out, told.err);
    let mut server = store.program(&mariadbd);
    server.args(["--no-defaults", "--skip-networking", &data]);
    server.args([format!("--socket={folder}/socket"), format!("--pid-file={folder}/pid")]);
    let settings = format!("[client]\nuser=root\nsocket={folder}/socket\n");
    fs::write(store.path().join(".my.cnf"), settings).unwrap();
    store.start(&mut server);
    store.wait_until("mariadb -e 'CREATE DATABASE IF NOT EXISTS pages'");
    Ok(store)
}

/// An emulation of S3. `None`, and it says so, where it cannot be had.
pub(super) fn objects() -> Option<Store> {
    let moto = MOTO.programs()?.join("moto_server");
    let mut store = Store::of_files();
    let mut server = Command::new(moto);
    store.start(server.args(["-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1"));
    let address = eventually("it says where it is", || {
        let log = store.log();
        let port = log.split("http://127.0.0.1:").nth(1);
        let port = port.and_then(|rest| rest.lines().next()?.parse::<u16>().ok());
        port.map(|port| format!("http://127.0.0.1:{port}")).ok_or(log)
    });
    let create = "curl -sf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 --user key:secret";
    store.wait_until(&format!("{create} {address}/pages"));
    store.address = Some((ADDRESS_OF_OBJECTS, address));
    Some(store)
}

/// In PATH, or in one of the folders that are in nobody's.
fn find_hidden(name: &str) -> Result<PathBuf, Missing> {
    find(name).or_else(|missing| {
        let folders = HIDDEN.iter().flat_map(|folder| {
            let below = fs::read_dir(folder).into_iter().flatten().flatten();
            let below = below.map(|entry| entry.path().join("bin"));
            below.chain([PathBuf::from(folder)])
        });
        folders.map(|folder| folder.join(name)).find(|file| file.is_file()).ok_or(missing)
    })
}
