//! The pods of the manifests, whose containers run here as programs, each at an address of its own.

use crate::docker::container::Container;
use crate::{words, yaml};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use testkit::{Seed, eventually, free_port_of_a_node, is_older_than, until};
use yaml_rust2::Yaml;

/// The password of the pods' secret. Where it is written into a configuration file, it has to be quoted.
pub(super) const PASSWORD: &str = r#"a "b" \c"#;

/// In which folders the files of the ConfigMap are, the last one first; and what each pod runs.
struct Manifests {
    folders: Vec<&'static str>,
    containers: BTreeMap<&'static str, Vec<Yaml>>,
}

pub(super) struct Group {
    manifests: Manifests,
    /// The first three parts of the pods' addresses.
    network: String,
    /// What stands for 6379 and 26379: elsewhere on this machine they may be taken on every address.
    ports: [u16; 2],
    pods: BTreeMap<String, Container>,
}

impl Group {
    /// The only server.
    pub(super) fn single() -> Self {
        let containers = vec![container("kubernetes/base/stateful-set.yaml")];
        Self::of(Manifests {
            folders: vec!["kubernetes/base"],
            containers: BTreeMap::from([("leasehold", containers)]),
        })
    }

    /// Servers with sentinels; none runs yet.
    pub(super) fn with_sentinels() -> Self {
        // What a patch says counts, then what it leaves as it was.
        let servers = ["sentinel/servers.yaml", "base/stateful-set.yaml"];
        let servers = servers.map(|name| container(&format!("kubernetes/{name}"))).to_vec();
        let sentinels = vec![container("kubernetes/sentinel/sentinels.yaml")];
        Self::of(Manifests {
            folders: vec!["kubernetes/sentinel", "kubernetes/base"],
            containers: BTreeMap::from([("leasehold", servers), ("leasehold-sentinel", sentinels)]),
        })
    }

    fn of(manifests: Manifests) -> Self {
        let mut seed = Seed::announced();
        let network = format!("127.{}.{}.", 64 + seed.below(128), 1 + seed.below(254));
        let ports = [(); 2].map(|()| free_port_of_a_node());
        Self { manifests, network, ports, pods: BTreeMap::new() }
    }

    /// The container of a pod that was started before.
    pub(super) fn container(&mut self, pod: &str) -> &mut Container {
        self.pods.get_mut(pod).unwrap()
    }

    /// Starts the pod, with what it kept if it ran before.
    pub(super) fn start(&mut self, pod: &str) {
        if !self.pods.contains_key(pod) {
            let container = self.create(pod);
            self.pods.insert(pod.to_owned(), container);
        }
        let command = self.command(pod, &["command"]);
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        self.container(pod).start_program(words[0], &words[1..], "");
    }

    /// Its container, with the ConfigMap in a folder.
    fn create(&self, pod: &str) -> Container {
        let mut container = Container::new();
        fs::create_dir(container.folder().join("etc")).unwrap();
        for folder in self.manifests.folders.iter().rev() {
            for file in files_of(folder) {
                let from = Path::new(crate::ROOT).join(folder).join(&file);
                fs::copy(from, container.folder().join("etc").join(file)).unwrap();
            }
        }
        // What the network of a pod does for it, it is told: to be at one address, and to speak from there.
        let address = self.address(pod);
        let data = container.folder().join("data");
        let mut place = format!("bind {address}\n");
        if !is_older_than((7, 0)) && !pod.contains("sentinel") {
            place += &format!("bind-source-addr {address}\n");
        }
        let config = container.read("etc/server.conf");
        let config = config.replace("dir /data", &format!("dir {}", data.display()));
        container.write("etc/server.conf", &format!("{config}port {}\n{place}", self.ports[0]));
        if self.manifests.containers.len() > 1 {
            let config = container.read("etc/sentinel.conf");
            // As long as a machine with much else to do is silent.
            let config = config.replace("locks 5000", "locks 2500");
            container.write("etc/sentinel.conf", &format!("{config}bind {address}\n"));
        }
        for (name, value) in self.variables(pod) {
            container.set(&name, &value);
        }
        container
    }

