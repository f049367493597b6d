//! A server process in its own directory, from its start to a checked end.

use super::client::Client;
use super::eventually::eventually;
use super::line_client::LineClient;
use super::module;
use super::ports::{free_port, free_port_of_a_node};
use super::request::Words;
use super::setup::{Kind, Setup, Transport};
use super::signal::signal;
use super::tls::{Identity, Tunnel};
use redis::Value;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How many ports to try. Another process may take a port first.
const PORT_TRIES: usize = 20;

/// Leasehold always refuses this command.
pub const UNLOAD: &str = "MODULE UNLOAD leasehold";

/// Text that the log of a healthy server never contains.
const SIGNS_OF_A_CRASH: [&str; 4] = ["panicked", "BUG REPORT", "ASSERTION", "AddressSanitizer"];

/// A server process, which ends when this is dropped.
pub struct Server {
    setup: Setup,
    dir: Arc<TempDir>,
    /// Distinguishes the files of servers that share a directory.
    id: u32,
    port: u16,
    /// `None` while the test has stopped it.
    process: Option<Child>,
    frozen: bool,
}

/// The thread to crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The thread that executes commands.
    OfMainThread,
    /// A background thread.
    OfAnother,
}

impl Server {
    /// A server with the module, without persistence, on a unix socket.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// The setup of a server with other settings.
    pub fn builder() -> Setup {
        Setup::new()
    }

    pub(crate) fn started(setup: Setup) -> Self {
        for _ in 0..PORT_TRIES {
            let mut server = Self::prepared(setup.clone());
            match server.launch() {
                Ok(()) => return server,
                Err(status) if !server.log().contains("Address already in use") => {
                    panic!("the server gave up, {status}:\n{}", server.log())
                }
                Err(_) => {}
            }
        }
        panic!("no free port in {PORT_TRIES} tries")
    }

    pub(crate) fn refused(setup: Setup) -> String {
        let mut server = Self::prepared(setup);
        match server.launch() {
            Ok(()) => panic!("the server started:\n{}", server.log()),
            Err(status) => {
                let log = server.log();
                assert!(status.code().is_some(), "it crashed, {status}:\n{log}");
                log
            }
        }
    }

    fn prepared(setup: Setup) -> Self {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let dir = setup.dir.clone().unwrap_or_else(new_dir);
        let port = match setup.kind {
            Kind::Node => free_port_of_a_node(),
            Kind::Alone | Kind::Sentinel if setup.tcp => free_port(),
            Kind::Alone | Kind::Sentinel => 0,
        };
        let server = Self { setup, dir, id, port, process: None, frozen: false };
        if server.setup.transport == Transport::Tls {
            Identity::in_dir(server.dir()).create();
        }
        server.write_settings();
        server
    }

    fn write_settings(&self) {
        let file = self.setup.file(self.dir(), &self.path("sock"), self.port);
        fs::write(self.path("conf"), file).unwrap();
    }

    /// Starts the process and waits until it answers or has ended.
    fn launch(&mut self) -> Result<(), ExitStatus> {
        assert!(self.process.is_none(), "the server runs already");
        // Ignores SIGXFSZ, which the server inherits: a write beyond the file size limit must fail with an error, as on
        // a full disk, and must not kill the server.
        //
        // SAFETY: SIG_IGN installs no handler, so no code runs when the signal arrives.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        // One file for all runs and for standard error too, so that no message is lost.
        let log = self.open_log();
        let child = self
            .setup
            .command()
            .arg(self.path("conf"))
            .args((self.setup.kind == Kind::Sentinel).then_some("--sentinel"))
            .envs(self.setup.env_pairs().iter().map(|(name, value)| (name, value)))
            .stdin(File::open("/dev/null").unwrap())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.process = Some(child.expect("the server cannot be run"));
        let up = eventually("the server is up", || self.up_or_gone());
        if up.is_err() {
            self.process = None;
        }
        up
    }

    /// The outer error: not known yet. The inner result: whether the server is up or has ended.
    fn up_or_gone(&mut self) -> Result<Result<(), ExitStatus>, String> {
        if let Some(status) = self.running().try_wait().unwrap() {
            return Ok(Err(status));
        }
        let mut client =
            Client::over_unix(&self.path("sock")).map_err(|error| error.to_string())?;
        match self.introduced(&mut client).try_cmd("PING") {
            Ok(Value::SimpleString(pong)) if pong == "PONG" => {}
            other => return Err(format!("{other:?}")),
        }
        if self.port != 0 {
            // Another process may have taken the port.
            let mut stranger = self.connect_to_port().map_err(|error| error.to_string())?;
            self.introduced(&mut stranger).try_cmd("PING").map_err(|error| error.to_string())?;
            let pid = stranger.info_field("server", "process_id");
            if pid != Some(self.pid().to_string()) {
                return Err(format!("process {pid:?} answers on port {}", self.port));
            }
        }
        Ok(Ok(()))
    }

