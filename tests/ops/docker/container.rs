//! What runs in a container, run in folders of its own instead, with nothing in PATH but what the images have.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use testkit::{announce, eventually, find_cli, is_older_than, module, server_binary, signal};

/// The programs that scripts and commands use.
const PROGRAMS: [&str; 12] =
    ["awk", "cat", "cp", "date", "grep", "mv", "sed", "sh", "sleep", "sort", "timeout", "uname"];

/// Since when redis-cli knows all that is asked of it.
const CLI_SINCE: (u32, u32) = (5, 0);

pub(crate) struct Container {
    dir: TempDir,
    /// What it is given besides what every container here has.
    variables: Vec<(String, String)>,
    process: Option<Child>,
}

impl Container {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("leasehold-container-").tempdir().unwrap();
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        for program in PROGRAMS {
            let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(program));
            let found = found.into_iter().find(|file| file.exists());
            symlink(found.unwrap_or_else(|| panic!("no {program}")), bin.join(program)).unwrap();
        }
        for script in ["entrypoint", "healthcheck"] {
            let file = Path::new(crate::ROOT).join("docker").join(script);
            symlink(file, bin.join(format!("leasehold-{script}"))).unwrap();
        }
        symlink(server_binary(), bin.join(server_name())).unwrap();
        let cli = find_cli(CLI_SINCE).expect("redis-cli is part of the server");
        symlink(cli, bin.join(server_name().replace("server", "cli"))).unwrap();
        Self { dir, variables: Vec::new(), process: None }
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// With one more variable of the environment.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.set(name, value);
        self
    }

    /// Takes the server's client away.
    pub(super) fn without_client(self) -> Self {
        let client = self.dir.path().join("bin").join(server_name().replace("server", "cli"));
        fs::remove_file(client).unwrap();
        self
    }

    /// The path of a program within.
    pub(super) fn path_of(&self, program: &str) -> String {
        self.dir.path().join("bin").join(program).to_str().unwrap().to_owned()
    }

    /// A file within; its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A program within.
    pub(crate) fn write_program(&self, name: &str, text: &str) {
        let path = self.write(&format!("bin/{name}"), text);
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    /// What a file within has.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The folder of the image for the modules that the server comes with.
    pub(crate) fn bundled(&self) -> PathBuf {
        self.dir.path().join("bundled")
    }

    /// Runs the entrypoint to its end; what it says.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let (success, told) = self.call("leasehold-entrypoint", words);
        assert!(success, "{words:?}: {told}");
        told
    }

    /// The health check: `alive` or `ready`, with words for the client.
    pub(crate) fn check(
        &self,
        question: &str,
        words: &[&str],
        password: &str,
    ) -> Result<(), String> {
        let mut command = self.program("leasehold-healthcheck");
        command.arg(question);
        if !password.is_empty() {
            command.env("REDISCLI_AUTH", password);
        }
        let (success, told) = self.finish(command.args(words));
        if success { Ok(()) } else { Err(told) }
    }

    /// Runs the entrypoint as the main program.
    pub(crate) fn start(&mut self, words: &[&str]) {
        self.start_program("leasehold-entrypoint", words, "");
    }

    /// Runs any program as the main one, which may read `input`.
    pub(crate) fn start_program(&mut self, program: &str, words: &[&str], input: &str) {
        assert!(self.process.is_none(), "it runs already");
        let input = self.write("input", input);
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        let mut command = self.program(program);
        command.args(words).stdin(File::open(input).unwrap());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(begun(|| command.spawn()));
    }

    /// Starts it with a socket, and waits until it grants locks.
    pub(crate) fn serve(&mut self, words: &[&str]) {
        self.launch(words);
        self.wait_until_ready();
    }

    /// The same with something to read, for which `words` have a dash.
    pub(crate) fn serve_from(&mut self, words: &[&str], input: &str) {
        let input = format!("{input}\nport 0\nunixsocket {}\n", self.socket());
        self.start_program("leasehold-entrypoint", words, &input);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        eventually("the server is ready", || {
            self.look();
            self.ask("ready")
        });
    }

    /// Starts it with a socket.
    pub(crate) fn launch(&mut self, words: &[&str]) {
        let socket = self.socket();
        self.start(&[words, &["--port", "0", "--unixsocket", &socket]].concat());
    }

    /// Starts it, though it must end by itself; what it says.
    pub(crate) fn refuse(&self, words: &[&str]) -> String {
        let words = [&["20", "leasehold-entrypoint"], words, &["--port", "0"]].concat();
        let (success, told) = self.call("timeout", &words);
        assert!(!success, "{words:?}: {told}");
        told
    }

    /// The health check of the server that runs within.
    pub(crate) fn ask(&self, question: &str) -> Result<(), String> {
        self.check(question, &["-s", &self.socket()], "")
    }

    /// Tells the server something by the client of the image.
    pub(crate) fn tell(&self, words: &[&str]) -> String {
        let socket = self.socket();
        self.run(&[&["cli", "-s", &socket], words].concat())
    }

    /// That the main program runs.
    pub(crate) fn look(&mut self) {
        if let Some(status) = self.process.as_mut().unwrap().try_wait().unwrap() {
            panic!("it ended, {status}: {}", self.log());
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Asks the main program to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        let process = self.process.as_mut().expect("nothing runs");
        signal(process.id(), "TERM").unwrap();
        eventually("it ends", || process.try_wait().unwrap().ok_or("it runs"));
        self.process = None;
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn socket(&self) -> String {
        self.dir.path().join("sock").to_str().unwrap().to_owned()
    }

    /// A program of its PATH, or one with a path of its own, to its end: whether it succeeded, and what it says.
    pub(crate) fn call(&self, program: &str, words: &[&str]) -> (bool, String) {
        self.finish(self.program(program).args(words))
    }

    fn program(&self, name: &str) -> Command {
        let bin = self.dir.path().join("bin");
        let mut command = Command::new(bin.join(name));
        command
            .env_clear()
            .env("PATH", bin)
            .env("LEASEHOLD_MODULE", module::path())
            .env("LEASEHOLD_BUNDLED_MODULES", self.bundled())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path().join("data"))
            .stdin(Stdio::null());
        command
    }

    fn finish(&self, command: &mut Command) -> (bool, String) {
        let output = begun(|| command.output());
        let told = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&told).trim_end().to_owned())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            announce(&self.log());
        }
    }
}

/// What the image has it by: the product by whose name it goes decides.
pub(crate) fn server_name() -> &'static str {
    let file = server_binary().file_name().unwrap().to_str().unwrap();
    if file.starts_with("valkey") { "valkey-server" } else { "redis-server" }
}

/// What the network of a container does for a server, it is told: to be at one address, and to speak from there.
pub(crate) fn at(address: &str) -> Vec<&str> {
    let mut words = vec!["--bind", address, "--protected-mode", "no"];
    if !is_older_than((7, 0)) {
        words.extend(["--bind-source-addr", address]);
    }
    words
}

/// A program that was written a moment ago. A test that starts another one just then has the file open for writing, too, until
/// its program has begun.
fn begun<T>(mut begin: impl FnMut() -> io::Result<T>) -> T {
    eventually("the program begins", || match begin() {
        Err(busy) if busy.kind() == io::ErrorKind::ExecutableFileBusy => Err(busy),
        begun => Ok(begun.unwrap()),
    })
}
