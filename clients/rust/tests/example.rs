// A server for the examples in the documentation, which include this file. It has no module: they are the same with it.

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
        let chosen = std::env::var("LEASEHOLD_SERVER").into_iter();
        let binaries = chosen.chain(["redis-server", "valkey-server"].map(str::to_owned));
        let mut started = binaries.filter_map(|binary| {
            let mut server = std::process::Command::new(binary);
            let socket = folder.join("sock");
            server.args(["--port", "0", "--save", "", "--unixsocket"]).arg(socket);
            server.current_dir(&folder).stdout(std::process::Stdio::null()).spawn().ok()
        });
        Self { process: started.next().expect("no server in PATH"), folder }
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