    /// What the manifest says of this container, in this place.
    fn said(&self, pod: &str, path: &[&str]) -> Yaml {
        let kind = pod.rsplit_once('-').unwrap().0;
        let mut layers = self.manifests.containers[kind].iter();
        let found = layers.find_map(|layer| {
            let at = path.iter().fold(layer, |place, &name| &place[name]);
            (!at.is_badvalue()).then(|| at.clone())
        });
        found.unwrap_or_else(|| panic!("{pod} has no {path:?}"))
    }

    fn variables(&self, pod: &str) -> Vec<(String, String)> {
        let mut variables: Vec<(String, String)> = Vec::new();
        let kind = pod.rsplit_once('-').unwrap().0;
        for layer in self.manifests.containers[kind].iter().rev() {
            for variable in layer["env"].as_vec().into_iter().flatten() {
                let from = &variable["valueFrom"];
                let path = from["fieldRef"]["fieldPath"].as_str();
                let value = match (variable["value"].as_str(), path) {
                    (Some(value), _) => value.to_owned(),
                    (_, Some("metadata.name")) => pod.to_owned(),
                    (_, Some("metadata.namespace")) => "locks".to_owned(),
                    _ => {
                        assert_eq!(from["secretKeyRef"]["key"].as_str(), Some("password"));
                        PASSWORD.to_owned()
                    }
                };
                let value = variables.iter().fold(value, |value, (name, known)| {
                    value.replace(&format!("$({name})"), known)
                });
                variables.push((variable["name"].as_str().unwrap().to_owned(), value));
            }
        }
        variables.into_iter().map(|(name, value)| (name, self.here(&value))).collect()
    }

    pub(super) fn address(&self, pod: &str) -> String {
        let (kind, number) = pod.rsplit_once('-').unwrap();
        let tens = if kind == "leasehold" { 1 } else { 2 };
        format!("{}{tens}{number}", self.network)
    }

    /// Where its server listens.
    pub(super) fn endpoint(&self, pod: &str) -> String {
        format!("{}:{}", self.address(pod), self.ports[0])
    }

