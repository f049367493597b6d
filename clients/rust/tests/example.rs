// A server with the module for the examples in the documentation, which include this file.

struct Example {
    process: std::process::Child,
    folder: std::path::PathBuf,
}

impl Example {
    fn start() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let name = format!("leasehold-example-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let binary = std::env::var("LEASEHOLD_SERVER").unwrap_or("redis-server".to_owned());
        let mut server = std::process::Command::new(binary);
        server.args(["--port", "0", "--save", "", "--unixsocket"]).arg(folder.join("sock"));
        server.arg("--loadmodule").arg(Self::module());
        let process = server.current_dir(&folder).stdout(std::process::Stdio::null()).spawn();
        let example = Self { process: process.expect("no server in PATH"), folder };
        while std::os::unix::net::UnixStream::connect(example.folder.join("sock")).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        example
    }

    /// The one that is tested, or the one that cargo has built for the tests.
    fn module() -> std::path::PathBuf {
        use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
        let target = std::env::var("CARGO_TARGET_DIR").unwrap_or(built.to_owned());
        let module = format!("{target}/debug/deps/{DLL_PREFIX}leasehold{DLL_SUFFIX}");
        let module = std::env::var("LEASEHOLD_MODULE").unwrap_or(module);
        std::fs::canonicalize(&module).unwrap_or_else(|error| panic!("{module}: {error}"))
    }

    fn url(&self) -> String {
        format!("unix://{}", self.folder.join("sock").display())
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs an example on a runtime of its own, and checks that it leaves nothing behind.
fn example(
    run: impl AsyncFnOnce(leasehold_client::Locks) -> Result<(), Box<dyn std::error::Error>>,
) {
    let server = Example::start();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let locks = leasehold_client::Locks::new(redis::Client::open(server.url()).unwrap());
        run(locks.clone()).await.unwrap();
        let left = locks.close(std::time::Duration::from_secs(5)).await;
        assert!(left.is_empty(), "not released: {left:?}");
    });
}