    /// A new connection, speaking RESP2.
    pub fn client(&self) -> Client {
        let mut client = self.stranger();
        self.introduced(&mut client);
        client
    }

    /// A new connection without a password.
    pub fn stranger(&self) -> Client {
        match self.setup.transport {
            Transport::Unix => Client::over_unix(&self.path("sock")).unwrap(),
            Transport::Tcp | Transport::Tls => self.connect_to_port().unwrap(),
        }
    }

    /// A new connection without a password, to another address of this machine.
    pub fn stranger_at(&self, address: IpAddr) -> Client {
        Client::over_tcp((address, self.port())).unwrap()
    }

    fn connect_to_port(&self) -> std::io::Result<Client> {
        if self.setup.transport == Transport::Tls {
            let identity = Identity::in_dir(self.dir());
            Client::over(Tunnel::open(self.port, &identity, self.open_log())?)
        } else {
            Client::over_tcp((Ipv4Addr::LOCALHOST, self.port))
        }
    }

    /// Sends the password, if there is one. The next command shows whether it was refused.
    fn introduced<'c>(&self, client: &'c mut Client) -> &'c mut Client {
        if let Some(password) = &self.setup.password {
            let _ = client.try_cmd(["AUTH", password]);
        }
        client
    }

    /// Begins to follow this one.
    #[track_caller]
    pub fn follow(&self, primary: &Self) {
        // It may follow it already.
        let reply = self.cmd(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
    }

    /// Is a primary from now on.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.cmd("REPLICAOF NO ONE"), Value::Okay);
    }

    /// A new connection of a user of these rules alone, who is made for it.
    #[track_caller]
    pub fn user(&self, name: &str, rules: &str) -> Client {
        let rules = format!("ACL SETUSER {name} reset on nopass {rules}");
        assert_eq!(self.cmd(rules.trim_end()), Value::Okay, "{rules}");
        self.logged_in(name)
    }

    /// A new connection of a user with any password.
    #[track_caller]
    pub fn logged_in(&self, user: &str) -> Client {
        let mut client = self.client();
        assert_eq!(client.cmd(["AUTH", user, "any"]), Value::Okay);
        client
    }

    /// A new connection, speaking RESP3.
    pub fn client_resp3(&self) -> Client {
        let mut client = self.client();
        let hello = client.cmd("HELLO 3");
        assert!(matches!(hello, Value::Map(_)), "{hello:?}");
        client
    }

    /// A new connection for clients that must be as fast as the server.
    pub fn line_client(&self) -> LineClient {
        LineClient::over_unix(&self.socket()).unwrap()
    }

    /// Sends one command on a new connection.
    pub fn cmd(&self, words: impl Words) -> Value {
        self.client().cmd(words)
    }

    /// Loads the module into a server that was started without it, with these arguments.
    #[track_caller]
    pub fn load(&self, args: &[&str]) {
        let path = module::path().to_str().expect("a path in UTF-8");
        let words = [&["MODULE", "LOAD", path], args].concat();
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(self.cmd(words), Value::Okay);
    }

    /// Shuts the server down without saving.
    pub fn stop(&mut self) {
        // The server closes the connection instead of answering.
        let _ = self.client().try_cmd("SHUTDOWN NOSAVE");
        let status =
            eventually("the server stops", || self.running().try_wait().unwrap().ok_or(()));
        self.process = None;
        assert!(status.success(), "it stopped with {status}:\n{}", self.log());
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("the server is stopped");
        process.kill().unwrap();
        process.wait().unwrap();
        self.frozen = false;
    }

    /// Crashes this thread of the server, and returns the server's log.
    pub fn crash(mut self, thread: Crash) -> String {
        let pid = self.pid();
        let tid = match thread {
            Crash::OfMainThread => pid,
            Crash::OfAnother => background_thread(pid),
        };
        let (pid, tid) = (libc::c_long::from(pid), libc::c_long::from(tid));
        // SAFETY: signals a thread of a child that has not been waited for, and touches no memory of this process.
        let done = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGSEGV) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        eventually("the server crashes", || self.running().try_wait().unwrap().ok_or(()));
        self.process = None;
        let log = self.log();
        // This crash is expected and must not fail the test.
        fs::remove_file(self.path("log")).unwrap();
        log
    }

    /// Waits until the server has ended by itself.
    pub fn wait_until_it_ends(&mut self) {
        let status = eventually("the server ends", || self.running().try_wait().unwrap().ok_or(()));
        self.process = None;
        assert!(status.code().is_some(), "it crashed, {status}:\n{}", self.log());
    }

    /// Limits the size of the server's files, as on a full disk. The log is limited too.
    pub fn limit_files(&mut self, bytes: u64) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        let pid = self.pid().try_into().unwrap();
        // SAFETY: a child that has not been waited for. The limit is only read, and the null pointer asks for no old
        // limit.
        let done =
            unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, ptr::null_mut()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Removes that limit.
    pub fn lift_limit(&mut self) {
        self.limit_files(libc::RLIM_INFINITY);
    }

    /// Stops the process of the server, as when a virtual machine is moved. The server does not notice.
    pub fn freeze(&mut self) {
        self.signal("STOP");
        self.frozen = true;
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) {
        self.signal("CONT");
        self.frozen = false;
    }

    /// Whether the server runs and is not frozen.
    pub fn is_up(&self) -> bool {
        self.process.is_some() && !self.frozen
    }

    fn signal(&mut self, name: &str) {
        signal(self.pid(), name).unwrap();
    }

    /// Starts a stopped server with the same files.
    pub fn start_again(&mut self) {
        if let Err(status) = self.launch() {
            panic!("the server gave up, {status}:\n{}", self.log());
        }
    }

    /// Starts a stopped server with the same files, but without the module.
    pub fn start_again_without_module(&mut self) {
        self.setup = self.setup.clone().without_module();
        self.write_settings();
        self.start_again();
    }

    /// Starts a stopped server, whose files may be too damaged. Returns whether it started.
    pub fn start_again_if_it_can(&mut self) -> bool {
        match self.launch() {
            Ok(()) => true,
            Err(status) => {
                assert!(status.code().is_some(), "it crashed, {status}:\n{}", self.log());
                false
            }
        }
    }

    /// The processor time of the thread that answers clients, as the kernel counts it. It excludes time in which other
    /// programs had the processor.
    pub fn processor_time(&self) -> Duration {
        self.processor_clock()()
    }

    /// Reads that time again and again.
    pub fn processor_clock(&self) -> impl Fn() -> Duration + use<> {
        let pid = self.pid();
        move || {
            let counted = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).unwrap();
            Duration::from_nanos(counted.split(' ').next().unwrap().parse().unwrap())
        }
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        // A server that has never run has no log. Also called while a test fails.
        let log = fs::read(self.path("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The server's own temporary directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn shared_dir(&self) -> Arc<TempDir> {
        self.dir.clone()
    }

    /// The port of a server that has one.
    pub fn port(&self) -> u16 {
        assert_ne!(self.port, 0, "the server has no TCP port");
        self.port
    }

    /// The server's unix socket.
    pub fn socket(&self) -> PathBuf {
        self.path("sock")
    }

    fn open_log(&self) -> File {
        OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap()
    }

    /// The process of the server.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("the server is stopped").id()
    }

    fn running(&mut self) -> &mut Child {
        self.process.as_mut().expect("the server is stopped")
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.dir().join(format!("server-{}.{extension}", self.id))
    }

    /// What is wrong with the server at the end of its test.
    fn complaint(&mut self) -> Option<String> {
        if let Some(process) = &mut self.process {
            if let Some(status) = process.try_wait().unwrap() {
                return Some(format!("the server died, {status}"));
            }
            let client = Client::over_unix(&self.path("sock")).map_err(|error| error.to_string());
            let pong = client
                .and_then(|mut client| client.try_cmd("PING").map_err(|error| error.to_string()));
            // An error reply is an answer too, for example while loading.
            if let Err(error) = pong {
                return Some(format!("the server does not answer: {error}"));
            }
        }
        let log = self.log();
        let mut signs = SIGNS_OF_A_CRASH.iter().filter(|sign| log.contains(**sign));
        let expected = self.setup.expects_panics;
        signs
            .find(|sign| !(expected && **sign == "panicked"))
            .map(|sign| format!("it logged {sign:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.frozen {
            self.thaw();
        }
        let complaint = if thread::panicking() { None } else { self.complaint() };
        // valgrind reports lost memory only of a server that ends by itself.
        let shuts_down = env::var_os("LEASEHOLD_SHUTDOWN").is_some();
        if shuts_down && !thread::panicking() && complaint.is_none() && self.process.is_some() {
            self.stop();
        }
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if thread::panicking() || complaint.is_some() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(60).collect();
            eprintln!("--- the end of the log of server {}", self.id);
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
        if let Some(complaint) = complaint {
            panic!("{complaint}");
        }
    }
}

/// A background thread, such as the one that closes files. The thread gives itself its name a moment after the server
/// has started.
fn background_thread(pid: u32) -> u32 {
    let is_in_background = |thread: &fs::DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("bio_"))
    };
    let thread = eventually("a background thread has its name", || {
        let mut threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        threads.find(is_in_background).ok_or(())
    });
    thread.file_name().to_str().unwrap().parse().unwrap()
}

fn new_dir() -> Arc<TempDir> {
    Arc::new(tempfile::Builder::new().prefix("leasehold-").tempdir().unwrap())
}