    /// With the addresses and ports of this machine instead of those that the manifest has.
    fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for number in 0..3 {
            for (kind, service) in
                [("leasehold", "leasehold-servers"), ("leasehold-sentinel", "leasehold-sentinels")]
            {
                let pod = format!("{kind}-{number}");
                text = text.replace(&format!("{pod}.{service}.locks.svc"), &self.address(&pod));
            }
        }
        let [server, sentinel] = self.ports.map(|port| port.to_string());
        text.replace("26379", &sentinel).replace("6379", &server)
    }

    /// A command of the manifest.
    fn command(&self, pod: &str, path: &[&str]) -> Vec<String> {
        let words = self.said(pod, path);
        let etc = self.pods[pod].folder().join("etc");
        let words = words.as_vec().unwrap().iter().map(|word| word.as_str().unwrap());
        words
            .map(|word| self.here(&word.replace("/etc/leasehold", etc.to_str().unwrap())))
            .collect()
    }

    /// Runs a command of the manifest in the pod. Within a pod its own address is 127.0.0.1, which is the usual one.
    fn execute(&self, pod: &str, path: &[&str]) -> (bool, String) {
        let mut words = self.command(pod, path);
        let port = self.ports[usize::from(pod.contains("sentinel"))].to_string();
        let place = ["-h".to_owned(), self.address(pod), "-p".to_owned(), port];
        let at = if words.get(1).is_some_and(|word| word == "cli") { 2 } else { words.len() };
        words.splice(at..at, place);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        self.pods[pod].call(words[0], &words[1..])
    }

    pub(super) fn probe(&self, pod: &str, probe: &str) -> Result<(), String> {
        let (success, told) = self.execute(pod, &[probe, "exec", "command"]);
        if success { Ok(()) } else { Err(told) }
    }

    #[track_caller]
    pub(super) fn assert_probes_pass(&self, pod: &str) {
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert_eq!(self.probe(pod, probe), Ok(()), "{pod}: {probe}");
        }
    }

    pub(super) fn wait_until_ready(&mut self, pod: &str) {
        eventually(&format!("{pod} is ready"), || {
            self.container(pod).look();
            self.probe(pod, "readinessProbe")
        });
    }

    /// What a node runs before it ends a pod; what that says.
    pub(super) fn hand_over(&self, pod: &str) -> String {
        let (success, told) = self.execute(pod, &["lifecycle", "preStop", "exec", "command"]);
        assert!(success, "{told}");
        told
    }

    /// As a node ends a pod.
    pub(super) fn stop(&mut self, pod: &str) -> String {
        let told = self.hand_over(pod);
        self.container(pod).stop();
        told
    }

    pub(super) fn kill(&mut self, pod: &str) {
        self.container(pod).kill();
    }

    /// The volume of the pod, which does not run, is empty.
    pub(super) fn lose(&mut self, pod: &str) {
        let data = self.pods[pod].folder().join("data");
        fs::remove_dir_all(&data).unwrap();
        fs::create_dir(data).unwrap();
    }

    /// Tells the server or the sentinel of the pod something.
    pub(super) fn tell(&self, pod: &str, words: &str) -> String {
        self.say(pod, &[], words)
    }

    /// The same again and again; what it says when that fits.
    pub(super) fn until(&self, pod: &str, words: &str, fits: impl Fn(&str) -> bool) -> String {
        until(words, || self.tell(pod, words), |told| fits(told))
    }

    /// By a password that is not that of the pod's secret.
    pub(super) fn tell_by(&self, pod: &str, password: &str, words: &str) -> String {
        self.say(pod, &["--user", "default", "--pass", password, "--no-auth-warning"], words)
    }

    fn say(&self, pod: &str, options: &[&str], words: &str) -> String {
        let port = self.ports[usize::from(pod.contains("sentinel"))].to_string();
        let address = self.address(pod);
        // A server that does not answer is not waited for.
        let place = ["10", "leasehold-entrypoint", "cli", "-h", &address, "-p", &port];
        let words: Vec<_> = words.split(' ').collect();
        self.pods[pod].call("timeout", &[&place, options, &words].concat()).1
    }

    /// The pod that all sentinels take for the primary.
    pub(super) fn primary(&self) -> Result<String, Vec<String>> {
        let seen: Vec<_> = (0..3)
            .map(|number| {
                let ask = "SENTINEL GET-MASTER-ADDR-BY-NAME locks";
                let told = self.tell(&format!("leasehold-sentinel-{number}"), ask);
                told.lines().next().unwrap_or_default().to_owned()
            })
            .collect();
        let named = ["leasehold-0", "leasehold-1", "leasehold-2"]
            .into_iter()
            .find(|pod| seen.iter().all(|address| *address == self.address(pod)));
        named.map(str::to_owned).ok_or(seen)
    }

    pub(super) fn wait_for_another_primary_than(&self, former: &str) -> String {
        eventually("the sentinels have another primary", || match self.primary() {
            Ok(pod) if pod != former => {
                let role = self.tell(&pod, "ROLE");
                if role.starts_with("master") { Ok(pod) } else { Err(vec![role]) }
            }
            Ok(pod) => Err(vec![pod]),
            Err(seen) => Err(seen),
        })
    }
}

/// The first container of the only StatefulSet in this file.
fn container(name: &str) -> Yaml {
    let set = yaml(name).into_iter().find(|one| one["kind"].as_str() == Some("StatefulSet"));
    set.unwrap()["spec"]["template"]["spec"]["containers"][0].clone()
}

/// What the ConfigMap is made of.
fn files_of(folder: &str) -> Vec<String> {
    let file = &yaml(&format!("{folder}/kustomization.yaml"))[0];
    words(&file["configMapGenerator"][0]["files"]).into_iter().map(str::to_owned).collect()
}
